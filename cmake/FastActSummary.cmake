# <build>/summary.txt: what this folder builds for, which `make` shows at its end.

set(_fastact_summary "for torch ${LibTorch_VERSION}, CPU")
if(FASTACT_CUDA)
  string(APPEND _fastact_summary
         " and GPU (CUDA ${CMAKE_CUDA_COMPILER_VERSION}, compute capability ${FASTACT_ARCHITECTURE_NAMES})")
elseif(FASTACT_WITH_CUDA)
  string(APPEND _fastact_summary ", no GPU: ${FASTACT_CUDA_REASON}")
endif()
file(WRITE "${PROJECT_BINARY_DIR}/summary.txt" "${_fastact_summary}\n")

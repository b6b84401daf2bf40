# Writes <build>/summary.txt: the targets of this build folder. `make` prints it at the end.

if(FASTACT_WITH_TORCH)
  set(_fastact_summary "for torch ${LibTorch_VERSION}, CPU")
else()
  set(_fastact_summary "without torch: the engines alone, for ${CMAKE_SYSTEM_PROCESSOR}")
endif()
if(FASTACT_CUDA)
  string(APPEND _fastact_summary
         " and GPU (CUDA ${CMAKE_CUDA_COMPILER_VERSION}, compute capability ${FASTACT_ARCHITECTURE_NAMES})")
elseif(FASTACT_WITH_CUDA)
  string(APPEND _fastact_summary ", no GPU: ${FASTACT_CUDA_REASON}")
endif()
file(WRITE "${PROJECT_BINARY_DIR}/summary.txt" "${_fastact_summary}\n")

# Uses fastact_ops and fastact_kernels from FASTACT_KERNELS, another build folder of this tree. The code below ops/ does
# not use Torch, so one build of it serves every torch. That folder is built first, so the kernels are never older than
# their sources.

if(NOT EXISTS "${FASTACT_KERNELS}/CMakeCache.txt")
  message(FATAL_ERROR "FASTACT_KERNELS: expected a build folder of FastAct, but got '${FASTACT_KERNELS}'.")
endif()
load_cache("${FASTACT_KERNELS}" READ_WITH_PREFIX _fastact_other_
  CMAKE_HOME_DIRECTORY FASTACT_ONLY FASTACT_SANITIZE FASTACT_FAST_MATH FASTACT_CUDA_REASON)
if(NOT _fastact_other_CMAKE_HOME_DIRECTORY STREQUAL PROJECT_SOURCE_DIR)
  message(FATAL_ERROR "FASTACT_KERNELS: expected a build of ${PROJECT_SOURCE_DIR}, but ${FASTACT_KERNELS} is one "
                      "of '${_fastact_other_CMAKE_HOME_DIRECTORY}'.")
endif()
foreach(_fastact_setting IN ITEMS FASTACT_ONLY FASTACT_SANITIZE FASTACT_FAST_MATH)
  if(NOT "${${_fastact_setting}}" STREQUAL "${_fastact_other_${_fastact_setting}}")
    message(FATAL_ERROR "FASTACT_KERNELS: expected ${_fastact_setting} to be '${${_fastact_setting}}', but in "
                        "${FASTACT_KERNELS} it is '${_fastact_other_${_fastact_setting}}'.")
  endif()
endforeach()
if(FASTACT_CUDA AND _fastact_other_FASTACT_CUDA_REASON)
  message(FATAL_ERROR "FASTACT_KERNELS: expected kernels with CUDA, but ${FASTACT_KERNELS} has none: "
                      "${_fastact_other_FASTACT_CUDA_REASON}.")
endif()

set(_fastact_archive "${FASTACT_KERNELS}/lib/libfastact_ops.a")
set(_fastact_shared "${FASTACT_KERNELS}/python/fastact/lib/libfastact_kernels.so")
add_custom_target(fastact_other_build
  COMMAND "${CMAKE_COMMAND}" --build "${FASTACT_KERNELS}" --target fastact_ops fastact_kernels
  BYPRODUCTS "${_fastact_archive}" "${_fastact_shared}"
  COMMENT "Bringing the kernels in ${FASTACT_KERNELS} up to date"
  USES_TERMINAL VERBATIM)
add_library(fastact_ops STATIC IMPORTED GLOBAL)
set_target_properties(fastact_ops PROPERTIES IMPORTED_LOCATION "${_fastact_archive}")
add_library(fastact_kernels SHARED IMPORTED GLOBAL)
set_target_properties(fastact_kernels PROPERTIES
  IMPORTED_LOCATION "${_fastact_shared}" IMPORTED_SONAME libfastact_kernels.so)
foreach(_fastact_library IN ITEMS fastact_ops fastact_kernels)
  add_dependencies(${_fastact_library} fastact_other_build)
  target_include_directories(${_fastact_library} INTERFACE "${PROJECT_SOURCE_DIR}")
  target_compile_features(${_fastact_library} INTERFACE cxx_std_20)
  if(FASTACT_CUDA)
    target_link_libraries(${_fastact_library} INTERFACE CUDA::cudart_static)
  endif()
endforeach()
message(STATUS "FastAct: kernels from ${FASTACT_KERNELS}")

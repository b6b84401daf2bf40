# Builds the Python package `fastact` in FASTACT_PACKAGE_DIR, from which it can be imported:
#
#   *.py                          python/fastact/, and the modules that scripts/codegen/python_package.py generates
#   lib/libfastact_kernels.so     the kernels, which do not use torch
#   lib/torch-2.15/libfastact.so  the operators for one minor version of torch; another build adds its own
#   lib/torch-2.15/libfastact_aten.so  the override of ATen's operators
#   include/, lib/cmake/          for C++
#   include/fastact/formulas/     the formulas, for the C++ that torch.compile generates for x86-64
#
# cmake --install --component package copies it. pyproject.toml makes a wheel of the copy.

find_package(Python3 COMPONENTS Interpreter QUIET)
if(FASTACT_SANITIZE OR NOT Python3_Interpreter_FOUND)
  return()
endif()

set(_fastact_stamp "${PROJECT_BINARY_DIR}/python/package.stamp")
file(GLOB_RECURSE _fastact_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/python/fastact/*.py")
list(TRANSFORM FASTACT_ACTIVATION_NAMES REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/ops/activations/\\1.h"
     OUTPUT_VARIABLE _fastact_headers)
set(_fastact_cuda "")
if(FASTACT_CUDA)
  set(_fastact_cuda --cuda "${CMAKE_CUDA_COMPILER_VERSION}")
endif()

# Inline assembly for torch.compile's kernels. Like the kernels, it does not depend on torch.
set(_fastact_assembly "")
if(FASTACT_CUDA AND FASTACT_KERNELS)
  set(_fastact_assembly "${FASTACT_KERNELS}/ops/assembly.json")
elseif(FASTACT_CUDA)
  set(_fastact_assembly "${PROJECT_BINARY_DIR}/ops/assembly.json")
  set(_fastact_ptx "$<TARGET_OBJECTS:fastact_one_element_cuda>" "$<TARGET_OBJECTS:fastact_one_element_cuda_fast>")
  add_custom_command(OUTPUT "${_fastact_assembly}"
    COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/codegen/inline_assembly.py" ${_fastact_ptx}
      --output "${_fastact_assembly}"
    DEPENDS ${_fastact_ptx} "${PROJECT_SOURCE_DIR}/scripts/codegen/inline_assembly.py"
    COMMENT "Extracting the formulas as inline assembly"
    COMMAND_EXPAND_LISTS VERBATIM)
endif()
set(_fastact_copy_assembly "")
if(NOT FASTACT_CUDA)
  # Removes the file of an earlier build with CUDA: torch.compile would use its formulas on a GPU.
  set(_fastact_copy_assembly
      COMMAND "${CMAKE_COMMAND}" -E rm -f "${FASTACT_PACKAGE_DIR}/_inductor/assembly.json")
endif()
if(_fastact_assembly)
  list(APPEND _fastact_copy_assembly
      COMMAND "${CMAKE_COMMAND}" -E copy ${_fastact_assembly} "${FASTACT_PACKAGE_DIR}/_inductor")
endif()
# The formulas for torch.compile's kernels on CPUs: ops/codegen/inlined.h and every header that it includes.
set(_fastact_formulas "${FASTACT_PACKAGE_DIR}/include/fastact/formulas")
set(_fastact_copy_formulas COMMAND "${CMAKE_COMMAND}" -E rm -rf "${_fastact_formulas}")
set(_fastact_formula_headers "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(_fastact_cpu_headers dense.h packed.h vector.h vector_avx2.h vector_avx512.h)
  list(TRANSFORM _fastact_cpu_headers PREPEND "${PROJECT_SOURCE_DIR}/ops/cpu/")
  set(_fastact_codegen_headers given.h inlined.h unrounded.h)
  list(TRANSFORM _fastact_codegen_headers PREPEND "${PROJECT_SOURCE_DIR}/ops/codegen/")
  list(APPEND _fastact_copy_formulas
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${_fastact_formulas}/ops/codegen" "${_fastact_formulas}/ops/cpu"
      "${_fastact_formulas}/ops/generated"
    COMMAND "${CMAKE_COMMAND}" -E copy "${PROJECT_SOURCE_DIR}/ops/kernel.h" "${_fastact_formulas}/ops"
    COMMAND "${CMAKE_COMMAND}" -E copy ${_fastact_codegen_headers} "${_fastact_formulas}/ops/codegen"
    COMMAND "${CMAKE_COMMAND}" -E copy ${_fastact_cpu_headers} "${_fastact_formulas}/ops/cpu"
    COMMAND "${CMAKE_COMMAND}" -E copy "${PROJECT_BINARY_DIR}/ops/generated/families.h"
      "${_fastact_formulas}/ops/generated")
  foreach(_fastact_folder IN ITEMS activations forms math)
    file(GLOB_RECURSE _fastact_found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/ops/${_fastact_folder}/*.h")
    list(APPEND _fastact_formula_headers ${_fastact_found})
    list(APPEND _fastact_copy_formulas COMMAND "${CMAKE_COMMAND}" -E copy_directory
      "${PROJECT_SOURCE_DIR}/ops/${_fastact_folder}" "${_fastact_formulas}/ops/${_fastact_folder}")
  endforeach()
  list(APPEND _fastact_formula_headers ${_fastact_codegen_headers} ${_fastact_cpu_headers}
       "${PROJECT_SOURCE_DIR}/ops/kernel.h" "${PROJECT_BINARY_DIR}/ops/generated/families.h")
endif()

add_custom_command(OUTPUT "${_fastact_stamp}"
  COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/codegen/python_package.py" "${FASTACT_PACKAGE_DIR}"
    --version "${PROJECT_VERSION}" --revision "${FASTACT_GIT_REVISION}" ${_fastact_cuda}
    --catalogue "${PROJECT_BINARY_DIR}/catalogue.json"
  ${_fastact_copy_assembly}
  ${_fastact_copy_formulas}
  COMMAND "${CMAKE_COMMAND}" -E copy_directory "${PROJECT_BINARY_DIR}/include" "${FASTACT_PACKAGE_DIR}/include"
  COMMAND "${CMAKE_COMMAND}" -E copy
    "${PROJECT_SOURCE_DIR}/registration/include/fastact/export.h"
    "${PROJECT_SOURCE_DIR}/registration/include/fastact/optimize.h"
    "${PROJECT_SOURCE_DIR}/registration/include/fastact/override.h" "${FASTACT_PACKAGE_DIR}/include/fastact"
  COMMAND "${CMAKE_COMMAND}" -E copy_directory "${PROJECT_BINARY_DIR}/cmake" "${FASTACT_PACKAGE_DIR}/lib/cmake/FastAct"
  COMMAND "${CMAKE_COMMAND}" -E copy
    "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake" "${FASTACT_PACKAGE_DIR}/lib/cmake/FastAct"
  COMMAND "${CMAKE_COMMAND}" -E touch "${_fastact_stamp}"
  DEPENDS
    ${_fastact_sources} ${_fastact_headers} ${_fastact_assembly} ${_fastact_formula_headers}
    "${PROJECT_SOURCE_DIR}/scripts/codegen/python_package.py"
    "${PROJECT_SOURCE_DIR}/scripts/codegen/python_glu_rrelu.py" "${PROJECT_SOURCE_DIR}/scripts/codegen/python_rows.py"
    "${PROJECT_BINARY_DIR}/catalogue.json"
    "${PROJECT_SOURCE_DIR}/ops/forms/prelu.h"
    "${PROJECT_SOURCE_DIR}/prove/digests.json"
    "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
    "${PROJECT_SOURCE_DIR}/registration/include/fastact/export.h"
    "${PROJECT_SOURCE_DIR}/registration/include/fastact/optimize.h"
    "${PROJECT_SOURCE_DIR}/registration/include/fastact/override.h"
    "${PROJECT_BINARY_DIR}/include/fastact/fastact.h"
    "${PROJECT_BINARY_DIR}/cmake/FastActConfig.cmake"
  COMMENT "Writing the Python package"
  VERBATIM)
add_custom_target(fastact_package ALL DEPENDS "${_fastact_stamp}")
add_dependencies(fastact_package fastact_aten_thin fastact_catalogue)
if(FASTACT_KERNELS)
  add_custom_command(TARGET fastact_package POST_BUILD
    COMMAND "${CMAKE_COMMAND}" -E copy_if_different "$<TARGET_FILE:fastact_kernels>" "${FASTACT_PACKAGE_DIR}/lib"
    VERBATIM)
endif()

# EXCLUDE_FROM_ALL: cmake --install without a component installs only the files for C++.
install(DIRECTORY "${FASTACT_PACKAGE_DIR}/" DESTINATION . COMPONENT package EXCLUDE_FROM_ALL
        USE_SOURCE_PERMISSIONS PATTERN "__pycache__" EXCLUDE)

# ctest entries that install the package into <build>/prefix, build applications against it and run them. The same for
# the Python package. They need no GPU. scripts/checks/exercises.py builds the applications by FetchContent.

set(_fastact_prefix "${PROJECT_BINARY_DIR}/prefix")
set(_fastact_consumers "${PROJECT_BINARY_DIR}/consumers")

add_test(NAME package_install
  COMMAND "${CMAKE_COMMAND}" --install "${PROJECT_BINARY_DIR}" --prefix "${_fastact_prefix}"
          --config $<CONFIG>)
set_tests_properties(package_install PROPERTIES FIXTURES_SETUP fastact_package)

# Adds the test that configures and builds the consumers in a separate folder, with the FastAct installed at `prefix`.
function(fastact_add_consumer_build variant prefix)
  add_test(NAME package_build_${variant}
    COMMAND "${CMAKE_CTEST_COMMAND}"
      --build-and-test "${PROJECT_SOURCE_DIR}/cpp_tests/consumers" "${_fastact_consumers}/${variant}"
      --build-generator "${CMAKE_GENERATOR}" --build-makeprogram "${CMAKE_MAKE_PROGRAM}"
      --build-options
        "-DCMAKE_PREFIX_PATH=${prefix}" "-DLibTorch_ROOT=${LibTorch_PREFIX}"
        "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}" -DCMAKE_BUILD_TYPE=Release
        -DCMAKE_CXX_FLAGS_RELEASE=-O0 ${ARGN})
  set_tests_properties(package_build_${variant} PROPERTIES
    FIXTURES_REQUIRED fastact_package FIXTURES_SETUP fastact_${variant} TIMEOUT 600)
endfunction()

# Adds a test that runs one of the consumers.
function(fastact_add_consumer_run variant program)
  add_test(NAME package_${variant}_${program}
    COMMAND "${_fastact_consumers}/${variant}/${program}" ${ARGN})
  set_tests_properties(package_${variant}_${program} PROPERTIES
    FIXTURES_REQUIRED "fastact_package;fastact_${variant}" TIMEOUT 120)
endfunction()

fastact_add_consumer_build(plain "${_fastact_prefix}")
fastact_add_consumer_run(plain idle)
fastact_add_consumer_run(plain silent)
fastact_add_consumer_run(plain calls)
fastact_add_consumer_run(plain overrides)
fastact_add_consumer_run(plain opens "${_fastact_prefix}/lib/libfastact.so")

# A project that finds Torch in its own way before it looks for FastAct.
fastact_add_consumer_build(torch_first "${_fastact_prefix}" -DCONSUMER_HAS_TORCH=ON)
fastact_add_consumer_run(torch_first silent)

if(TARGET fastact_package)
  fastact_add_consumer_build(python "${FASTACT_PACKAGE_DIR}" -DCONSUMER_HAS_TORCH=ON)
  fastact_add_consumer_run(python silent)
endif()

find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_Interpreter_FOUND AND CMAKE_READELF AND CMAKE_NM)
  add_test(NAME package_contents
    COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/cpp_tests/consumers/check_package.py"
      --prefix "${_fastact_prefix}" --readelf "${CMAKE_READELF}" --nm "${CMAKE_NM}"
      --forbid "${PROJECT_SOURCE_DIR}" --forbid "${PROJECT_BINARY_DIR}"
      --forbid "${LibTorch_PREFIX}")
  set_tests_properties(package_contents PROPERTIES FIXTURES_REQUIRED fastact_package)

  # The package reports a mismatch in one sentence.
  foreach(_fastact_name IN ITEMS prefix python)
    set(_fastact_folder "${_fastact_prefix}")
    if(_fastact_name STREQUAL "python")
      set(_fastact_folder "${FASTACT_PACKAGE_DIR}")
    endif()
    add_test(NAME package_other_torch_${_fastact_name}
      COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/cpp_tests/consumers/check_config.py"
        --prefix "${_fastact_folder}" --torch "${LibTorch_PREFIX}" --version "${LibTorch_VERSION}"
        --cmake "${CMAKE_COMMAND}" --generator "${CMAKE_GENERATOR}"
        --make-program "${CMAKE_MAKE_PROGRAM}" --compiler "${CMAKE_CXX_COMPILER}")
    set_tests_properties(package_other_torch_${_fastact_name} PROPERTIES
      FIXTURES_REQUIRED fastact_package TIMEOUT 120)
  endforeach()
endif()

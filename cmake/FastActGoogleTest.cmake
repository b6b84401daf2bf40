# FastAct::gtest: GoogleTest with its main(), from the first of these that exists:
#   1. FASTACT_GTEST_SOURCE, a folder with GoogleTest's sources
#   2. an installed GoogleTest
#   3. the sources that `make setup` put beside the Python packages
#   4. .deps/googletest in the source tree

set(FASTACT_GTEST_SOURCE "" CACHE PATH "A folder with GoogleTest's sources (optional)")

add_library(fastact_gtest INTERFACE)
add_library(FastAct::gtest ALIAS fastact_gtest)

if(NOT FASTACT_GTEST_SOURCE)
  find_package(GTest QUIET)
endif()
if(GTest_FOUND AND TARGET GTest::gtest_main)
  message(STATUS "FastAct: GoogleTest ${GTest_VERSION} (installed)")
  target_link_libraries(fastact_gtest INTERFACE GTest::gtest GTest::gtest_main)
  return()
endif()

# A wheel's data is at the root of the virtual environment, four levels above torch.
get_filename_component(_fastact_venv "${LibTorch_PREFIX}/../../../.." ABSOLUTE)
foreach(_fastact_folder IN ITEMS "${FASTACT_GTEST_SOURCE}" "${FASTACT_GTEST_SOURCE}/googletest"
        "${_fastact_venv}/src/gtest_vendor" "${PROJECT_SOURCE_DIR}/.deps/googletest"
        "${PROJECT_SOURCE_DIR}/.deps/googletest/googletest")
  if(EXISTS "${_fastact_folder}/src/gtest-all.cc")
    message(STATUS "FastAct: GoogleTest from ${_fastact_folder}")
    add_library(fastact_gtest_objects STATIC
      "${_fastact_folder}/src/gtest-all.cc" "${_fastact_folder}/src/gtest_main.cc")
    target_include_directories(fastact_gtest_objects SYSTEM PUBLIC "${_fastact_folder}/include")
    target_include_directories(fastact_gtest_objects PRIVATE "${_fastact_folder}")
    target_link_libraries(fastact_gtest_objects PUBLIC Threads::Threads)
    target_link_libraries(fastact_gtest INTERFACE fastact_gtest_objects)
    return()
  endif()
endforeach()

message(FATAL_ERROR "FastAct: the C++ tests need GoogleTest: install it, or give "
                    "-DFASTACT_GTEST_SOURCE=<its source folder>, or -DFASTACT_BUILD_TESTS=OFF.")

# With FASTACT_SANITIZE: the settings for all tests, and a ctest entry for the Python tests that reach every path of the
# library. Any finding fails the test.

set(FASTACT_SANITIZED_PYTHON_TESTS
  test_autograd.py test_derivative_operators.py test_memory.py test_semantics.py)

# PyTorch is not instrumented, and OpenMP's barriers are invisible to ThreadSanitizer, so data that one of torch's
# threads passes to another looks like a race. torch therefore uses one thread, and the tests start their own threads.
set(FASTACT_SANITIZER_ENVIRONMENT
  "ASAN_OPTIONS=detect_leaks=1:strict_init_order=1:detect_stack_use_after_return=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/cpp_tests/sanitizers/thread.supp")
if(FASTACT_SANITIZE MATCHES "thread")
  list(APPEND FASTACT_SANITIZER_ENVIRONMENT "OMP_NUM_THREADS=1")
endif()

# python is not instrumented either, so the sanitizer's runtime is preloaded, together with the C++ library, whose
# exception functions the runtime looks up when it starts.
function(fastact_add_sanitized_pytest)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(preloaded "")
  if(FASTACT_SANITIZE MATCHES "address")
    list(APPEND preloaded libasan.so)
  elseif(FASTACT_SANITIZE MATCHES "thread")
    list(APPEND preloaded libtsan.so)
  endif()
  list(APPEND preloaded libstdc++.so)
  set(paths "")
  foreach(library IN LISTS preloaded)
    execute_process(COMMAND "${CMAKE_CXX_COMPILER}" "-print-file-name=${library}"
                    OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    if(NOT IS_ABSOLUTE "${path}")
      message(FATAL_ERROR "FastAct: FASTACT_SANITIZE needs a compiler with ${library} (gcc), but "
                          "got ${CMAKE_CXX_COMPILER}.")
    endif()
    list(APPEND paths "${path}")
  endforeach()
  list(JOIN paths ":" paths)

  set(environment ${FASTACT_SANITIZER_ENVIRONMENT})
  # The interpreter frees little at exit, so only the C++ tests look for leaks.
  list(TRANSFORM environment REPLACE "detect_leaks=1" "detect_leaks=0")
  list(TRANSFORM FASTACT_SANITIZED_PYTHON_TESTS PREPEND "${PROJECT_SOURCE_DIR}/python_tests/"
       OUTPUT_VARIABLE files)
  # Reports go to file descriptor 2, which must not be captured.
  add_test(NAME python_tests
    COMMAND "${Python3_EXECUTABLE}" -m pytest -q -n auto --capture=sys -p no:cacheprovider ${files}
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(python_tests PROPERTIES TIMEOUT 1200 RUN_SERIAL ON
    ENVIRONMENT "${environment};FASTACT_LIBRARY=$<TARGET_FILE:fastact>;LD_PRELOAD=${paths}")
endfunction()

# Writes <build>/cpp_tests/page_calls.inc: the C++ calls on the pages of docs/reference/operators/, one block each, for
# cpp_tests/registration/api_test.cpp. An in-place call must give the result of the functional one.

function(_fastact_generate_page_calls)
  set(calls "")
  foreach(name IN LISTS FASTACT_ACTIVATION_NAMES ITEMS prelu)
    set(page "${PROJECT_SOURCE_DIR}/docs/reference/operators/${name}.md")
    if(NOT EXISTS "${page}")  # an activation that is being added
      continue()
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${page}")
    file(READ "${page}" text)
    string(REGEX MATCH "```cpp\n([^`]*)```" block "${text}")
    if(NOT block)
      message(FATAL_ERROR "${page}: expected a block of C++, but got none: make report")
    endif()
    string(REGEX REPLACE "#include [^\n]*\n" "" block "${CMAKE_MATCH_1}")
    string(APPEND calls "{\nSCOPED_TRACE(\"${name}\");\nat::Tensor x = page_input();\n${block}"
                        "expect_called(x, y, \"${name}\");\n}\n")
  endforeach()
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/cpp_tests/page_calls.inc" CONTENT "${calls}" @ONLY)
endfunction()

_fastact_generate_page_calls()

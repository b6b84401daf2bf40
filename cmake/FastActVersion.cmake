# FASTACT_GIT_REVISION: the revision in fastact::build_info(), or "unknown" outside git.

set(FASTACT_GIT_REVISION "unknown")
find_package(Git QUIET)
if(Git_FOUND AND EXISTS "${PROJECT_SOURCE_DIR}/.git")
  execute_process(
    COMMAND "${GIT_EXECUTABLE}" -C "${PROJECT_SOURCE_DIR}" rev-parse --short=12 HEAD
    OUTPUT_VARIABLE _fastact_revision OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE _fastact_status ERROR_QUIET)
  if(_fastact_status EQUAL 0)
    set(FASTACT_GIT_REVISION "${_fastact_revision}")
    # Configures again after another commit is checked out.
    foreach(_fastact_file IN ITEMS HEAD logs/HEAD)
      if(EXISTS "${PROJECT_SOURCE_DIR}/.git/${_fastact_file}")
        set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY
          CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/.git/${_fastact_file}")
      endif()
    endforeach()
  endif()
endif()

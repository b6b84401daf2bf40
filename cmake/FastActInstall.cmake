# cmake --install: lib/libfastact.so, lib/libfastact_aten.so, include/fastact/ and lib/cmake/FastAct/.

include(CMakePackageConfigHelpers)

set(_fastact_config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/FastAct")

# The process that loads the library (Python, or the C++ application) already contains the torch libraries, so the
# installed library has no search path.
set_target_properties(fastact PROPERTIES INSTALL_RPATH "" INSTALL_RPATH_USE_LINK_PATH OFF)

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/FastActConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/cmake/FastActConfig.cmake"
  INSTALL_DESTINATION "${_fastact_config_dir}"
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/cmake/FastActConfigVersion.cmake"
  VERSION "${PROJECT_VERSION}" COMPATIBILITY SameMinorVersion)

install(TARGETS fastact fastact_aten LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT fastact)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/registration/include/fastact"
                  "${PROJECT_BINARY_DIR}/include/fastact"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT fastact
        FILES_MATCHING PATTERN "*.h")
install(FILES "${PROJECT_BINARY_DIR}/cmake/FastActConfig.cmake"
              "${PROJECT_BINARY_DIR}/cmake/FastActConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake"
        DESTINATION "${_fastact_config_dir}" COMPONENT fastact)

# Finds LibTorch by importing its shared libraries directly.
#
# Torch's own TorchConfig.cmake requires a whole CUDA toolkit if torch was built with CUDA, even if the consumer only
# compiles C++. This module needs only the headers and the libraries.
#
# Search order:
#   1. a torch that the project has already found by find_package(Torch)
#   2. LibTorch_ROOT, Torch_ROOT, Torch_DIR (CMake variables, then environment variables)
#   3. CMAKE_PREFIX_PATH: a LibTorch folder, or the value of torch.utils.cmake_prefix_path
#   4. the torch package of Python3_EXECUTABLE, or else of the python3 on PATH
#
# Result:
#   LibTorch_FOUND, LibTorch_PREFIX
#   LibTorch_VERSION        2.15.0
#   LibTorch_CUDA_VERSION   13.2, or empty for a CPU-only torch
#   LibTorch::LibTorch      torch_cpu, c10 and their headers
#   LibTorch::CUDA          torch_cuda and c10_cuda; only if torch has them. The caller adds the headers
#                           of the CUDA toolkit.

include(FindPackageHandleStandardArgs)

# Sets `out` to the LibTorch folder at `start` or a few levels above it, or to "".
function(_libtorch_prefix_from start out)
  set(${out} "" PARENT_SCOPE)
  foreach(up IN ITEMS "." ".." "../.." "../../..")
    get_filename_component(candidate "${start}/${up}" ABSOLUTE)
    if(EXISTS "${candidate}/include/ATen/ATen.h" AND EXISTS "${candidate}/lib/libtorch_cpu.so")
      set(${out} "${candidate}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# Sets `out` to the folder of the torch package that `python` would import, without importing it. If there is none,
# tries again without PYTHONPATH, by which pip isolates a build from its environment.
function(_libtorch_prefix_from_python python out)
  set(${out} "" PARENT_SCOPE)
  set(script "import importlib.util as u; print(list(u.find_spec('torch').submodule_search_locations)[0])")
  foreach(options IN ITEMS "-c" "-Ec")
    execute_process(
      COMMAND "${python}" ${options} "${script}"
      OUTPUT_VARIABLE location OUTPUT_STRIP_TRAILING_WHITESPACE
      RESULT_VARIABLE status ERROR_QUIET)
    if(status EQUAL 0)
      set(${out} "${location}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

set(_libtorch_prefix "")
set(_libtorch_starts "")
if(TARGET torch_cpu)
  get_target_property(_libtorch_location torch_cpu LOCATION)
  if(_libtorch_location)
    get_filename_component(_libtorch_location "${_libtorch_location}" DIRECTORY)
    list(APPEND _libtorch_starts "${_libtorch_location}")
  endif()
endif()
foreach(_libtorch_name IN ITEMS LibTorch_ROOT Torch_ROOT Torch_DIR)
  if(${_libtorch_name})
    list(APPEND _libtorch_starts "${${_libtorch_name}}")
  endif()
  if(DEFINED ENV{${_libtorch_name}})
    list(APPEND _libtorch_starts "$ENV{${_libtorch_name}}")
  endif()
endforeach()
list(APPEND _libtorch_starts ${CMAKE_PREFIX_PATH})
if(DEFINED ENV{CMAKE_PREFIX_PATH})
  string(REPLACE ":" ";" _libtorch_env_paths "$ENV{CMAKE_PREFIX_PATH}")
  list(APPEND _libtorch_starts ${_libtorch_env_paths})
endif()
foreach(_libtorch_start IN LISTS _libtorch_starts)
  _libtorch_prefix_from("${_libtorch_start}" _libtorch_prefix)
  if(_libtorch_prefix)
    break()
  endif()
endforeach()

if(NOT _libtorch_prefix)
  set(_libtorch_python "${Python3_EXECUTABLE}")
  if(NOT _libtorch_python)
    find_program(LibTorch_PYTHON NAMES python3 python DOC "The Python whose torch package is used")
    mark_as_advanced(LibTorch_PYTHON)
    set(_libtorch_python "${LibTorch_PYTHON}")
  endif()
  if(_libtorch_python)
    _libtorch_prefix_from_python("${_libtorch_python}" _libtorch_start)
    if(_libtorch_start)
      _libtorch_prefix_from("${_libtorch_start}" _libtorch_prefix)
    endif()
  endif()
endif()

set(LibTorch_PREFIX "${_libtorch_prefix}")
set(LibTorch_VERSION "")
set(LibTorch_CUDA_VERSION "")

if(LibTorch_PREFIX)
  # A wheel contains version.py, a plain archive build-version. Both contain a version such as 2.15.0+cu132.
  set(_libtorch_text "")
  if(EXISTS "${LibTorch_PREFIX}/version.py")
    file(READ "${LibTorch_PREFIX}/version.py" _libtorch_text)
    if(_libtorch_text MATCHES "cuda: [^\n]*= '([0-9]+\\.[0-9]+)'")
      set(LibTorch_CUDA_VERSION "${CMAKE_MATCH_1}")
    endif()
  elseif(EXISTS "${LibTorch_PREFIX}/build-version")
    file(READ "${LibTorch_PREFIX}/build-version" _libtorch_text)
    if(_libtorch_text MATCHES "\\+cu([0-9][0-9])([0-9]+)")
      set(LibTorch_CUDA_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
    endif()
  endif()
  if(_libtorch_text MATCHES "([0-9]+\\.[0-9]+\\.[0-9]+)")
    set(LibTorch_VERSION "${CMAKE_MATCH_1}")
  endif()

  # Global, because with FetchContent, FastAct::fastact is linked outside the folder that finds LibTorch.
  if(NOT TARGET LibTorch::LibTorch)
    foreach(_libtorch_name IN ITEMS torch_cpu c10 torch_cuda c10_cuda)
      set(_libtorch_library "${LibTorch_PREFIX}/lib/lib${_libtorch_name}.so")
      if(EXISTS "${_libtorch_library}")
        add_library(LibTorch::${_libtorch_name} SHARED IMPORTED GLOBAL)
        set_target_properties(LibTorch::${_libtorch_name} PROPERTIES
          IMPORTED_LOCATION "${_libtorch_library}"
          IMPORTED_SONAME "lib${_libtorch_name}.so")
      endif()
    endforeach()

    add_library(LibTorch::LibTorch INTERFACE IMPORTED GLOBAL)
    target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
      "${LibTorch_PREFIX}/include" "${LibTorch_PREFIX}/include/torch/csrc/api/include")
    # All libraries stay in the link, even with a linker that drops libraries without used symbols. torch_cuda registers
    # ATen's kernels when it is loaded. A library without a search path, such as FastAct's, finds torch's libraries
    # through the executable.
    set(_libtorch_keep "-Wl,--push-state,--no-as-needed")
    target_link_libraries(LibTorch::LibTorch INTERFACE
      LibTorch::torch_cpu LibTorch::c10
      "${_libtorch_keep},\"${LibTorch_PREFIX}/lib/libtorch_cpu.so\",\"${LibTorch_PREFIX}/lib/libc10.so\",--pop-state")
    target_compile_features(LibTorch::LibTorch INTERFACE cxx_std_20)

    if(TARGET LibTorch::torch_cuda AND TARGET LibTorch::c10_cuda)
      add_library(LibTorch::CUDA INTERFACE IMPORTED GLOBAL)
      target_link_libraries(LibTorch::CUDA INTERFACE
        LibTorch::LibTorch LibTorch::torch_cuda LibTorch::c10_cuda
        "${_libtorch_keep},\"${LibTorch_PREFIX}/lib/libtorch_cuda.so\",\"${LibTorch_PREFIX}/lib/libc10_cuda.so\",--pop-state")
    endif()
  endif()
endif()

find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_PREFIX LibTorch_VERSION
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE
    "no torch was found: give -DPython3_EXECUTABLE=<a python that has torch> or -DLibTorch_ROOT=<LibTorch folder>")

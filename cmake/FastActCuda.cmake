# Decides whether the build has CUDA, and with which nvcc. Sets FASTACT_CUDA (ON or OFF) and, when
# ON, enables the CUDA language and CUDA::cudart_static. Always says in a line what was decided.

# Sets `out` to an nvcc, or to "". A toolkit from PyPI lies beside torch in site-packages and is
# preferred over PATH, because the package manager chose it to match torch.
function(_fastact_find_nvcc out)
  if(CMAKE_CUDA_COMPILER)
    set(${out} "${CMAKE_CUDA_COMPILER}" PARENT_SCOPE)
    return()
  endif()
  if(DEFINED ENV{CUDACXX} AND NOT "$ENV{CUDACXX}" STREQUAL "")
    set(${out} "$ENV{CUDACXX}" PARENT_SCOPE)
    return()
  endif()
  file(GLOB wheels "${LibTorch_PREFIX}/../nvidia/cu*/bin/nvcc")
  if(wheels)
    list(GET wheels 0 nvcc)
    get_filename_component(nvcc "${nvcc}" ABSOLUTE)
    set(${out} "${nvcc}" PARENT_SCOPE)
    return()
  endif()
  find_program(nvcc NAMES nvcc HINTS ENV PATH PATHS /usr/local/cuda/bin NO_CACHE NO_CMAKE_PATH)
  if(nvcc)
    set(${out} "${nvcc}" PARENT_SCOPE)
  else()
    set(${out} "" PARENT_SCOPE)
  endif()
endfunction()

# Sets `out` to "" when `nvcc` compiles an empty file with the host compiler, else to the reason why
# not. Asked before enable_language(CUDA), whose failure would end the configuration.
function(_fastact_try_nvcc nvcc out)
  set(folder "${PROJECT_BINARY_DIR}/CMakeFiles/fastact_nvcc")
  file(WRITE "${folder}/empty.cu" "__global__ void empty() {}\n")
  set(host "")
  if(CMAKE_CUDA_HOST_COMPILER)
    set(host -ccbin "${CMAKE_CUDA_HOST_COMPILER}")
  endif()
  execute_process(
    COMMAND "${nvcc}" -std=c++20 ${host} -c "${folder}/empty.cu" -o "${folder}/empty.o"
    RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(status EQUAL 0)
    set(${out} "" PARENT_SCOPE)
  else()
    string(STRIP "${text} (${status})" text)
    string(REGEX REPLACE "\n.*" "" text "${text}")
    set(${out} "${text}" PARENT_SCOPE)
  endif()
endfunction()

# Sets `out` to the default architectures, as far as `nvcc` offers them: machine code for each
# generation in use and, for GPUs to come, PTX of the newest.
function(_fastact_default_architectures nvcc out)
  execute_process(COMMAND "${nvcc}" --list-gpu-arch OUTPUT_VARIABLE listed ERROR_QUIET)
  set(chosen "")
  foreach(arch IN ITEMS 80 90 100 120)
    if(listed MATCHES "compute_${arch}([^0-9]|$)")
      list(APPEND chosen "${arch}")
    endif()
  endforeach()
  if(NOT chosen)
    set(${out} "native" PARENT_SCOPE)
    return()
  endif()
  list(GET chosen -1 newest)
  list(TRANSFORM chosen APPEND "-real")
  set(${out} "${chosen};${newest}-virtual" PARENT_SCOPE)
endfunction()

# Sets FASTACT_CUDA_REASON to why CUDA is not used, or to "" after setting FASTACT_NVCC.
function(_fastact_probe_cuda)
  set(reason "")
  if(NOT FASTACT_WITH_CUDA)
    set(reason "FASTACT_WITH_CUDA is off")
  elseif(NOT TARGET LibTorch::CUDA)
    set(reason "torch ${LibTorch_VERSION} is CPU-only")
  else()
    _fastact_find_nvcc(nvcc)
    if(NOT nvcc)
      set(reason "no nvcc was found (looked at CMAKE_CUDA_COMPILER, CUDACXX, the CUDA wheels beside torch, PATH and /usr/local/cuda)")
    else()
      execute_process(COMMAND "${nvcc}" --version RESULT_VARIABLE status OUTPUT_VARIABLE text
                      ERROR_QUIET)
      if(NOT status EQUAL 0 OR NOT text MATCHES "release ([0-9]+)\\.([0-9]+)")
        set(reason "${nvcc} does not run")
      else()
        set(major "${CMAKE_MATCH_1}")
        set(version "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
        string(REGEX MATCH "^[0-9]+" torch_major "${LibTorch_CUDA_VERSION}")
        if(torch_major AND NOT torch_major STREQUAL major)
          set(reason "${nvcc} is CUDA ${version}, but torch is built for CUDA ${LibTorch_CUDA_VERSION}")
        else()
          if(torch_major AND NOT version STREQUAL LibTorch_CUDA_VERSION)
            message(STATUS "FastAct: nvcc is CUDA ${version} and torch is built for CUDA "
                           "${LibTorch_CUDA_VERSION}; the major version is the same, going on")
          endif()
          _fastact_try_nvcc("${nvcc}" failure)
          if(failure)
            set(reason "${nvcc} cannot compile: ${failure}")
          endif()
        endif()
      endif()
    endif()
  endif()
  set(FASTACT_CUDA_REASON "${reason}" PARENT_SCOPE)
  set(FASTACT_NVCC "${nvcc}" PARENT_SCOPE)
endfunction()

if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
  # One host compiler for the whole library.
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}" CACHE FILEPATH "Host compiler of nvcc")
endif()

# A yes is kept, so that configuring again does not compile the probe again; a no is asked again,
# because the reason may be gone.
if(FASTACT_CUDA_REASON OR NOT DEFINED FASTACT_CUDA_PROBED OR NOT FASTACT_CUDA_PROBED STREQUAL
   "${FASTACT_WITH_CUDA}|${LibTorch_PREFIX}|${CMAKE_CUDA_COMPILER}|$ENV{CUDACXX}")
  _fastact_probe_cuda()
  if(NOT FASTACT_CUDA_REASON)
    set(CMAKE_CUDA_COMPILER "${FASTACT_NVCC}" CACHE FILEPATH "nvcc")
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      _fastact_default_architectures("${FASTACT_NVCC}" _fastact_architectures)
      set(CMAKE_CUDA_ARCHITECTURES "${_fastact_architectures}" CACHE STRING
          "GPU architectures to compile for")
    endif()
  endif()
  set(FASTACT_CUDA_REASON "${FASTACT_CUDA_REASON}" CACHE INTERNAL "Why CUDA is not used")
  set(FASTACT_CUDA_PROBED
      "${FASTACT_WITH_CUDA}|${LibTorch_PREFIX}|${CMAKE_CUDA_COMPILER}|$ENV{CUDACXX}"
      CACHE INTERNAL "What FASTACT_CUDA_REASON was found for")
endif()

if(NOT FASTACT_CUDA_REASON)
  set(FASTACT_CUDA ON)
  if(NOT CMAKE_CUDA_STANDARD)
    set(CMAKE_CUDA_STANDARD 20)
  endif()
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  # torch brings its own shared libcudart; a static one of ours needs nothing to be found at load.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  # The toolkit's headers, for C++ files that include c10/cuda. nvcc names folders that a toolkit
  # from PyPI need not have.
  foreach(_fastact_folder IN LISTS CUDAToolkit_INCLUDE_DIRS)
    if(IS_DIRECTORY "${_fastact_folder}")
      target_include_directories(LibTorch::CUDA SYSTEM INTERFACE "${_fastact_folder}")
    endif()
  endforeach()
  message(STATUS "FastAct: CUDA ${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER}), "
                 "architectures ${CMAKE_CUDA_ARCHITECTURES}")
elseif(FASTACT_WITH_CUDA AND NOT FASTACT_WITH_CUDA STREQUAL "AUTO")
  message(FATAL_ERROR "FastAct: FASTACT_WITH_CUDA=${FASTACT_WITH_CUDA}, but ${FASTACT_CUDA_REASON}.")
else()
  set(FASTACT_CUDA OFF)
  message(STATUS "FastAct: building for the CPU only: ${FASTACT_CUDA_REASON}")
endif()

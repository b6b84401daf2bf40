# The interface target fastact_options: what every source file of the library is compiled with.

add_library(fastact_options INTERFACE)
target_compile_features(fastact_options INTERFACE cxx_std_20)

set(_fastact_warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-align
    -Wunused -Wduplicated-cond -Wlogical-op)
# What nvcc's host pass compiles is partly nvcc's own text, hence the shorter list.
set(_fastact_cuda_host -Wall,-Wextra)
set(_fastact_cuda_device "")

set(_fastact_flags -fvisibility=hidden -fvisibility-inlines-hidden)

# Formulas are proven for IEEE arithmetic as written: a contracted a * b + c is another rounding.
# The other two let compilers vectorise and change no result.
if(FASTACT_FAST_MATH)
  message(STATUS "FastAct: FASTACT_FAST_MATH is on, results are no longer the documented ones")
else()
  list(APPEND _fastact_flags -ffp-contract=off -fno-math-errno -fno-trapping-math)
  list(APPEND _fastact_cuda_device --fmad=false)
endif()

# A fifth of the size, where nvcc knows the option: GELU's device code for one GPU takes 0.3 instead
# of 1.5 MB.
if(FASTACT_CUDA)
  include(CheckCompilerFlag)
  check_compiler_flag(CUDA --compress-mode=size FASTACT_HAS_COMPRESS_MODE)
  if(FASTACT_HAS_COMPRESS_MODE)
    list(APPEND _fastact_cuda_device --compress-mode=size)
  endif()
endif()

if(FASTACT_WERROR)
  # The last four follow the flow of inlined code, torch's and the standard headers included, and guess.
  list(APPEND _fastact_warnings -Werror -Wno-error=maybe-uninitialized -Wno-error=array-bounds
       -Wno-error=stringop-overflow -Wno-error=restrict)
  string(APPEND _fastact_cuda_host ",-Werror")
  list(APPEND _fastact_cuda_device --Werror=all-warnings)
endif()

# Error messages name source files: as a reader knows them, not as they lay on the build machine.
list(APPEND _fastact_flags
  "-ffile-prefix-map=${PROJECT_BINARY_DIR}/="
  "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")
if(FASTACT_WITH_TORCH)
  list(APPEND _fastact_flags "-ffile-prefix-map=${LibTorch_PREFIX}/=torch/")
endif()

string(REPLACE ";" "," _fastact_cuda_flags "${_fastact_flags}")
target_compile_options(fastact_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${_fastact_warnings};${_fastact_flags}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:${_fastact_cuda_device};-Xcompiler=${_fastact_cuda_host},${_fastact_cuda_flags}>")
target_link_options(fastact_options INTERFACE "LINKER:-z,defs")

if(FASTACT_SANITIZE)
  list(JOIN FASTACT_SANITIZE "," _fastact_sanitizers)
  # Findings name lines, for which -g1 is enough; with -O1 that takes half of -O2 -g's time. The
  # kernels keep their -O3.
  set(_fastact_sanitizer_flags -fsanitize=${_fastact_sanitizers} -fno-omit-frame-pointer
      -fno-sanitize-recover=all -O1 -g1)
  target_compile_options(fastact_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:${_fastact_sanitizer_flags}>")
  target_link_options(fastact_options INTERFACE ${_fastact_sanitizer_flags})
endif()

# For the libraries that are shipped: what they export keeps its name, their own functions need none (of 31.5 MB with
# code for an H100 these names are 7.4 MB).
set(FASTACT_STRIP "")
if(NOT FASTACT_SANITIZE)
  set(FASTACT_STRIP "$<$<CONFIG:Release,MinSizeRel>:LINKER:--strip-all>")
endif()

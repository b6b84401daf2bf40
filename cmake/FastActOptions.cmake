# The interface target fastact_options: options for every source file of the library.

add_library(fastact_options INTERFACE)
target_compile_features(fastact_options INTERFACE cxx_std_20)

set(_fastact_warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-align
    -Wunused -Wduplicated-cond -Wlogical-op)
# nvcc's host pass compiles text that nvcc itself generates, so its list is shorter.
set(_fastact_cuda_host -Wall,-Wextra)
set(_fastact_cuda_device "")

set(_fastact_flags -fvisibility=hidden -fvisibility-inlines-hidden)

# Formulas are proven for IEEE arithmetic as written. A contracted a * b + c would round differently. The other two
# options allow vectorisation and change no result.
if(FASTACT_FAST_MATH)
  message(STATUS "FastAct: FASTACT_FAST_MATH is on, results are no longer the documented ones")
else()
  list(APPEND _fastact_flags -ffp-contract=off -fno-math-errno -fno-trapping-math)
  list(APPEND _fastact_cuda_device --fmad=false)
endif()

# If nvcc supports this option, it reduces device code to a fifth: GELU's code for one GPU takes 0.3 instead of 1.5 MB.
if(FASTACT_CUDA)
  include(CheckCompilerFlag)
  check_compiler_flag(CUDA --compress-mode=size FASTACT_HAS_COMPRESS_MODE)
  if(FASTACT_HAS_COMPRESS_MODE)
    list(APPEND _fastact_cuda_device --compress-mode=size)
  endif()
endif()

if(FASTACT_WERROR)
  # The last four warnings follow inlined code, including headers of torch and the standard library, and give false
  # positives.
  list(APPEND _fastact_warnings -Werror -Wno-error=maybe-uninitialized -Wno-error=array-bounds
       -Wno-error=stringop-overflow -Wno-error=restrict)
  string(APPEND _fastact_cuda_host ",-Werror")
  list(APPEND _fastact_cuda_device --Werror=all-warnings)
endif()

# Error messages contain the paths of source files as in the repository, not as on the build machine.
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
  # Reports contain line numbers, for which -g1 is enough. With -O1 the build takes half as long as with -O2 -g.
  set(_fastact_sanitizer_flags -fsanitize=${_fastact_sanitizers} -fno-omit-frame-pointer
      -fno-sanitize-recover=all -O1 -g1)
  target_compile_options(fastact_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:${_fastact_sanitizer_flags}>")
  target_link_options(fastact_options INTERFACE ${_fastact_sanitizer_flags})
endif()

# Further options for files that include torch's headers, linked after fastact_options. With a sanitizer, compiling the
# inlined functions of these headers takes most of the time: a group of registration/ takes 86 s with -O1, 56 s with
# -O0, and 41 s if GCC inserts no checks of pointers either (AMD EPYC, Zen 3). These files read no elements of tensors,
# and null pointers crash without a check, too.
add_library(fastact_torch_options INTERFACE)
if(FASTACT_SANITIZE)
  target_compile_options(fastact_torch_options INTERFACE -O0 -fno-sanitize=alignment,null)
endif()

# Strips the shipped libraries. Exported functions keep their names; internal functions need none. Of 31.5 MB with code
# for an H100, these names take 7.4 MB.
set(FASTACT_STRIP "")
if(NOT FASTACT_SANITIZE)
  set(FASTACT_STRIP "$<$<CONFIG:Release,MinSizeRel>:LINKER:--strip-all>")
endif()

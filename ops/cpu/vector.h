// What the loops ask of an instruction set by its own names, in one file for each. All of them
// have:
//
//   kHalves             as many Float16 as are converted at a time
//   widen_halves()      to float; `to` is aligned to 64 bytes
//   narrow_halves()     and back, rounded to nearest even; of NaNs it is given the one NaN alone
//   stream()            writes a block around the caches; `to` is aligned to a cache line
//   finish_stream()     makes these stores visible in order with what the thread stores next
//
// And with FASTACT_HAS_SEGMENT_VECTORS, for float in segments (segments.h):
//
//   kFloats             as many as are computed at a time
//   kIndexUnit          what find_segments() wants segments' numbers to be multiplied by
//   find_segments()     the centers of so many, then each of their coefficients
//   permute_segments()  the same without an address that depends on a number, for these numbers
//                       themselves; not on Arm
//   store()             so many results; `from` is aligned to a cache line
#pragma once

#if defined(__AVX512F__)
#include "ops/cpu/vector_avx512.h"
#elif defined(__AVX2__) && defined(__F16C__)
#include "ops/cpu/vector_avx2.h"
#elif defined(__aarch64__)
#include "ops/cpu/vector_neon.h"
#else
#include "ops/cpu/vector_baseline.h"
#define FASTACT_HAS_SEGMENT_VECTORS 0
#endif

#ifndef FASTACT_HAS_SEGMENT_VECTORS
#define FASTACT_HAS_SEGMENT_VECTORS 1
#endif

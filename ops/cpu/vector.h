// The vector operations that the loops need from an instruction set. Each instruction set has a
// file of its own, which defines:
//
//   kHalves             number of Float16 elements converted at a time
//   widen_halves()      converts to float; `to` is aligned to 64 bytes
//   narrow_halves()     converts back, rounded to nearest even; the only NaN in its input is the
//                       canonical one
//   stream()            writes a block with non-temporal stores; `to` is aligned to a cache line
//   finish_stream()     orders these stores before the later stores of the thread
//
// With FASTACT_HAS_SEGMENT_VECTORS, for float forms with a segment table (segments.h), it also
// defines:
//
//   kFloats               number of elements computed at a time
//   find_segments()       writes columns: the centers of the elements' segments, then each
//                         coefficient
//   kIndexUnit            find_segments() takes indices of segments multiplied by this
//   kNearSegments         number of segments that find_near_segments() knows, the first ones
//   find_near_segments()  the same for these, faster; takes unscaled indices and ignores all bits
//                         above those of a segment
//   permute_segments()    find_segments() for unscaled indices and up to 32 segments, without
//                         data-dependent addresses
//   kMaxRecomputed        the largest number of elements outside these segments that mixed_block()
//                         in packed.h computes again; 0 if there is no mixed_block()
//   lanes_beyond()        returns the mask of these elements; only if kMaxRecomputed is positive
//   store()               stores kFloats results; `from` is aligned to a cache line
#pragma once

// PyTorch's macro for vectors of AVX2, to which a processor with AVX-512 may be held.
#if defined(__AVX512F__) && !defined(CPU_CAPABILITY_AVX2)
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

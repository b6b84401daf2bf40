// What each target has a way of its own for: operations that C++ has no word for, and choices
// between two ways to the same bits (docs/tuning.md). This is the one place that asks
// which target is compiled. cuda.h and cpu.h both define what is declared here.
//
// nvcc compiles a .cu file twice: its kernels with cuda.h, its host code with cpu.h.
#pragma once

#include <cstdint>

#include "ops/math/segment_table.h"

#if defined(__CUDACC__)
#define FASTACT_INLINE __host__ __device__ __forceinline__
#else
#define FASTACT_INLINE inline __attribute__((always_inline))
#endif

// Each translation unit compiles the formulas for one target, and names it. The name keeps the
// linker from merging, say, an AVX-512 copy of an inline function into the baseline's code.
#ifndef FASTACT_TARGET
#define FASTACT_TARGET portable
#endif

namespace fastact::inline FASTACT_TARGET {

// ---- Operations

FASTACT_INLINE uint32_t to_bits(float x);
FASTACT_INLINE uint64_t to_bits(double x);
FASTACT_INLINE float from_bits(uint32_t bits);
FASTACT_INLINE double from_bits(uint64_t bits);

// a*b + c, rounded once.
FASTACT_INLINE float fma(float a, float b, float c);
FASTACT_INLINE double fma(double a, double b, double c);

// |x|, NaN's too.
FASTACT_INLINE float magnitude(float x);
FASTACT_INLINE double magnitude(double x);

FASTACT_INLINE float square_root(float x);
FASTACT_INLINE double square_root(double x);

// |size| with the sign of x.
FASTACT_INLINE float with_sign_of(float size, float x);
FASTACT_INLINE double with_sign_of(double size, double x);

// Whether x or y is a NaN, in one comparison.
template <class T>
FASTACT_INLINE bool unordered(T x, T y);

// e^x in base 2 and 1 / x by a GPU's approximate instructions. No kernel of a CPU calls them.
FASTACT_INLINE float approximate_exp2(float x);
FASTACT_INLINE float approximate_reciprocal(float x);

// ---- Minima and maxima

// max(x, low) for a constant low, in float other than 0; a NaN stays NaN.
template <class T>
FASTACT_INLINE T clamp_below(T x, T low);

// max(x, low) and min(x, high) for any bounds: where they are equal, as zeros of either sign are,
// or one is a NaN, it is x.
template <class T>
FASTACT_INLINE T at_least(T x, T low);
template <class T>
FASTACT_INLINE T at_most(T x, T high);

// clamp_below() for x <= 0 and an integer low < 0 of few digits; anything for another x. It may be
// beyond the bound by up to 2^-20 of it.
FASTACT_INLINE double clamp_negative_roughly(double x, double low);

// min(x, high); a NaN stays NaN.
FASTACT_INLINE float clamp_above(float x, float high);

// min(|x|, high); a NaN stays NaN.
template <class T>
FASTACT_INLINE T clamp_magnitude(T x, T high);

// min(|x|, high) for a constant high > 0, which it is for a NaN, too.
FASTACT_INLINE float clamp_ordered_magnitude(float x, float high);

// The same; anything for a NaN.
FASTACT_INLINE float clamp_magnitude_of_number(float x, float high);

// min(x, 1) for x >= 0; a number from 0 to 1 for a NaN.
FASTACT_INLINE float saturated(float x);

// max(x, -0.0): x where it is positive, else -0.0; for a NaN itself or -0.0.
FASTACT_INLINE float positive_part(float x);

// x where it is positive, else a zero of either sign; for a NaN itself or a zero.
FASTACT_INLINE float positive_or_zero(float x);

// 1 for an x of sign +, else 0; `opposite` is the sign's bit of -x alone. Each target takes the one
// of which it makes less.
FASTACT_INLINE float step_of_sign(float x, uint32_t opposite);

// ---- Choices

// Of a number and what it was clamped to, the one to compare with a bound that is below the clamp.
FASTACT_INLINE float to_compare(float x, float clamped);

// |x| for a function of it that is the same from `end` on: at most `end`, or all of it.
FASTACT_INLINE float unbounded_size(float x, float end);

// Whether to multiply a polynomial's coefficients by a factor, or else its value.
consteval bool factor_goes_into_coefficients();

// Whether to select by a condition, or else to make bits of it and combine them.
consteval bool prefers_selections();

// Whether float32's operations make FastAct's one NaN, whatever NaN they take.
consteval bool makes_canonical_nans();

// ---- Tables

// The segment of this index: from shared memory on a GPU, else from the table.
template <const auto& kTable>
FASTACT_INLINE Segment find_segment(uint32_t index);

}  // namespace fastact::inline FASTACT_TARGET

#if defined(__CUDACC__)
#include "ops/math/target/cuda_segments.h"
#endif

#if defined(__CUDA_ARCH__)
#include "ops/math/target/cuda.h"
#else
#include "ops/math/target/cpu.h"
#endif

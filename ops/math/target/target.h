// Operations and choices that each target implements in its own way: operations that C++ cannot
// express, and choices between two ways to the same bits (docs/dev/tuning.md). This is the only
// file that tests which target is compiled. cuda.h and cpu.h each define the functions declared
// here.
//
// nvcc compiles a .cu file twice: the kernels with cuda.h, the host code with cpu.h.
#pragma once

#include <cstdint>

#include "ops/math/segment_table.h"

#if defined(__CUDACC__)
#define FASTACT_INLINE __host__ __device__ __forceinline__
#else
#define FASTACT_INLINE inline __attribute__((always_inline))
#endif

// Each translation unit compiles the formulas for one target and defines the target's name. The
// name keeps the linker from merging, for example, an AVX-512 copy of an inline function into the
// baseline's code.
#ifndef FASTACT_TARGET
#define FASTACT_TARGET portable
#endif

namespace fastact::inline FASTACT_TARGET {

// ---- Operations

FASTACT_INLINE uint32_t to_bits(float x);
FASTACT_INLINE uint64_t to_bits(double x);
FASTACT_INLINE float from_bits(uint32_t bits);
FASTACT_INLINE double from_bits(uint64_t bits);

// Returns a*b + c, rounded once.
FASTACT_INLINE float fma(float a, float b, float c);
FASTACT_INLINE double fma(double a, double b, double c);

// Returns |x|, also for NaN.
FASTACT_INLINE float magnitude(float x);
FASTACT_INLINE double magnitude(double x);

// Returns the larger number, or y if x is NaN. The sign of a zero is unspecified.
template <class T>
FASTACT_INLINE T larger(T x, T y);

FASTACT_INLINE float square_root(float x);
FASTACT_INLINE double square_root(double x);

// Returns |size| with the sign of x.
FASTACT_INLINE float with_sign_of(float size, float x);
FASTACT_INLINE double with_sign_of(double size, double x);

// Returns true if x or y is NaN, with one comparison.
template <class T>
FASTACT_INLINE bool unordered(T x, T y);

// Return 2^x and 1 / x by a GPU's approximate instructions. No CPU kernel calls them.
FASTACT_INLINE float approximate_exp2(float x);
FASTACT_INLINE float approximate_reciprocal(float x);

// ---- Minima and maxima

// Returns max(x, low) for a constant low, which in float must not be 0. A NaN stays NaN.
template <class T>
FASTACT_INLINE T clamp_below(T x, T low);

// Return max(x, low) and min(x, high) for any bounds. If both are equal (such as zeros of either
// sign), or one is NaN, the result is x.
template <class T>
FASTACT_INLINE T at_least(T x, T low);
template <class T>
FASTACT_INLINE T at_most(T x, T high);

// clamp_below() for x <= 0 and an integer low < 0 with few digits. The result for another x is
// unspecified. The result may exceed the bound by a relative 2^-20.
FASTACT_INLINE double clamp_negative_roughly(double x, double low);

// Returns min(x, high). A NaN stays NaN.
FASTACT_INLINE float clamp_above(float x, float high);

// Returns min(|x|, high). A NaN stays NaN.
template <class T>
FASTACT_INLINE T clamp_magnitude(T x, T high);

// Returns min(|x|, high) for a constant high > 0. The result for NaN is `high`.
FASTACT_INLINE float clamp_ordered_magnitude(float x, float high);

// The same, with an unspecified result for NaN.
FASTACT_INLINE float clamp_magnitude_of_number(float x, float high);

// Returns min(x, 1) for x >= 0. The result for NaN is a number from 0 to 1.
FASTACT_INLINE float saturated(float x);

// Returns max(x, -0.0): x if it is positive, else -0.0. The result for NaN is NaN or -0.0.
FASTACT_INLINE float positive_part(float x);

// Returns x if it is positive, else a zero of either sign. The result for NaN is NaN or a zero.
FASTACT_INLINE float positive_or_zero(float x);

// Returns 1 if the sign of x is +, else 0. `opposite` is the sign bit of -x. Each target uses
// whichever is cheaper.
FASTACT_INLINE float step_of_sign(float x, uint32_t opposite);

// ---- Choices

// Returns x or its clamped value: whichever is cheaper to compare with a bound below the clamp.
FASTACT_INLINE float to_compare(float x, float clamped);

// Returns |x| for a function that is constant from `end` on: at most `end`, or all of |x|.
FASTACT_INLINE float unbounded_size(float x, float end);

// True: multiply a polynomial's coefficients by a factor. False: multiply its value.
consteval bool factor_goes_into_coefficients();

// True: select by a condition. False: make bits of the condition and combine them.
consteval bool prefers_selections();

// True if float32 operations return FastAct's canonical NaN for any NaN operand.
consteval bool makes_canonical_nans();

// ---- Tables

// Returns the segment with this index, from shared memory on a GPU, else from the table.
template <const auto& kTable>
FASTACT_INLINE auto find_segment(uint32_t index);

}  // namespace fastact::inline FASTACT_TARGET

#if defined(__CUDACC__)
#include "ops/math/target/cuda_segments.h"
#endif

#if defined(__CUDA_ARCH__)
#include "ops/math/target/cuda.h"
#else
#include "ops/math/target/cpu.h"
#endif

// The definitions of target.h for CPUs and for the host code of .cu files.
#pragma once

#include "ops/math/target/target.h"

namespace fastact {

// Contains 1, see hidden(). It is a variable, so that no compiler knows its value.
extern const double kHiddenOne;

}  // namespace fastact

namespace fastact::inline FASTACT_TARGET {

FASTACT_INLINE uint32_t to_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
FASTACT_INLINE uint64_t to_bits(double x) { return __builtin_bit_cast(uint64_t, x); }
FASTACT_INLINE float from_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
FASTACT_INLINE double from_bits(uint64_t bits) { return __builtin_bit_cast(double, bits); }

FASTACT_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
FASTACT_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

FASTACT_INLINE float magnitude(float x) { return __builtin_fabsf(x); }
FASTACT_INLINE double magnitude(double x) { return __builtin_fabs(x); }
template <class T>
FASTACT_INLINE T larger(T x, T y) {
  return x > y ? x : y;
}

FASTACT_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
FASTACT_INLINE double square_root(double x) { return __builtin_sqrt(x); }

// GCC 12 compiles this to one AVX-512 instruction, and an expression with masks to two.
FASTACT_INLINE float with_sign_of(float size, float x) { return __builtin_copysignf(size, x); }
FASTACT_INLINE double with_sign_of(double size, double x) { return __builtin_copysign(size, x); }

template <class T>
FASTACT_INLINE bool unordered(T x, T y) {
  return __builtin_isunordered(x, y);
}

FASTACT_INLINE float approximate_exp2(float x) { return __builtin_exp2f(x); }
FASTACT_INLINE float approximate_reciprocal(float x) { return 1.0f / x; }

// Returns a constant that the compiler cannot see. GCC 12 compiles a maximum with a visible
// constant to a comparison and a selection. Sigmoid, float32: 0.71 instead of 0.80 ns an element
// (Emerald Rapids, AVX2).
template <class T>
FASTACT_INLINE T hidden(T constant) {
  return constant * static_cast<T>(kHiddenOne);
}

template <class T>
FASTACT_INLINE T clamp_below(T x, T low) {
  const T bound = hidden(low);
  return x < bound ? bound : x;
}

template <class T>
FASTACT_INLINE T at_least(T x, T low) {
  return clamp_below(x, low);
}
template <class T>
FASTACT_INLINE T at_most(T x, T high) {
  const T bound = hidden(high);
  return x > bound ? bound : x;
}

FASTACT_INLINE double clamp_negative_roughly(double x, double low) { return clamp_below(x, low); }

FASTACT_INLINE float clamp_above(float x, float high) { return at_most(x, high); }

template <class T>
FASTACT_INLINE T clamp_magnitude(T x, T high) {
  const T size = magnitude(x);
  const T bound = hidden(high);
  return size > bound ? bound : size;
}

// Positive floats are ordered by their bits, whose minimum is one instruction. Sigmoid's backward,
// bfloat16: 0.37 ns an element, by comparison 0.42 (Emerald Rapids, AVX2).
FASTACT_INLINE float clamp_ordered_magnitude(float x, float high) {
  const float size = magnitude(x);
  return from_bits(to_bits(size) < to_bits(high) ? to_bits(size) : to_bits(high));
}

FASTACT_INLINE float clamp_magnitude_of_number(float x, float high) {
  return clamp_ordered_magnitude(x, high);
}

FASTACT_INLINE float saturated(float x) {
  const uint32_t bits = to_bits(x);
  return from_bits(bits < to_bits(1.0f) ? bits : to_bits(1.0f));
}

// An integer minimum. With <, GCC 12 emits a selection by the sign. SiLU, float32: 0.74 instead of
// 0.77 ns an element (Emerald Rapids, AVX2).
FASTACT_INLINE float positive_part(float x) {
  return from_bits(to_bits(x) <= 0x80000000u ? to_bits(x) : 0x80000000u);
}

// One instruction; a selection takes two on AVX-512.
FASTACT_INLINE float positive_or_zero(float x) { return positive_part(x); }

// Uses a mask, because integer products are slow on CPUs.
FASTACT_INLINE float step_of_sign(float x, uint32_t /*opposite*/) {
  return from_bits(~static_cast<uint32_t>(static_cast<int32_t>(to_bits(x)) >> 31) & 0x3f800000u);
}

// Using `clamped` makes GCC 12 compute the minimum twice. Sigmoid's backward, bfloat16: 0.18
// instead of 0.20 ns an element (Emerald Rapids, AVX-512).
FASTACT_INLINE float to_compare(float x, float /*clamped*/) { return x; }

FASTACT_INLINE float unbounded_size(float x, float /*end*/) { return magnitude(x); }

// The products are constants and cost nothing.
consteval bool factor_goes_into_coefficients() { return true; }

// ReLU, float16: 0.126 ns an element by bits, 0.147 by selections (Emerald Rapids, AVX2).
consteval bool prefers_selections() { return false; }

// The NaN is one of the operands, or the processor's default NaN.
consteval bool makes_canonical_nans() { return false; }

template <const auto& kTable>
FASTACT_INLINE auto find_segment(uint32_t index) {
  constexpr int kCoefficients = ShapeOf<kTable>::kCoefficients;
  SegmentOf<kCoefficients> segment;
  segment.center = kTable.centers[index];
  for (int k = 0; k < kCoefficients; ++k) segment.coefficients[k] = kTable.coefficients[k][index];
  return segment;
}

}  // namespace fastact::inline FASTACT_TARGET

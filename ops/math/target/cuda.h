// The definitions of target.h for the device code of .cu files.
#pragma once

#include "ops/math/target/target.h"

namespace fastact::inline FASTACT_TARGET {

FASTACT_INLINE uint32_t to_bits(float x) { return __float_as_uint(x); }
FASTACT_INLINE uint64_t to_bits(double x) { return static_cast<uint64_t>(__double_as_longlong(x)); }
FASTACT_INLINE float from_bits(uint32_t bits) { return __uint_as_float(bits); }
FASTACT_INLINE double from_bits(uint64_t bits) {
  return __longlong_as_double(static_cast<long long>(bits));
}

FASTACT_INLINE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
FASTACT_INLINE double fma(double a, double b, double c) { return __fma_rn(a, b, c); }

FASTACT_INLINE float magnitude(float x) { return fabsf(x); }
FASTACT_INLINE double magnitude(double x) { return fabs(x); }
template <class T>
FASTACT_INLINE T larger(T x, T y) {
  return fmax(x, y);
}

FASTACT_INLINE float square_root(float x) { return __fsqrt_rn(x); }
FASTACT_INLINE double square_root(double x) { return __dsqrt_rn(x); }

// Selects the bits of x under the mask, and those of size elsewhere, in one instruction. nvcc
// compiles the C++ expression to two.
FASTACT_INLINE float with_sign_of(float size, float x) {
  uint32_t bits;
  asm("lop3.b32 %0, %1, %2, 0x80000000, 0xd8;" : "=r"(bits) : "r"(to_bits(size)), "r"(to_bits(x)));
  return from_bits(bits);
}
FASTACT_INLINE double with_sign_of(double size, double x) {
  return from_bits((to_bits(size) & 0x7fffffffffffffffu) | (to_bits(x) & (uint64_t{1} << 63)));
}

// nvcc compiles this to one comparison.
template <class T>
FASTACT_INLINE bool unordered(T x, T y) {
  return y != y || x != x;
}

FASTACT_INLINE float approximate_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

FASTACT_INLINE float approximate_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// One instruction each; a comparison and a selection are two.
FASTACT_INLINE float max_or_nan(float x, float y) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}
FASTACT_INLINE float min_or_nan(float x, float y) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}

template <class T>
FASTACT_INLINE T clamp_below(T x, T low) {
  if constexpr (sizeof(T) == 4) {
    return max_or_nan(x, low);
  } else {
    return x < low ? low : x;
  }
}

template <class T>
FASTACT_INLINE T at_least(T x, T low) {
  return x < low ? low : x;
}
template <class T>
FASTACT_INLINE T at_most(T x, T high) {
  return x > high ? high : x;
}

// Takes the minimum of the upper half of the bits in one instruction. As unsigned integers,
// negative floating-point numbers are ordered by magnitude.
FASTACT_INLINE double clamp_negative_roughly(double x, double low) {
  const auto high = static_cast<unsigned>(__double2hiint(x));
  const unsigned above = min(high, static_cast<unsigned>(to_bits(low) >> 32));
  return __hiloint2double(static_cast<int>(above), __double2loint(x));
}

FASTACT_INLINE float clamp_above(float x, float high) { return min_or_nan(x, high); }

template <class T>
FASTACT_INLINE T clamp_magnitude(T x, T high) {
  const T size = magnitude(x);
  if constexpr (sizeof(T) == 4) {
    return min_or_nan(size, high);
  } else {
    return size > high ? high : size;
  }
}

FASTACT_INLINE float clamp_ordered_magnitude(float x, float high) {
  const float size = magnitude(x);
  return size < high ? size : high;
}

FASTACT_INLINE float clamp_magnitude_of_number(float x, float high) {
  return clamp_magnitude(x, high);
}

// Saturation is a modifier of the instruction that computes x: tanh's kernel has 336 instructions,
// else 344 (sm_90).
FASTACT_INLINE float saturated(float x) { return __saturatef(x); }

FASTACT_INLINE float positive_part(float x) { return max_or_nan(x, -0.0f); }

FASTACT_INLINE float positive_or_zero(float x) { return x < 0.0f ? 0.0f : x; }

FASTACT_INLINE float step_of_sign(float /*x*/, uint32_t opposite) {
  return from_bits((opposite >> 31) * 0x3f800000u);
}

// One of sigmoid's kernels has 304 instructions, else 312 (sm_90, docs/dev/tuning.md).
FASTACT_INLINE float to_compare(float /*x*/, float clamped) { return clamped; }

// The polynomial uses this minimum as well. The contiguous kernels of tanh are the same either way
// (sm_90).
FASTACT_INLINE float unbounded_size(float x, float end) { return clamp_magnitude(x, end); }

// Not measured on a GPU; docs/dev/tuning.md counts the instructions.
consteval bool factor_goes_into_coefficients() { return false; }

consteval bool prefers_selections() { return true; }

consteval bool makes_canonical_nans() { return true; }

template <const auto& kTable>
FASTACT_INLINE auto find_segment(uint32_t index) {
  return segment_from(shared_segments<kTable>(), index);
}

}  // namespace fastact::inline FASTACT_TARGET

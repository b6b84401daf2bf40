// The arithmetic that every formula is written in, spelled once for host and device.
//
// Only operations that IEEE 754 defines to the last bit (add, multiply, explicit fma, convert,
// compare, select, bit moves), so that a formula gives the same bits from every compiler,
// instruction set and GPU. The build keeps compilers from contracting a*b+c on their own
// (-ffp-contract=off, --fmad=false).
#pragma once

#include <cstdint>
#include <type_traits>

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

namespace fastact {

// 1, see hidden().
extern const double kHiddenOne;

}  // namespace fastact

namespace fastact::inline FASTACT_TARGET {

// Storage of the 16-bit element types. float and double stand for themselves.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

template <class Element>
inline constexpr bool kIs16Bit = sizeof(Element) == 2;

// The type in which a formula receives an element: the element itself, or float for 16 bits
// (exact).
template <class Element>
using Wide = std::conditional_t<kIs16Bit<Element>, float, Element>;

// The type in which most formulas compute: a wider one than the element's for all but float64, so
// that the engine rounds once.
template <class Element>
using Compute = std::conditional_t<kIs16Bit<Element>, float, double>;

FASTACT_INLINE uint32_t to_bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  return __builtin_bit_cast(uint32_t, x);
#endif
}

FASTACT_INLINE uint64_t to_bits(double x) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint64_t>(__double_as_longlong(x));
#else
  return __builtin_bit_cast(uint64_t, x);
#endif
}

FASTACT_INLINE float from_bits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

FASTACT_INLINE double from_bits(uint64_t bits) {
#if defined(__CUDA_ARCH__)
  return __longlong_as_double(static_cast<long long>(bits));
#else
  return __builtin_bit_cast(double, bits);
#endif
}

// a*b + c, rounded once.
FASTACT_INLINE float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

FASTACT_INLINE double fma(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

// |x|, NaN's too.
FASTACT_INLINE float magnitude(float x) {
#if defined(__CUDA_ARCH__)
  return fabsf(x);
#else
  return __builtin_fabsf(x);
#endif
}

FASTACT_INLINE double magnitude(double x) {
#if defined(__CUDA_ARCH__)
  return fabs(x);
#else
  return __builtin_fabs(x);
#endif
}

FASTACT_INLINE float square_root(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

FASTACT_INLINE double square_root(double x) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}

// p + rest rounded to odd, for the nearest p and any rest of the right sign: a second rounding, to
// fewer bits, then gives what one would have given (Boldo and Melquiond, "Emulation of FMA and
// correctly rounded sums", 2008). A NaN rest, as of an infinite p, says nothing.
template <class T>
FASTACT_INLINE T round_to_odd(T p, T rest) {
  using Bits = decltype(to_bits(p));
  const Bits bits = to_bits(p);
  const Bits towards_zero = bits - Bits{(rest < T{0}) != (p < T{0})};
  return ((rest < T{0}) | (rest > T{0})) ? from_bits(towards_zero | Bits{1}) : p;
}

// To float with a sticky last bit, so that rounding once more, to 16 bits, is rounding once.
FASTACT_INLINE float round_to_odd(double x) {
  constexpr uint64_t kBelowFloat = (uint64_t{1} << 29) - 1;
  const uint64_t bits = to_bits(x);
  const uint64_t sticky = (bits & kBelowFloat) + kBelowFloat;
  return static_cast<float>(from_bits((bits | (sticky & (kBelowFloat + 1))) & ~kBelowFloat));
}

// What a double result is returned as: 16-bit results need one rounding in all.
template <class Element>
FASTACT_INLINE auto narrowed(double y) {
  if constexpr (kIs16Bit<Element>) {
    return round_to_odd(y);
  } else {
    return y;
  }
}

// c0 + c1*x + c2*x^2 + ... by Horner's rule, one fma a step.
template <class T>
FASTACT_INLINE T polynomial(T /*x*/, T last) {
  return last;
}
template <class T, class... Rest>
FASTACT_INLINE T polynomial(T x, T first, Rest... rest) {
  return fma(polynomial(x, rest...), x, first);
}

// factor times it, bit for bit, for a power of two: with coefficients that are as much larger.
template <class T, class... Coefficients>
FASTACT_INLINE T scaled_polynomial(T factor, T x, Coefficients... coefficients) {
#if defined(__CUDA_ARCH__)
  return polynomial(x, coefficients...) * factor;
#else
  return polynomial(x, (factor * coefficients)...);
#endif
}

// A constant that a CPU's compiler does not see: GCC 12 makes a comparison and a selection of a
// maximum with one that it sees, which are up to four instructions with AVX2.
template <class T>
FASTACT_INLINE T hidden(T constant) {
#if defined(__CUDA_ARCH__)
  return constant;
#else
  return constant * static_cast<T>(kHiddenOne);
#endif
}

// max(x, low) for a constant low, in float other than 0; a NaN stays NaN.
template <class T>
FASTACT_INLINE T clamp_below(T x, T low) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 4) {
    // One instruction, where a comparison and a selection are two.
    T result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(low));
    return result;
  }
#endif
  const T bound = hidden(low);
  return x < bound ? bound : x;
}

// min(x, high); a NaN stays NaN.
FASTACT_INLINE float clamp_above(float x, float high) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(high));
  return result;
#else
  const float bound = hidden(high);
  return x > bound ? bound : x;
#endif
}

// max(x, low) for x <= 0 and a constant low < 0; anything for another x. One instruction, and
// exact: negative floats are ordered by their bits.
FASTACT_INLINE float clamp_negative(float x, float low) {
  const uint32_t bits = to_bits(x);
  return from_bits(bits < to_bits(low) ? bits : to_bits(low));
}

// min(|x|, high); a NaN stays NaN.
template <class T>
FASTACT_INLINE T clamp_magnitude(T x, T high) {
  const T size = magnitude(x);
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 4) {
    T result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(size), "f"(high));
    return result;
  }
#endif
  const T bound = hidden(high);
  return size > bound ? bound : size;
}

// min(|x|, high) for a constant high > 0, which it is for a NaN, too. On a CPU by the bits, where
// it is one instruction less.
FASTACT_INLINE float clamp_ordered_magnitude(float x, float high) {
  const float size = magnitude(x);
#if defined(__CUDA_ARCH__)
  return size < high ? size : high;
#else
  return from_bits(to_bits(size) < to_bits(high) ? to_bits(size) : to_bits(high));
#endif
}

// The same; anything for a NaN.
FASTACT_INLINE float clamp_magnitude_of_number(float x, float high) {
#if defined(__CUDA_ARCH__)
  return clamp_magnitude(x, high);
#else
  return clamp_ordered_magnitude(x, high);
#endif
}

// min(max(x, low), high) for constants low < 0 < high; anything for a NaN. Two instructions by the
// bits, where comparisons with selections are four: as unsigned numbers negative floats are above
// all others and in the opposite order, as signed ones below them.
FASTACT_INLINE float clamp_ordered(float x, float low, float high) {
  const uint32_t bits = to_bits(x) < to_bits(low) ? to_bits(x) : to_bits(low);
  const auto above = static_cast<int32_t>(bits);
  const auto limit = static_cast<int32_t>(to_bits(high));
  // A statement of its own: GCC 12 else converts first, and makes no minimum of it.
  const int32_t least = above < limit ? above : limit;
  return from_bits(static_cast<uint32_t>(least));
}

// |size| with the sign of x.
FASTACT_INLINE float with_sign_of(float size, float x) {
#if defined(__CUDA_ARCH__)
  // One instruction, where nvcc makes two of the expression: x's bits under the mask, else size's.
  uint32_t bits;
  asm("lop3.b32 %0, %1, %2, 0x80000000, 0xd8;" : "=r"(bits) : "r"(to_bits(size)), "r"(to_bits(x)));
  return from_bits(bits);
#else
  // GCC 12 makes one instruction of AVX-512 of it, and two of the masks' expression.
  return __builtin_copysignf(size, x);
#endif
}

FASTACT_INLINE double with_sign_of(double size, double x) {
#if defined(__CUDA_ARCH__)
  return from_bits((to_bits(size) & 0x7fffffffffffffffu) | (to_bits(x) & (uint64_t{1} << 63)));
#else
  return __builtin_copysign(size, x);
#endif
}

// max(x, -0.0): x where it is positive, else -0.0; for a NaN itself or -0.0.
FASTACT_INLINE float positive_part(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(-0.0f));
  return result;
#else
  // One instruction, as a minimum; by < GCC 12 makes a selection by the sign of it, which is three.
  return from_bits(to_bits(x) <= 0x80000000u ? to_bits(x) : 0x80000000u);
#endif
}

FASTACT_INLINE double positive_part(double x) { return clamp_below(x, -0.0); }

template <class T>
FASTACT_INLINE bool is_nan(T x) {
  return x != x;
}

// Whether x or y is a NaN, in one comparison.
template <class T>
FASTACT_INLINE bool unordered(T x, T y) {
#if defined(__CUDA_ARCH__)
  return is_nan(x) || is_nan(y);  // nvcc makes one comparison of it
#else
  return __builtin_isunordered(x, y);
#endif
}

// FastAct's one NaN: quiet, sign +, every payload bit set. It is the NaN that NVIDIA GPUs produce
// for float32 and in packed conversions, and it does not depend on which operand was NaN, or in
// what order.
template <class T>
FASTACT_INLINE T canonical_nan() {
  if constexpr (sizeof(T) == 4) {
    return from_bits(uint32_t{0x7fffffff});
  } else {
    return from_bits(uint64_t{0x7fffffffffffffff});
  }
}

FASTACT_INLINE float widen(float x) { return x; }
FASTACT_INLINE double widen(double x) { return x; }
FASTACT_INLINE float widen(BFloat16 x) { return from_bits(uint32_t{x.bits} << 16); }
FASTACT_INLINE float widen(Float16 x) {
  const uint32_t magnitude = (x.bits & 0x7fffu) << 13;
  // Scaling by 2^112 moves the exponent bias from 15 to 127 and is exact for subnormals too.
  const uint32_t finite = to_bits(from_bits(magnitude) * 0x1p112f);
  const uint32_t special = magnitude | 0x7f800000u;
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  return from_bits((magnitude >= 0x0f800000u ? special : finite) | sign);
}

// A result that needs no more rounding (an operand, or a constant that the element type has), and
// whose NaN is the one NaN.
template <class T>
struct Finished {
  T value;
};

// y, which is such a number, or NaN if x or y is: one comparison for both.
template <class T>
FASTACT_INLINE Finished<T> finish(T x, T y) {
  return {unordered(x, y) ? canonical_nan<T>() : y};
}

// The same where y is no NaN and its sign is + if x is a NaN: a selection takes a processor that
// has AVX2 alone up to three operations.
template <class T>
FASTACT_INLINE Finished<T> finish_positive(T x, T y) {
#if defined(__CUDA_ARCH__)
  return finish(x, y);
#else
  using Bits = decltype(to_bits(x));
  const Bits nan = is_nan(x) ? to_bits(canonical_nan<T>()) : Bits{0};
  return {from_bits(to_bits(y) | nan)};
#endif
}

// The same where y is `known` if x or y is a NaN.
template <class T>
FASTACT_INLINE Finished<T> finish_known(T x, T y, T known) {
#if defined(__CUDA_ARCH__)
  return finish(x, y);
#else
  using Bits = decltype(to_bits(x));
  const Bits change = to_bits(known) ^ to_bits(canonical_nan<T>());
  return {from_bits(to_bits(y) ^ (unordered(x, y) ? change : Bits{0}))};
#endif
}

// y, which is still to be rounded to 16 bits, or NaN if x or y is.
template <class Element, class T>
FASTACT_INLINE auto finish_unrounded(T x, T y) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    return is_nan(x) ? x : y;
  } else {
    return finish(x, y);
  }
}

// A float32 result of an operation that makes the one NaN on a GPU, where it needs no more care.
struct Computed {
  float value;
};

// A result becomes an element here and nowhere else: one rounding to nearest even, and the one NaN.
template <class Element, class T>
FASTACT_INLINE Element round_to(T y) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    static_assert(std::is_same_v<T, float>);
    const uint32_t bits = to_bits(y);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return BFloat16{static_cast<uint16_t>(is_nan(y) ? 0x7fffu : rounded)};
  } else if constexpr (std::is_same_v<Element, Float16>) {
    static_assert(std::is_same_v<T, float>);
    const uint32_t bits = to_bits(y);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Adding 0.5 leaves 2^-24 as the last bit: the sum is rounded where float16's subnormals are.
    const uint32_t subnormal = to_bits(from_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t rounded = magnitude < 0x38800000u ? subnormal : normal;
    rounded = magnitude >= 0x477ff000u ? 0x7c00u : rounded;
    rounded |= (bits >> 16) & 0x8000u;
    return Float16{static_cast<uint16_t>(is_nan(y) ? 0x7fffu : rounded)};
  } else {
    const auto rounded = static_cast<Element>(y);
    return is_nan(rounded) ? canonical_nan<Element>() : rounded;
  }
}

template <class Element, class T>
FASTACT_INLINE Element round_to(Finished<T> y) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    return BFloat16{static_cast<uint16_t>(to_bits(y.value) >> 16)};
  } else if constexpr (std::is_same_v<Element, Float16>) {
    return round_to<Float16>(y.value);
  } else {
    return y.value;
  }
}

template <class Element>
FASTACT_INLINE Element round_to(Computed y) {
  static_assert(std::is_same_v<Element, float>);
#if defined(__CUDA_ARCH__)
  return y.value;
#else
  return round_to<float>(y.value);
#endif
}

}  // namespace fastact::inline FASTACT_TARGET

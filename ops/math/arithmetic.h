// The arithmetic that every formula is written in, spelled once for host and device.
//
// Only operations that IEEE 754 defines to the last bit (add, multiply, explicit fma, convert,
// compare, select, bit moves), so that a formula gives the same bits from every compiler,
// instruction set and GPU. The build keeps compilers from contracting a*b+c on their own
// (-ffp-contract=off, --fmad=false).
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/math/target/target.h"

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
using OpMath = std::conditional_t<kIs16Bit<Element>, float, Element>;

// The type in which most formulas compute: a wider one than the element's for all but float64, so
// that the engine rounds once.
template <class Element>
using Wider = std::conditional_t<kIs16Bit<Element>, float, double>;

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

// A polynomial's coefficients, c0 first. scripts/fit_polynomials.py knows each set by its name,
// finds it or holds it to a bound, and holds the comment beside it to the error that it has.
template <class T, int Size>
struct Coefficients {
  static constexpr int kSize = Size;

  T values[Size];
};
template <class T, class... Rest>
Coefficients(T, Rest...) -> Coefficients<T, 1 + sizeof...(Rest)>;

// For a power of two: without a rounding.
template <class T, int Size>
consteval Coefficients<T, Size> operator*(T factor, Coefficients<T, Size> coefficients) {
  for (T& value : coefficients.values) value *= factor;
  return coefficients;
}

// The polynomial from its K-th coefficient on. The set is named by a reference, as a GPU's code can
// read a constant, but not an array of the host's.
template <const auto& kCoefficients, int K = 0, class T>
FASTACT_INLINE T polynomial(T x) {
  constexpr T kFirst = kCoefficients.values[K];
  if constexpr (K + 1 == kCoefficients.kSize) {
    return kFirst;
  } else {
    return fma(polynomial<kCoefficients, K + 1>(x), x, kFirst);
  }
}

// max(x, low) for x <= 0 and a constant low < 0; anything for another x. One instruction, and
// exact: negative floats are ordered by their bits.
FASTACT_INLINE float clamp_negative(float x, float low) {
  const uint32_t bits = to_bits(x);
  return from_bits(bits < to_bits(low) ? bits : to_bits(low));
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

// max(x, -0.0); for a NaN itself.
FASTACT_INLINE double positive_part(double x) { return clamp_below(x, -0.0); }

template <class T>
FASTACT_INLINE bool is_nan(T x) {
  return x != x;
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
struct Canonical {
  T value;
};

// y, which is such a number, or NaN if x or y is: one comparison for both.
template <class T>
FASTACT_INLINE Canonical<T> canonical(T x, T y) {
  return {unordered(x, y) ? canonical_nan<T>() : y};
}

// The same where y is no NaN and its sign is + if x is a NaN.
template <class T>
FASTACT_INLINE Canonical<T> canonical_positive(T x, T y) {
  if constexpr (prefers_selections()) {
    return canonical(x, y);
  } else {
    using Bits = decltype(to_bits(x));
    const Bits nan = is_nan(x) ? to_bits(canonical_nan<T>()) : Bits{0};
    return {from_bits(to_bits(y) | nan)};
  }
}

// y, which is still to be rounded to 16 bits, or NaN if x or y is.
template <class Element, class T>
FASTACT_INLINE auto with_nan_of(T x, T y) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    return is_nan(x) ? x : y;
  } else {
    return canonical(x, y);
  }
}

// A float32 result of an operation that makes the one NaN on a GPU, where it needs no more care.
struct CanonicalOnGpu {
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
FASTACT_INLINE Element round_to(Canonical<T> y) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    return BFloat16{static_cast<uint16_t>(to_bits(y.value) >> 16)};
  } else if constexpr (std::is_same_v<Element, Float16>) {
    return round_to<Float16>(y.value);
  } else {
    return y.value;
  }
}

template <class Element>
FASTACT_INLINE Element round_to(CanonicalOnGpu y) {
  static_assert(std::is_same_v<Element, float>);
  if constexpr (makes_canonical_nans()) {
    return y.value;
  } else {
    return round_to<float>(y.value);
  }
}

}  // namespace fastact::inline FASTACT_TARGET

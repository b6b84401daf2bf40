// The arithmetic in which every formula is written, once for host and device.
//
// It uses only operations that IEEE 754 defines to the last bit: add, multiply, explicit fma,
// convert, compare, select and bit moves. So a formula gives the same bits with every compiler,
// instruction set and GPU. The build keeps compilers from contracting a*b+c themselves
// (-ffp-contract=off, --fmad=false).
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/math/target/target.h"

namespace fastact::inline FASTACT_TARGET {

// Storage of the 16-bit element types. float and double need no storage type.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

template <class Element>
inline constexpr bool kIs16Bit = sizeof(Element) == 2;

// The type in which a formula receives an element: float for 16-bit types (an exact conversion),
// else the element's own type.
template <class Element>
using OpMath = std::conditional_t<kIs16Bit<Element>, float, Element>;

// The type in which most formulas compute. It is wider than the element for all types except
// float64, so the engine rounds once.
template <class Element>
using Wider = std::conditional_t<kIs16Bit<Element>, float, double>;

// Returns p + rest rounded to odd, for the nearest p and any rest of the right sign. A second
// rounding, to fewer bits, then gives the result of a single rounding (Boldo and Melquiond,
// "Emulation of FMA and correctly rounded sums", 2008). A NaN rest, which an infinite p produces,
// is ignored.
template <class T>
FASTACT_INLINE T round_to_odd(T p, T rest) {
  using Bits = decltype(to_bits(p));
  const Bits bits = to_bits(p);
  const Bits towards_zero = bits - Bits{(rest < T{0}) != (p < T{0})};
  return ((rest < T{0}) | (rest > T{0})) ? from_bits(towards_zero | Bits{1}) : p;
}

// Converts to float with a sticky last bit. A further rounding to 16 bits then gives the result of
// a single rounding.
FASTACT_INLINE float round_to_odd(double x) {
  constexpr uint64_t kBelowFloat = (uint64_t{1} << 29) - 1;
  const uint64_t bits = to_bits(x);
  const uint64_t sticky = (bits & kBelowFloat) + kBelowFloat;
  return static_cast<float>(from_bits((bits | (sticky & (kBelowFloat + 1))) & ~kBelowFloat));
}

// Returns a double result in the type that formulas return: results for 16-bit types may be rounded
// only once.
template <class Element>
FASTACT_INLINE auto narrowed(double y) {
  if constexpr (kIs16Bit<Element>) {
    return round_to_odd(y);
  } else {
    return y;
  }
}

// Returns c0 + c1*x + c2*x^2 + ... by Horner's rule, one fma a step.
template <class T>
FASTACT_INLINE T polynomial(T /*x*/, T last) {
  return last;
}
template <class T, class... Rest>
FASTACT_INLINE T polynomial(T x, T first, Rest... rest) {
  return fma(polynomial(x, rest...), x, first);
}

// The coefficients of a polynomial, c0 first. scripts/coefficients/fit_polynomials.py lists each
// set by name, recomputes it or checks its bound, and checks the error stated in the comment above
// it.
template <class T, int Size>
struct Coefficients {
  static constexpr int kSize = Size;

  T values[Size];
};
template <class T, class... Rest>
Coefficients(T, Rest...) -> Coefficients<T, 1 + sizeof...(Rest)>;

// `factor` must be a power of two, so the products are exact.
template <class T, int Size>
consteval Coefficients<T, Size> operator*(T factor, Coefficients<T, Size> coefficients) {
  for (T& value : coefficients.values) value *= factor;
  return coefficients;
}

// Evaluates the polynomial from its K-th coefficient on. The set is a reference template argument,
// because device code can read a host constant but not a host array.
template <const auto& kCoefficients, int K = 0, class T>
FASTACT_INLINE T polynomial(T x) {
  constexpr T kFirst = kCoefficients.values[K];
  if constexpr (K + 1 == kCoefficients.kSize) {
    return kFirst;
  } else {
    return fma(polynomial<kCoefficients, K + 1>(x), x, kFirst);
  }
}

// Returns max(x, low) for x <= 0 and a constant low < 0. The result for another x is unspecified.
// This is one exact instruction, because negative floats are ordered by their bits.
FASTACT_INLINE float clamp_negative(float x, float low) {
  const uint32_t bits = to_bits(x);
  return from_bits(bits < to_bits(low) ? bits : to_bits(low));
}

// Returns min(max(x, low), high) for constants low < 0 < high. The result for NaN is unspecified.
// This takes two integer instructions; comparisons with selections take four. As unsigned integers,
// negative floats are above all others and in reverse order; as signed integers, they are below.
FASTACT_INLINE float clamp_ordered(float x, float low, float high) {
  const uint32_t bits = to_bits(x) < to_bits(low) ? to_bits(x) : to_bits(low);
  const auto above = static_cast<int32_t>(bits);
  const auto limit = static_cast<int32_t>(to_bits(high));
  // A separate statement: otherwise GCC 12 converts first and emits no minimum instruction.
  const int32_t least = above < limit ? above : limit;
  return from_bits(static_cast<uint32_t>(least));
}

// Returns max(x, -0.0), or NaN for a NaN.
FASTACT_INLINE double positive_part(double x) { return clamp_below(x, -0.0); }

template <class T>
FASTACT_INLINE bool is_nan(T x) {
  return x != x;
}

// FastAct's canonical NaN: quiet, positive sign, every payload bit set. NVIDIA GPUs produce it for
// float32 and in packed conversions. It does not depend on which operand was NaN or on the order of
// operands.
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
FASTACT_INLINE uint32_t widen(uint32_t random_bits) { return random_bits; }
FASTACT_INLINE float widen(BFloat16 x) { return from_bits(uint32_t{x.bits} << 16); }
FASTACT_INLINE float widen(Float16 x) {
  const uint32_t magnitude = (x.bits & 0x7fffu) << 13;
  // Scaling by 2^112 changes the exponent bias from 15 to 127. It is exact for subnormal numbers
  // too.
  const uint32_t finite = to_bits(from_bits(magnitude) * 0x1p112f);
  const uint32_t special = magnitude | 0x7f800000u;
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  return from_bits((magnitude >= 0x0f800000u ? special : finite) | sign);
}

// A result that needs no further rounding (an operand, or a constant that the element type
// contains) and whose NaN is the canonical one.
template <class T>
struct Canonical {
  T value;
};

// Returns y, which needs no further rounding, or NaN if x or y is NaN. One comparison serves both.
template <class T>
FASTACT_INLINE Canonical<T> canonical(T x, T y) {
  return {unordered(x, y) ? canonical_nan<T>() : y};
}

// The same for a y that is not NaN and is positive if x is NaN.
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

// Returns y, which is still to be rounded to 16 bits, or NaN if x or y is NaN.
template <class Element, class T>
FASTACT_INLINE auto with_nan_of(T x, T y) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    return is_nan(x) ? x : y;
  } else {
    return canonical(x, y);
  }
}

// A float32 result of an operation that gives the canonical NaN on a GPU, where no further step is
// needed.
struct CanonicalOnGpu {
  float value;
};

// Converts a result to an element. Every result passes through here: one rounding to nearest even,
// and the canonical NaN.
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
    // Adding 0.5 gives the last bit the weight 2^-24, so the sum is rounded at float16's subnormal
    // precision.
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

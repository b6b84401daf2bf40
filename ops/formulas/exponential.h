// e^x and e^x - 1, times a constant, for x <= 0: the elementary functions that formulas share.
//
// Each splits x = n ln2 + r with an integer n and |r| <= ln2 / 2 (Cody and Waite's reduction; n is
// found by adding 1.5 * 2^(mantissa bits), which leaves it in the low bits of the sum), evaluates a
// polynomial in r and scales by 2^n. A constant factor is folded into the coefficients, so that it
// costs neither an operation nor a rounding.
#pragma once

#include "ops/formulas/arithmetic.h"

namespace fastact::inline FASTACT_TARGET {

// A result below 2^-1022 (2^-126 in float) is made 2^kGuard times too large and scaled down at the
// end: one rounding, and zero where the exact value is below the smallest subnormal.
inline constexpr int kGuardFloat = 40;
inline constexpr int kGuardDouble = 200;

// x = n ln2 + r; scale = 2^(n + guard).
template <class T>
struct Reduced {
  T r;
  T scale;
};

// Adding it leaves an integer n as n + Bias in the low bits of the sum: shifted to the exponent's
// place, they are 2^n times 2^(Bias - the type's bias) without an addition.
template <class T, int Guard>
inline constexpr T kShifter =
    static_cast<T>(sizeof(T) == 8 ? 0x1.8p52 + 1023 + Guard : 0x1.8p23 + 127 + Guard);

// double, for x >= -709.3. ln2 in one piece: |error of r| < 2^-53 |x|, for results that are rounded
// to float.
FASTACT_INLINE Reduced<double> reduce_short(double x) {
  const double shifted = fma(x, 0x1.71547652b82fep0, kShifter<double, 0>);
  const double n = shifted - kShifter<double, 0>;
  return {fma(n, -0x1.62e42fefa39efp-1, x), from_bits(to_bits(shifted) << 52)};
}

// double, ln2 in two pieces of which the first has 21 trailing zeros, so that n times it is exact
// (the split of Sun's fdlibm): |error of r| < 2^-54.
template <int Guard = 0>
FASTACT_INLINE Reduced<double> reduce(double x) {
  const double shifted = fma(x, 0x1.71547652b82fep0, kShifter<double, Guard>);
  const double n = shifted - kShifter<double, Guard>;
  const double r = fma(n, -0x1.a39ef35793c76p-33, fma(n, -0x1.62e42feep-1, x));
  return {r, from_bits(to_bits(shifted) << 52)};
}

// float, r as the sum of two: |error| < 2^-45 |x|.
struct ReducedSplit {
  float r;
  float r_low;
  float scale;
};

FASTACT_INLINE ReducedSplit reduce_split(float x) {
  const float shifted = fma(x, 0x1.715476p0f, kShifter<float, 0>);
  const float n = shifted - kShifter<float, 0>;
  const float rough = fma(n, -0x1.62e4p-1f, x);
  const float r = fma(n, -0x1.7f7d1cp-20f, rough);
  return {r, fma(n, -0x1.7f7d1cp-20f, rough - r), from_bits(to_bits(shifted) << 23)};
}

// float, ln2 in one piece (bfloat16 results) or two.
template <class Element, int Guard = 0>
FASTACT_INLINE Reduced<float> reduce(float x) {
  const float shifted = fma(x, 0x1.715476p0f, kShifter<float, Guard>);
  const float n = shifted - kShifter<float, Guard>;
  const float scale = from_bits(to_bits(shifted) << 23);
  if constexpr (std::is_same_v<Element, BFloat16>) {
    return {fma(n, -0x1.62e43p-1f, x), scale};
  } else {
    return {fma(n, -0x1.7f7d1cp-20f, fma(n, -0x1.62e4p-1f, x)), scale};
  }
}

}  // namespace fastact::inline FASTACT_TARGET

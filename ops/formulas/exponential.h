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
template <class T>
inline constexpr T kUnguard = sizeof(T) == 4 ? static_cast<T>(0x1p-40) : static_cast<T>(0x1p-200);

// x = n ln2 + r; scale = 2^(n + guard).
template <class T>
struct Reduced {
  T r;
  T scale;
};

// double, for x >= -709.3. ln2 in one piece: |error of r| < 2^-53 |x|, for results that are rounded
// to float.
FASTACT_INLINE Reduced<double> reduce_short(double x) {
  const double shifted = fma(x, 0x1.71547652b82fep0, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  return {fma(n, -0x1.62e42fefa39efp-1, x),
          from_bits((to_bits(shifted) << 52) + (uint64_t{1023} << 52))};
}

// double, ln2 in two pieces of which the first has 21 trailing zeros, so that n times it is exact
// (the split of Sun's fdlibm): |error of r| < 2^-54.
template <int Guard = 0>
FASTACT_INLINE Reduced<double> reduce(double x) {
  const double shifted = fma(x, 0x1.71547652b82fep0, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  const double r = fma(n, -0x1.a39ef35793c76p-33, fma(n, -0x1.62e42feep-1, x));
  return {r, from_bits((to_bits(shifted) << 52) + (uint64_t{1023 + Guard} << 52))};
}

// float, ln2 in one piece (bfloat16 results) or two (float16 results).
template <class Element, int Guard = 0>
FASTACT_INLINE Reduced<float> reduce(float x) {
  const float shifted = fma(x, 0x1.715476p0f, 0x1.8p23f);
  const float n = shifted - 0x1.8p23f;
  const float scale = from_bits((to_bits(shifted) << 23) + (uint32_t{127 + Guard} << 23));
  if constexpr (std::is_same_v<Element, BFloat16>) {
    return {fma(n, -0x1.62e43p-1f, x), scale};
  } else {
    return {fma(n, -0x1.7f7d1cp-20f, fma(n, -0x1.62e4p-1f, x)), scale};
  }
}

// (e^r - 1 - r) / r^2 for |r| <= ln2 / 2. In float the minimax polynomial of degree 4, 2^-26 of
// e^r; in double Taylor's of degree 11, 2^-57.
FASTACT_INLINE float exponential_tail(float r) {
  return polynomial(r, 0x1.fffffap-2f, 0x1.55549p-3f, 0x1.555a22p-5f, 0x1.123b04p-7f,
                    0x1.695414p-10f);
}

FASTACT_INLINE double exponential_tail(double r) {
  return polynomial(r, 0.5, 0x1.5555555555555p-3, 0x1.5555555555555p-5, 0x1.1111111111111p-7,
                    0x1.6c16c16c16c17p-10, 0x1.a01a01a01a01ap-13, 0x1.a01a01a01a01ap-16,
                    0x1.71de3a556c734p-19, 0x1.27e4fb7789f5cp-22, 0x1.ae64567f544e4p-26,
                    0x1.1eed8eff8d898p-29, 0x1.6124613a86d09p-33);
}

// a = high + low - n ln2 for a >= 0, where high is exact; r = high + low, rounded;
// scale = 2^(n + guard), where n <= 0. So e^-a = 2^n / e^r.
template <class T>
struct Pieces {
  T high;
  T low;
  T r;
  T scale;
};

FASTACT_INLINE Pieces<float> reduce_in_pieces(float a) {
  const float shifted = fma(a, -0x1.715476p0f, 0x1.8p23f);
  const float n = shifted - 0x1.8p23f;
  const float high = fma(n, 0x1.62e4p-1f, a);
  const uint32_t scale = (to_bits(shifted) << 23) + (uint32_t{127 + kGuardFloat} << 23);
  return {high, n * 0x1.7f7d1cp-20f, fma(n, 0x1.7f7d1cp-20f, high), from_bits(scale)};
}

FASTACT_INLINE Pieces<double> reduce_in_pieces(double a) {
  const double shifted = fma(a, -0x1.71547652b82fep0, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  const double high = fma(n, 0x1.62e42feep-1, a);
  const uint64_t scale = (to_bits(shifted) << 52) + (uint64_t{1023 + kGuardDouble} << 52);
  return {high, n * 0x1.a39ef35793c76p-33, fma(n, 0x1.a39ef35793c76p-33, high), from_bits(scale)};
}

// Derivatives are computed in double for every element type. Only float64's can be subnormal
// doubles and need the guard; the others' exponential ends where n is -1023 and the scale's bits
// are those of 0, far below what they hold.
template <class Element>
inline constexpr int kDerivativeGuard = std::is_same_v<Element, double> ? kGuardDouble : 0;
template <class Element>
inline constexpr double kDerivativeUnguard =
    std::is_same_v<Element, double> ? kUnguard<double> : 1.0;
template <class Element>
inline constexpr double kDerivativeEnd = std::is_same_v<Element, double> ? 760.0 : 709.125;

// e^x for x = high + low <= 0, high >= -kDerivativeEnd and |low| far below it; guarded = 2^guard
// e^x.
struct Exponential {
  double guarded;
  double value;
  double minus_one;
};

template <class Element>
FASTACT_INLINE Exponential exponential(double high, double low = 0.0) {
  const auto [reduced, guarded] = reduce<kDerivativeGuard<Element>>(high);
  const double r = reduced + low;
  const double p = fma(r * r, exponential_tail(r), r);
  const double scale = guarded * kDerivativeUnguard<Element>;
  const double result = fma(guarded, p, guarded);
  return {result, result * kDerivativeUnguard<Element>, fma(scale, p, scale - 1.0)};
}

// 1 / d in double: for float64 correctly rounded, for the others to about 2^-52 and without the
// division, from float's reciprocal by a step of third order.
template <class Element>
FASTACT_INLINE double reciprocal_for(double d) {
  if constexpr (std::is_same_v<Element, double>) {
    return reciprocal(d);
  } else {
    const double y = reciprocal(static_cast<float>(d));
    const double error = fma(-d, y, 1.0);
    return fma(y, fma(error, error, error), y);
  }
}

// e^x to 2^-33 for x >= -709.3, for float32 results.
FASTACT_INLINE double exponential_short(double x) {
  const auto [r, scale] = reduce_short(x);
  const double p = polynomial(r, 0x1.ffffffffec2dfp-1, 0x1.0000002892383p-1, 0x1.55555595bbbebp-3,
                              0x1.5554ac9d877e5p-5, 0x1.111085ceaf5eap-7, 0x1.6d75774acac09p-10,
                              0x1.a1aad087d9c15p-13);
  return fma(scale * r, p, scale);
}

// numerator / d to 2^-45 for d in [0.5, 2^60), for float32 results: an IEEE division in double
// takes longer than everything around it.
FASTACT_INLINE double quotient_short(double numerator, double d) {
  const double inverse = reciprocal(static_cast<float>(d));
  const double q = numerator * inverse;
  return fma(q, fma(-d, inverse, 1.0), q);
}

// 2^guard e^x in float, for 16-bit results. Where n is -127 - guard, at x = -102 in bfloat16 and
// -88 in float16, the bits of the scale are those of 0, and so is the result.
template <class Element>
inline constexpr int kGuard16 = std::is_same_v<Element, BFloat16> ? 20 : 0;
template <class Element>
inline constexpr float kUnguard16 = std::is_same_v<Element, BFloat16> ? 0x1p-20f : 1.0f;
template <class Element>
inline constexpr float kEnd16 = std::is_same_v<Element, BFloat16> ? 102.0f : 88.0f;

// y, moved at the one input whose exact value lies so close to a tie that float takes the wrong
// side with whatever coefficients.
FASTACT_INLINE float corrected_at(float x, float where, float y, float step) {
  return x == where ? y + step : y;
}

template <class Element, class... Coefficients>
FASTACT_INLINE float exponential_16(float x, Coefficients... coefficients) {
  const auto [r, scale] = reduce<Element, kGuard16<Element>>(x);
  return fma(scale * r, polynomial(r, coefficients...), scale);
}

}  // namespace fastact::inline FASTACT_TARGET

// Quotients and products in double-float arithmetic (sums of two floats), for results with an error
// of barely more than half a ULP.
#pragma once

#include "ops/math/arithmetic.h"

namespace fastact::inline FASTACT_TARGET {

// A number high + low whose parts have the same sign, so that a product with zero has the right
// sign.
struct DoubleFloat {
  float high;
  float low;

  // Avoids 0 times infinity. Adding -0.0 keeps the sign of a zero.
  FASTACT_INLINE float times(float g) const { return fma(high, g, low == 0.0f ? -0.0f : low * g); }
};

// high + rest inverse.
template <class T>
struct Quotient {
  T high;
  T rest;
  T inverse;

  FASTACT_INLINE T value() const { return fma(rest, inverse, high); }
  FASTACT_INLINE DoubleFloat sum() const { return {high, rest * inverse}; }
};

// A number a little below 1/3 for divide()'s sum(). Its last bits are 0.
inline constexpr float kBelowThird = 0x1.55555p-2f;

// Returns (a + rest) / divisor. For sum(), the inverse must be a few ULP closer to zero than 1 /
// divisor.
template <class T>
FASTACT_INLINE Quotient<T> divide(T a, T rest, T divisor, T inverse) {
  const T high = a * inverse;
  return {high, fma(-divisor, high, a) + rest, inverse};
}

// Returns a / 6 with an error of barely more than half a ULP.
FASTACT_INLINE float sixth_of(float a) {
  constexpr auto kHigh = static_cast<float>(1.0 / 6.0);
  constexpr auto kLow = static_cast<float>(1.0 / 6.0 - kHigh);
  return fma(a, kHigh, a * kLow);
}

}  // namespace fastact::inline FASTACT_TARGET

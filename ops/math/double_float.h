// Quotients and products by way of the sum of two numbers, for results that are off by half a ULP
// and hardly more.
#pragma once

#include "ops/math/arithmetic.h"

namespace fastact::inline FASTACT_TARGET {

// A number as high + low, of one sign: a product with zero then has the right one.
struct DoubleFloat {
  float high;
  float low;

  // No product of a zero with an infinity; -0.0 is what leaves the sign of another zero as it is.
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

// A little below 1/3, for divide()'s sum(); its last bits are 0.
inline constexpr float kBelowThird = 0x1.55555p-2f;

// (a + rest) / divisor. For sum() the inverse has to be a few ULP nearer to zero than 1 / divisor.
template <class T>
FASTACT_INLINE Quotient<T> divide(T a, T rest, T divisor, T inverse) {
  const T high = a * inverse;
  return {high, fma(-divisor, high, a) + rest, inverse};
}

// a / 6, to hardly more than half a ULP.
FASTACT_INLINE float sixth_of(float a) {
  constexpr auto kHigh = static_cast<float>(1.0 / 6.0);
  constexpr auto kLow = static_cast<float>(1.0 / 6.0 - kHigh);
  return fma(a, kHigh, a * kLow);
}

}  // namespace fastact::inline FASTACT_TARGET

// e^(rate x) for any rate, times any factor, in double. The product of parameters and powers may
// leave the range of double even if the result does not, so exponents are kept separately. This
// code serves unusual parameters: range matters, speed does not.
#pragma once

#include "ops/math/exponential.h"

namespace fastact::inline FASTACT_TARGET {

// The number significand * 2^exponent. If the number is 0, infinite or NaN, the significand is the
// number itself.
struct Scaled {
  double significand;
  double exponent;
};

FASTACT_INLINE Scaled scaled(double x) {
  constexpr uint64_t kExponent = uint64_t{0x7ff} << 52;
  const bool is_regular = x != 0.0 && x - x == 0.0;
  const bool is_subnormal = magnitude(x) < 0x1p-1022;
  const uint64_t bits = to_bits(is_subnormal ? x * 0x1p54 : x);
  const auto biased = static_cast<double>((bits & kExponent) >> 52);
  const double significand = from_bits((bits & ~kExponent) | (uint64_t{1022} << 52));
  return {is_regular ? significand : x,
          is_regular ? biased - (is_subnormal ? 1076.0 : 1022.0) : 0.0};
}

// value + rest, where rest is the rounding error.
struct ScaledSum {
  Scaled value;
  Scaled rest;
};

FASTACT_INLINE ScaledSum operator*(const ScaledSum& a, const ScaledSum& b) {
  const double x = a.value.significand;
  const double y = b.value.significand;
  const double product = x * y;
  const double exponent = a.value.exponent + b.value.exponent;
  const double lost = fma(x, y, -product) + fma(x, b.rest.significand, a.rest.significand * y);
  const double sum = product + lost;
  const bool is_regular = product != 0.0 && product - product == 0.0;
  return {{is_regular ? sum : product, exponent},
          {is_regular ? lost - (sum - product) : 0.0, exponent}};
}

// Returns 1 / x.
FASTACT_INLINE ScaledSum inverse_of(Scaled x) {
  const double inverse = 1.0 / x.significand;
  const double rest = fma(-x.significand, inverse, 1.0) * inverse;
  return {{inverse, -x.exponent}, {rest, -x.exponent}};
}

// Returns 2^n for an integer n from -1022 to 1023.
FASTACT_INLINE double power_of_two(double n) {
  return from_bits(to_bits(n + (0x1.8p52 + 1023)) << 52);
}

// Returns y 2^n for an integer n. The result is rounded once; a subnormal result may be rounded
// twice. Zeros, infinities and NaN are returned unchanged.
FASTACT_INLINE double times_power_of_two(double y, double n) {
  double result = y;
  double left = n;
  for (int i = 0; i < 3; ++i) {
    const double above = left < -1000.0 ? -1000.0 : left;
    const double part = above > 1000.0 ? 1000.0 : above;
    result *= power_of_two(part);
    left -= part;
  }
  return result;
}

// z = rate x = value + rest, and x = size 2^exponent. The value is 0 if z is below the range of
// double.
struct ScaledArgument {
  // For |z| below it, e^z - 1 is z.
  static constexpr double kTiny = 0x1p-60;
  // For z above it, e^z is infinite; for z below its negative, e^z is 0, whatever the factor.
  static constexpr double kFar = 4000.0;

  double value;
  double rest;
  double size;
  double exponent;

  FASTACT_INLINE bool is_tiny() const { return magnitude(value) < kTiny; }
};

FASTACT_INLINE ScaledArgument scaled_argument(Scaled rate, Scaled rate_rest, double x) {
  // A product with a subnormal number would lose digits. A rate of 0 gives 0, even for infinite x.
  const bool is_small = magnitude(x) < 0x1p-500;
  const double exponent = is_small ? -500.0 : 0.0;
  const double constant = is_nan(x) ? x : -1.0;
  const double size = rate.significand == 0.0 ? constant : x * (is_small ? 0x1p500 : 1.0);
  const double product = rate.significand * size;
  const double lost = fma(rate.significand, size, -product) + rate_rest.significand * size;
  const double value = times_power_of_two(product, rate.exponent + exponent);
  const double magnitude_of_value = magnitude(value);
  const bool has_rest =
      magnitude_of_value > ScaledArgument::kTiny && magnitude_of_value < ScaledArgument::kFar;
  const double rest = has_rest ? times_power_of_two(lost, rate.exponent + exponent) : 0.0;
  return {value, rest, size, exponent};
}

// z = n ln2 + r, and e^r - 1 = p + rest.
struct ScaledExponential {
  double n;
  double p;
  double rest;
};

FASTACT_INLINE ScaledExponential scaled_exponential(double value, double rest) {
  const double above = clamp_below(value, -ScaledArgument::kFar);
  const double limited = above > ScaledArgument::kFar ? ScaledArgument::kFar : above;
  const double n = fma(limited, kLog2E<double>, 0x1.8p52) - 0x1.8p52;
  const double rough = fma(n, -kLn2High<double>, limited);
  const double high = fma(n, -kLn2Low<double>, rough);
  const double low = fma(n, -kLn2Low<double>, rough - high) + rest;
  const double r = high + low;
  const double r_rest = low - (r - high);
  const double bend = fma(r * r, exponential_tail(r), fma(r, r_rest, r_rest));
  const double p = r + bend;
  return {n, p, bend - (p - r)};
}

}  // namespace fastact::inline FASTACT_TARGET

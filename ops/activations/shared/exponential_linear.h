// f(x) = positive x for x > 0, negative (e^(rate x) - 1) for x <= 0: the common formula of ELU and
// CELU.
//
// A call's parameters choose one of three forms: one in float for the defaults, one for ordinary
// parameters, and a longer one for all others.
#pragma once

#include "ops/activations/activation.h"
#include "ops/math/any_rate.h"
#include "ops/math/differentiable.h"

namespace fastact::inline FASTACT_TARGET {

// For the parameters (1, 1, 1): float32's first derivative, in float. It takes 0.48 ns an element,
// in double 0.89 (Zen 4, docs/dev/tuning.md).
struct ExponentialLinearOfOne {
  static constexpr Traits kTraits = {.saves = Saves::kInput, .gradient_from_result = true};

  template <class Element, int Order, bool FromResult>
  static constexpr bool stands_in() {
    return std::is_same_v<Element, float> && Order == 1 && !FromResult;
  }

  FASTACT_INLINE explicit constexpr ExponentialLinearOfOne(const double* /*parameters*/) {}

  // (e^r - 1 - r) / r^2 for |r| <= ln2 / 2, to 2^-28.2 of e^r. Minimax
  // (scripts/coefficients/fit_polynomials.py).
  static constexpr Coefficients kTail{0x1.fffffcp-2f, 0x1.555494p-3f, 0x1.5558bep-5f,
                                      0x1.123856p-7f, 0x1.6a3d06p-10f};

  template <class Element>
  FASTACT_INLINE static auto backward(float g, float x) {
    // The first float for which e^x is at least half the smallest subnormal number. Below it the
    // result is +0 for any g, because zero times any factor is +0.
    constexpr float kVanishing = -0x1.9fe368p6f;
    const SplitExponential slope =
        split_exponential<kTail>(clamp_negative(x, kVanishing), 1.0f, 0.0f);
    const float below_zero = slope.times(x < kVanishing ? 0.0f : g);
    return canonical(x, x > 0.0f ? g : below_zero);
  }
};

// For ordinary parameters. The rate is positive, so the exponential is at most 1. The factors are
// of a size with which no intermediate result of any type overflows or underflows too early, and
// with which rounding the rate to float does not affect 16-bit results.
struct OrdinaryExponentialLinear {
  static constexpr Traits kTraits = {.saves = Saves::kInput, .gradient_from_result = true};
  using Default = ExponentialLinearOfOne;

  template <class Element, int Order, bool FromResult>
  static constexpr bool stands_in() {
    return !FromResult;
  }

  static constexpr bool is_ordinary(double positive, double negative, double rate) {
    const auto is_moderate = [](double x) {
      const double size = x < 0.0 ? -x : x;
      return size >= 0x1p-20 && size <= 0x1p20;
    };
    // Of the factors negative rate^k, checks the first and the last.
    return rate > 0.0 && is_moderate(rate) && is_moderate(positive) && is_moderate(negative) &&
           is_moderate(negative * rate * rate * rate);
  }

  // The rate is rate + rate_low.
  FASTACT_INLINE constexpr OrdinaryExponentialLinear(double positive_, double negative_,
                                                     double rate_, double rate_low_)
      : positive(positive_), negative(negative_), rate(rate_), rate_low(rate_low_) {}

  template <class Element, int Order>
  FASTACT_INLINE Wider<Element> derivative(OpMath<Element> x) const {
    using T = Wider<Element>;
    const T wide = static_cast<T>(x);
    const T z = static_cast<T>(rate) * wide;
    T rest = 0;
    if constexpr (std::is_same_v<Element, double>) rest = fma(rate, x, -z) + rate_low * x;
    if constexpr (Order == 0) {
      // The branch for positive x keeps -0.0 and NaN.
      T below_zero = static_cast<T>(negative) * exponential_minus_one<Element>(z, rest);
      if constexpr (std::is_same_v<Element, double>) {
        // A subnormal z lacks digits, which a factor above 1 would expose. There, e^z - 1 is z.
        const double tiny = factor<1>() * wide;
        below_zero = magnitude(wide) < 0x1p-1000 ? tiny : below_zero;
      }
      return x < 0 ? below_zero : static_cast<T>(positive) * wide;
    } else {
      const T beyond_zero = Order == 1 ? static_cast<T>(positive) : T{0};
      const T below_zero = times_exponential<Element>(static_cast<T>(factor<Order>()), z, rest);
      // The branch for negative x keeps a NaN.
      return wide > T{0} ? beyond_zero : below_zero;
    }
  }

  // True for the default parameters of ELU and CELU.
  FASTACT_INLINE bool approximates() const {
    return positive == 1.0 && negative == 1.0 && rate == 1.0;
  }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    float p;
    if constexpr (std::is_same_v<Element, BFloat16>) {
      p = polynomial<kNearZeroBFloat16>(x);
    } else {
      p = polynomial<kNearZeroFloat16>(x);
    }
    constexpr float kNearZero = std::is_same_v<Element, BFloat16> ? -0.25f : -0.5f;
    const float below_zero = x > kNearZero ? x * p : approximate_exp2(x * kLog2E<float>) - 1.0f;
    return x > 0.0f ? x : below_zero;
  }

 private:
  // (e^x - 1) / x for -1/4 <= x <= 0, to 2^-23.2 of itself
  // (scripts/coefficients/fit_polynomials.py).
  static constexpr Coefficients kNearZeroBFloat16{0x1p0f, 0x1.ffff8ep-2f, 0x1.5555p-3f,
                                                  0x1.563928p-5f, 0x1.11c744p-7f};
  // The same for -1/2 <= x <= 0, to 2^-21.9 of itself.
  static constexpr Coefficients kNearZeroFloat16{0x1p0f,         0x1.000002p-1f, 0x1.5551a8p-3f,
                                                 0x1.555174p-5f, 0x1.1383bcp-7f, 0x1.6f5a12p-10f};

  double positive;
  double negative;
  double rate;
  double rate_low;

  // negative rate^Order
  template <int Order>
  FASTACT_INLINE double factor() const {
    double result = negative;
    for (int i = 0; i < Order; ++i) result *= rate;
    return result;
  }
};

// For any parameters. Every type computes in double, and exponents are kept separately wherever a
// product of parameters and powers may leave the range of double although the result does not. An
// infinite parameter gives the IEEE result of the definition.
struct ExponentialLinear {
  // The gradient from the result is computed in the type's own arithmetic, so the parameters must
  // be far from the limits of its range.
  static constexpr bool result_suffices(double scale, double alpha, double rate) {
    const auto is_moderate = [](double x) {
      const double size = x < 0.0 ? -x : x;
      return size == 0.0 || (size >= 0x1p-100 && size <= 0x1p100);
    };
    return scale > 0.0 && alpha * rate >= 0.0 && is_moderate(scale) && is_moderate(scale * alpha) &&
           is_moderate(rate);
  }

  // positive = scale, negative = scale alpha.
  FASTACT_INLINE ExponentialLinear(double scale, double alpha, const ScaledSum& rate_)
      : positive(scale),
        negative(scale * alpha),
        plain_rate(times_power_of_two(rate_.value.significand, rate_.value.exponent)),
        rate(rate_.value),
        rate_rest(rate_.rest) {
    ScaledSum factor = ScaledSum{scaled(scale), {}} * ScaledSum{scaled(alpha), {}};
    for (int k = 0; k <= kTopOrder; ++k, factor = factor * rate_) factors[k] = factor.value;
  }

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    const auto wide = static_cast<double>(x);
    const ScaledArgument z = scaled_argument(rate, rate_rest, wide);
    if constexpr (Order == 0) {
      // The branch for positive x keeps -0.0 and NaN.
      const double below_zero = value_below_zero(z);
      return narrowed<Element>(wide < 0.0 ? below_zero : positive * wide);
    } else {
      const double beyond_zero = Order == 1 ? positive : 0.0;
      const auto [n, p, rest] = scaled_exponential(z.value, z.rest);
      const double factor = factors[Order].significand;
      // e^r times the factor. An infinite factor would give infinity minus infinity in the sum.
      const double times_infinity = factor * (z.value == -kInfinity ? 0.0 : 1.0);
      const double y = magnitude(factor) == kInfinity ? times_infinity : fma(p, factor, factor);
      const double below_zero = times_power_of_two(y, factors[Order].exponent + n);
      // The branch for negative x keeps a NaN.
      return narrowed<Element>(wide > 0.0 ? beyond_zero : below_zero);
    }
  }

  // d(y) = rate (y + negative) below zero, positive above. Never negative, even if y was rounded to
  // or below its limit.
  template <class Element, int Order>
  FASTACT_INLINE Wider<Element> derivative_from_result(OpMath<Element> y) const {
    using T = Wider<Element>;
    const T wide = static_cast<T>(y);
    T below_zero = 0;
    T beyond_zero = 0;
    if constexpr (Order == 1) {
      below_zero = static_cast<T>(plain_rate) * (wide + static_cast<T>(negative));
      below_zero = below_zero > T{0} ? below_zero : T{0};
      beyond_zero = static_cast<T>(positive);
    } else if constexpr (Order == 2) {
      below_zero = static_cast<T>(plain_rate);
    }
    const T result = wide <= T{0} ? below_zero : beyond_zero;
    return is_nan(wide) ? wide : result;
  }

  // The same condition as in the ordinary form, which these parameters select.
  FASTACT_INLINE bool approximates() const {
    return positive == 1.0 && negative == 1.0 && plain_rate == 1.0;
  }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    return OrdinaryExponentialLinear::approximate_value<Element>(x);
  }

  template <class Tensor>
  Tensor fourth_derivative(const Tensor& x) const {
    // One factor at a time, because rate^4 may be infinite.
    const Tensor second = plain_rate * (plain_rate * exp(plain_rate * fastact::below_zero(x)));
    return where(x > 0.0, 0.0, negative * (plain_rate * (plain_rate * second)));
  }

 private:
  static constexpr double kInfinity = __builtin_huge_val();

  double positive;
  double negative;
  double plain_rate;
  Scaled rate;
  Scaled rate_rest;
  Scaled factors[kTopOrder + 1];  // scale alpha rate^k

  FASTACT_INLINE double value_below_zero(const ScaledArgument& z) const {
    const auto [n, p, rest] = scaled_exponential(z.value, z.rest);
    // From 2^60 on, 1 is negligible beside the power; below 2^-60, the power is negligible beside
    // 1.
    const bool is_large = n > 60.0;
    const double scale = power_of_two(is_large ? 0.0 : clamp_below(n, -60.0));
    const double minus_one = fma(scale, rest, fma(scale, p, is_large ? 1.0 : scale - 1.0));
    const bool is_tiny = z.is_tiny();
    const double y = is_tiny ? factors[1].significand * z.size : factors[0].significand * minus_one;
    const double exponent =
        is_tiny ? factors[1].exponent + z.exponent : factors[0].exponent + (is_large ? n : 0.0);
    return times_power_of_two(y, exponent);
  }
};

}  // namespace fastact::inline FASTACT_TARGET

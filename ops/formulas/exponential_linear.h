// f(x) = positive x for x > 0, negative (e^(rate x) - 1) for x <= 0: what ELU and CELU are.
//
// Any finite numbers will do; the bounds in the headers of both hold with |negative rate^k| up to
// 2^60 (16-bit types), 2^300 (float32) and 2^200 (float64), beyond which intermediate results
// overflow or vanish too early.
#pragma once

#include "ops/formulas/exponential.h"
#include "ops/formulas/formula.h"

namespace fastact::inline FASTACT_TARGET {

// Of (1, 1, 1), float32's first derivative: in float. On a Zen 4 core with AVX-512 it takes 0.48 ns
// an element, in double 0.89, PyTorch's 0.57.
struct ExponentialLinearOfOne {
  static constexpr Traits kTraits = {.saves = Saves::kInput, .gradient_from_result = true};

  template <class Element, int Order>
  static constexpr bool stands_in() {
    return std::is_same_v<Element, float> && Order == 1;
  }

  explicit constexpr ExponentialLinearOfOne(const double* /*parameters*/) {}

  template <class Element>
  FASTACT_INLINE static auto backward(float g, float x) {
    // The first float for which e^x is at least half the smallest subnormal: below, whatever g is,
    // zero times any factor is +0.
    constexpr float kVanishing = -0x1.9fe368p6f;
    // Minimax: within 2^-28.2 of e^r.
    const SplitExponential slope =
        split_exponential(clamp_negative(x, kVanishing), 1.0f, 0.0f, 0x1.fffffcp-2f, 0x1.555494p-3f,
                          0x1.5558bep-5f, 0x1.123856p-7f, 0x1.6a3d06p-10f);
    const float below_zero = slope.times(x < kVanishing ? 0.0f : g);
    return finish(x, x > 0.0f ? g : below_zero);
  }
};

struct ExponentialLinear {
  using Default = ExponentialLinearOfOne;

  // The rate is rate + rate_low.
  constexpr ExponentialLinear(double positive_, double negative_, double rate_, double rate_low_)
      : positive(positive_),
        negative(negative_),
        rate(rate_),
        rate_low(rate_low_),
        value_negative(rate == 0.0 ? (negative < 0.0 ? -0.0 : 0.0)
                                   : (rate == rate ? negative : rate)),
        value_rate(rate == 0.0 ? 1.0 : rate) {}

  double positive;
  double negative;
  double rate;
  double rate_low;
  // The value's own, as exponential_minus_one() makes a number of a NaN: where the rate is 0, so is
  // the value, at -inf too; where it is NaN, so is the value.
  double value_negative;
  double value_rate;

  template <class Element, int Order>
  FASTACT_INLINE Compute<Element> derivative(Wide<Element> x) const {
    using T = Compute<Element>;
    const T wide = static_cast<T>(x);
    const T z = static_cast<T>(Order == 0 ? value_rate : rate) * wide;
    T rest = 0;
    if constexpr (std::is_same_v<Element, double>)
      rest = fma(Order == 0 ? value_rate : rate, x, -z) + rate_low * x;
    if constexpr (Order == 0) {
      // -0.0 and a NaN go the way of the positive, which keeps them.
      const T below_zero = static_cast<T>(value_negative) * exponential_minus_one<Element>(z, rest);
      return x < 0 ? below_zero : static_cast<T>(positive) * wide;
    } else {
      const T beyond_zero = Order == 1 ? static_cast<T>(positive) : T{0};
      const T below_zero = times_exponential<Element>(static_cast<T>(factor<Order>()), z, rest);
      // A NaN goes the way of the negative, which keeps it.
      return wide > T{0} ? beyond_zero : below_zero;
    }
  }

  // d(y) = rate (y + negative) below zero, positive beyond. Never negative, also where y was
  // rounded to or below its limit.
  template <class Element, int Order>
  FASTACT_INLINE Compute<Element> derivative_from_result(Wide<Element> y) const {
    using T = Compute<Element>;
    const T wide = static_cast<T>(y);
    T below_zero = 0;
    T beyond_zero = 0;
    if constexpr (Order == 1) {
      below_zero = static_cast<T>(rate) * (wide + static_cast<T>(negative));
      below_zero = below_zero > T{0} ? below_zero : T{0};
      beyond_zero = static_cast<T>(positive);
    } else if constexpr (Order == 2) {
      below_zero = static_cast<T>(rate);
    }
    const T result = wide <= T{0} ? below_zero : beyond_zero;
    return is_nan(wide) ? wide : result;
  }

#if FASTACT_HAS_APPROXIMATIONS
  // For ELU's and CELU's default parameters.
  FASTACT_INLINE bool approximates() const {
    return positive == 1.0 && negative == 1.0 && rate == 1.0;
  }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    float p;
    if constexpr (std::is_same_v<Element, BFloat16>) {
      p = polynomial(x, 0x1p0f, 0x1.ffff8ep-2f, 0x1.5555p-3f, 0x1.563928p-5f, 0x1.11c744p-7f);
    } else {
      p = polynomial(x, 0x1p0f, 0x1.000002p-1f, 0x1.5551a8p-3f, 0x1.555174p-5f, 0x1.1383bcp-7f,
                     0x1.6f5a12p-10f);
    }
    constexpr float kNearZero = std::is_same_v<Element, BFloat16> ? -0.25f : -0.5f;
    const float below_zero = x > kNearZero ? x * p : approximate_exp2(x * kLog2E) - 1.0f;
    return x > 0.0f ? x : below_zero;
  }
#endif

 private:
  // negative rate^Order
  template <int Order>
  FASTACT_INLINE double factor() const {
    double result = negative;
    for (int i = 0; i < Order; ++i) result *= rate;
    return result;
  }
};

}  // namespace fastact::inline FASTACT_TARGET

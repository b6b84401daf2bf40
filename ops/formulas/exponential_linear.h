// f(x) = positive x for x > 0, negative (e^(rate x) - 1) for x <= 0: what ELU and CELU are.
//
// Any finite numbers will do; the bounds in the headers of both hold with |negative rate^k| up to
// 2^60 (16-bit types), 2^300 (float32) and 2^200 (float64), beyond which intermediate results
// overflow or vanish too early.
#pragma once

#include "ops/formulas/exponential.h"
#include "ops/formulas/formula.h"

namespace fastact::inline FASTACT_TARGET {

struct ExponentialLinear {
  double positive;
  double negative;
  double rate;
  double rate_low;  // rate + rate_low is the rate

  template <class Element, int Order>
  FASTACT_INLINE Compute<Element> derivative(Wide<Element> x) const {
    using T = Compute<Element>;
    const T wide = static_cast<T>(x);
    const T z = static_cast<T>(rate) * wide;
    T rest = 0;
    if constexpr (std::is_same_v<Element, double>) rest = fma(rate, x, -z) + rate_low * x;
    if constexpr (Order == 0) {
      // -0.0 goes the way of the positive, which keeps its sign.
      const T below_zero = static_cast<T>(negative) * exponential_minus_one<Element>(z, rest);
      return wide < T{0} ? below_zero : static_cast<T>(positive) * wide;
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

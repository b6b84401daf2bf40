// Sigmoid: f(x) = 1 / (1 + e^-x).
#pragma once

#include "ops/formulas/formula.h"
#include "ops/formulas/logistic.h"

namespace fastact::inline FASTACT_TARGET {

struct Sigmoid {
  static constexpr Traits kTraits = {.saves = Saves::kOutput, .gradient_from_result = true};

  explicit constexpr Sigmoid(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE Wide<Element> derivative(Wide<Element> x) const {
    static_assert(Order == 0);
    using T = Wide<Element>;
    if constexpr (kIs16Bit<Element>) {
      return logistic_16<Element>(x);
    } else {
      const auto tail = logistic_tail(clamp_magnitude(x, kLogisticEnd<T>));
      const T near = tail.of_one() * tail.scale;
      const T base = x < T{0} ? T{0} : T{1};
      const T factor = x < T{0} ? kUnguard<T> : -kUnguard<T>;
      return fma(near, factor, base);
    }
  }

  // d(y) = y (1 - y), d' = 1 - 2y, d'' = -2; for float32 in double, where 1 - y is exact.
  template <class Element, int Order>
  FASTACT_INLINE auto derivative_from_result(Wide<Element> y) const {
    using T = std::conditional_t<kIs16Bit<Element>, float, double>;
    const auto wide = static_cast<T>(y);
    if constexpr (Order == 1) {
      return wide * (T{1} - wide);
    } else if constexpr (Order == 2) {
      return fma(T{-2}, wide, T{1});
    } else {
      return is_nan(wide) ? wide : T{-2};
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

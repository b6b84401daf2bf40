// PReLU's derivative by its weight: df/dw = 0 for x > 0, x for x <= 0, NaN for NaN.
//
// Order 1 is g df/dw, Order 2 its derivative by x: g1 g2 for x <= 0, else 0. Correctly rounded in
// every type, as prelu.h.
#pragma once

#include "ops/formulas/formula.h"

namespace fastact::inline FASTACT_TARGET {

struct PreluWeight {
  static constexpr Traits kTraits = {.first_order = 1, .last_order = 2, .self_leads = true};

  explicit constexpr PreluWeight(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE Wide<Element> derivative(Wide<Element> x) const {
    using T = Wide<Element>;
    if constexpr (Order == 1) return x > T{0} ? T{0} : x;
    const T result = x > T{0} ? T{0} : T{1};
    return is_nan(x) ? x : result;
  }
};

}  // namespace fastact::inline FASTACT_TARGET

// PReLU: f(w, x) = x for x > 0, w x for x <= 0, with a weight w for each element.
//
// Range: every input. A NaN weight leaves positive x as they are. f(w, -0.0) = -0.0 for a positive
// weight.
//
// Correctly rounded in every type: one product, which float has exactly for 16-bit operands, or
// nearer to zero than the type's smallest number.
//
// df/dx = 1 for x > 0, w for x <= 0, NaN for NaN. prelu_weight.h has df/dw.
//
// Source: He et al., "Delving Deep into Rectifiers: Surpassing Human-Level Performance on ImageNet
// Classification", 2015.
#pragma once

#include "ops/formulas/formula.h"

namespace fastact::inline FASTACT_TARGET {

struct Prelu {
  static constexpr Traits kTraits = {
      .first_order = 1, .last_order = 2, .weighted = true, .self_leads = true};

  explicit constexpr Prelu(const double* /*parameters*/) {}

  template <class Element>
  FASTACT_INLINE Wide<Element> backward(Wide<Element> w, Wide<Element> x) const {
    const Wide<Element> below_zero = w * x;
    return x > Wide<Element>{0} ? x : below_zero;
  }

  template <class Element>
  FASTACT_INLINE auto backward(Wide<Element> g, Wide<Element> w, Wide<Element> x) const {
    using T = Wide<Element>;
    const T below_zero = w == T{0} ? T{0} : g * w;
    return finish_unrounded<Element>(x, x > T{0} ? g : below_zero);
  }
};

}  // namespace fastact::inline FASTACT_TARGET

// Squared ReLU: f(x) = max(x, 0)^2.
//
// Range: every input. squared_relu(-0.0) = +0.0.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        0.5  0.5  0.5  0.5
//   float64        0.5  0.5  0.5  0.5
//
// f'(x) = 2x for x > 0, f''(x) = 2 for x > 0, 0 for x <= 0; f''' = 0.
//
// Source: So et al., "Primer: Searching for Efficient Transformers for Language Modeling", 2021.
#pragma once

#include "ops/activations/activation.h"

namespace fastact::inline FASTACT_TARGET {

struct SquaredRelu {
  static constexpr Traits kTraits = {.saves = Saves::kInput};

  FASTACT_INLINE explicit constexpr SquaredRelu(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    // A square is rounded once in any type. 2x times a gradient needs a range larger than that of
    // float.
    if constexpr (Order == 0) {
      const auto positive = clamp_below(x, OpMath<Element>{0});  // or a zero of either sign
      return positive * positive;
    } else {
      using T = Wider<Element>;
      const T wide = static_cast<T>(x);
      T positive = 0;
      if constexpr (Order == 1) {
        positive = wide + wide;
      } else if constexpr (Order == 2) {
        positive = 2;
      }
      const T result = wide > T{0} ? positive : T{0};
      return is_nan(wide) ? wide : result;
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

// ReLU: f(x) = max(x, 0).
//
// Range: every input. relu(-0.0) = -0.0, as in PyTorch on the CPU. relu(NaN) = NaN.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        0.5  0.5  0.5  0.5
//   float64        0.5  0.5  0.5  0.5
//
// f'(x) = 1 for x > 0, 0 for x <= 0. f'(NaN) = NaN, where PyTorch passes the gradient on. f'' and
// f''' are 0. The result is positive exactly where the input is, so every derivative can be
// computed from the result.
//
// Source: the definition (Nair and Hinton, 2010).
#pragma once

#include "ops/activations/activation.h"

namespace fastact::inline FASTACT_TARGET {

struct Relu {
  static constexpr Traits kTraits = {.saves = Saves::kResultAsInput};

  FASTACT_INLINE explicit constexpr Relu(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    using T = OpMath<Element>;
    if constexpr (Order == 0) {
      return canonical(x, at_least(x, T{0}));
    } else {
      return is_nan(x) ? x : T{0};
    }
  }

  template <class Element>
  FASTACT_INLINE auto backward(OpMath<Element> g, OpMath<Element> x) const {
    using T = OpMath<Element>;
    return canonical(x, x > T{0} ? g : T{0});
  }

  template <class Element>
  FASTACT_INLINE static float unrounded(float x) {
    return clamp_below(x, 0.0f);
  }
};

}  // namespace fastact::inline FASTACT_TARGET

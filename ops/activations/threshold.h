// Threshold: f(x) = x for x > threshold, value for x <= threshold.
//
// Range: every input; NaN stays NaN. Except in float64, the threshold is rounded to float32.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        0.5  0.5  0.5  0.5
//   float64        0.5  0.5  0.5  0.5
//
// f'(x) = 1 for x > threshold, 0 for x <= threshold. f'(NaN) = NaN, where PyTorch passes the
// gradient on. f'' and f''' are 0. If value > threshold, the result does not determine on which
// side of the threshold the input was. If the two are close, rounding hides it as well. So the
// in-place form saves its input, as in PyTorch.
//
// Source: torch.nn.Threshold's definition.
#pragma once

#include "ops/activations/activation.h"

namespace fastact::inline FASTACT_TARGET {

struct Threshold {
  static constexpr Traits kTraits = {.saves = Saves::kInput};
  static constexpr Parameter kParameters[] = {{"threshold"}, {"value"}};

  double threshold;
  double value;

  FASTACT_INLINE explicit constexpr Threshold(const double* parameters)
      : threshold(parameters[0]), value(parameters[1]) {}

  template <class Element, int Order>
  FASTACT_INLINE OpMath<Element> derivative(OpMath<Element> x) const {
    using T = OpMath<Element>;
    const T below = Order == 0 ? static_cast<T>(value) : T{0};
    const T above = Order == 0 ? x : T{0};
    const T result = x <= static_cast<T>(threshold) ? below : above;
    if constexpr (Order == 0) {
      return result;  // keeps a NaN
    } else {
      return is_nan(x) ? x : result;
    }
  }

  template <class Element>
  FASTACT_INLINE auto backward(OpMath<Element> g, OpMath<Element> x) const {
    using T = OpMath<Element>;
    return canonical(x, x <= static_cast<T>(threshold) ? T{0} : g);
  }
};

}  // namespace fastact::inline FASTACT_TARGET

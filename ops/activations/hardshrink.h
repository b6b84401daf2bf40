// Hardshrink: f(x) = 0 for |x| <= lambd, else x.
//
// Range: every input. hardshrink(-0.0) = +0.0. Except in float64, lambd is rounded to float32. A
// negative lambd shrinks nothing.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        0.5  0.5  0.5  0.5
//   float64        0.5  0.5  0.5  0.5
//
// f'(x) = 0 for |x| <= lambd, else 1. f'(NaN) = NaN, where PyTorch passes the gradient on. f'' and
// f''' are 0. Derivatives can be computed from the result, which is either the input or 0.
//
// Source: torch.nn.Hardshrink's definition (hard thresholding in Donoho and Johnstone, 1994).
#pragma once

#include "ops/activations/activation.h"

namespace fastact::inline FASTACT_TARGET {

struct Hardshrink {
  static constexpr Traits kTraits = {.saves = Saves::kInputOrResultAsInput};
  static constexpr Parameter kParameters[] = {{"lambd", 0.5}};

  double lambd;

  FASTACT_INLINE explicit constexpr Hardshrink(const double* parameters) : lambd(parameters[0]) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    using T = OpMath<Element>;
    if constexpr (Order == 0) {
      return canonical(x, magnitude(x) <= static_cast<T>(lambd) ? T{0} : x);
    } else {
      return is_nan(x) ? x : T{0};
    }
  }

  template <class Element>
  FASTACT_INLINE auto backward(OpMath<Element> g, OpMath<Element> x) const {
    using T = OpMath<Element>;
    return canonical(x, magnitude(x) <= static_cast<T>(lambd) ? T{0} : g);
  }

  template <class Element>
  FASTACT_INLINE float unrounded(float x) const {
    return magnitude(x) <= static_cast<float>(lambd) ? 0.0f : x;
  }
};

}  // namespace fastact::inline FASTACT_TARGET

// Softshrink: f(x) = x - lambd for x > lambd, x + lambd for x < -lambd, else 0.
//
// Range: every input. softshrink(-0.0) = +0.0. A negative or NaN lambd is an error, as in PyTorch.
// Except in float64, lambd is rounded to float32.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        0.5  0.5  0.5  0.5
//   float64        0.5  0.5  0.5  0.5
//
// f'(x) = 0 for |x| <= lambd, else 1. f'(NaN) = NaN, where PyTorch passes the gradient on. f'' and
// f''' are 0.
//
// Source: torch.nn.Softshrink's definition (soft thresholding in Donoho and Johnstone, 1994).
#pragma once

#include "ops/activations/activation.h"

namespace fastact::inline FASTACT_TARGET {

struct Softshrink {
  static constexpr Traits kTraits = {.saves = Saves::kInput};
  static constexpr Parameter kParameters[] = {{"lambd", 0.5}};
  static constexpr Requirement kRequirements[] = {
      {.parameter = 0, .expected = "at least 0", .holds = [](const double* parameters) {
         return parameters[0] >= 0;
       }}};

  double lambd;

  FASTACT_INLINE explicit constexpr Softshrink(const double* parameters) : lambd(parameters[0]) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    using T = OpMath<Element>;
    if constexpr (Order == 0) {
      return with_nan_of<Element>(x, shrunk(x));
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
    return shrunk(x);
  }

 private:
  template <class T>
  FASTACT_INLINE T shrunk(T x) const {
    const T limit = static_cast<T>(lambd);
    const T beyond = x - with_sign_of(limit, x);
    return magnitude(x) <= limit ? T{0} : beyond;
  }
};

}  // namespace fastact::inline FASTACT_TARGET

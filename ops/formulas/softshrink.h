// Softshrink: f(x) = x - lambd for x > lambd, x + lambd for x < -lambd, else 0.
//
// Range: every input. softshrink(-0.0) = +0.0. A negative or NaN lambd is an error, as in PyTorch.
// In 16 bits lambd is rounded to float32.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        0.5  0.5  0.5  0.5
//   float64        0.5  0.5  0.5  0.5
//
// f'(x) = 0 for |x| <= lambd, else 1, NaN for NaN (where PyTorch passes the gradient on); f'' and
// f''' are 0.
//
// Source: torch.nn.Softshrink's definition (soft thresholding in Donoho and Johnstone, 1994).
#pragma once

#include "ops/formulas/formula.h"

namespace fastact::inline FASTACT_TARGET {

struct Softshrink {
  static constexpr Traits kTraits = {.saves = Saves::kInput};
  static constexpr Requirement kRequirements[] = {
      {.parameter = 0, .expected = "at least 0", .holds = [](const double* parameters) {
         return parameters[0] >= 0;
       }}};

  double lambd;

  explicit constexpr Softshrink(const double* parameters) : lambd(parameters[0]) {}

  template <class Element, int Order>
  FASTACT_INLINE Compute<Element> derivative(Wide<Element> x) const {
    using T = Compute<Element>;
    const T wide = static_cast<T>(x);
    const T limit = static_cast<T>(lambd);
    const T shift = wide > T{0} ? limit : -limit;
    const T beyond = Order == 0 ? wide - shift : T{Order == 1};
    const T result = magnitude(wide) <= limit ? T{0} : beyond;
    return is_nan(wide) ? wide : result;
  }
};

}  // namespace fastact::inline FASTACT_TARGET

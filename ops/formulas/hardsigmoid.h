// Hardsigmoid: f(x) = 0 for x <= -3, 1 for x >= 3, else (x + 3) / 6.
//
// Range: every input.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        0.5  0.5  0.5  0.5
//   float64        1.5  0.5  0.5  0.5
//
// f'(x) = 1/6 for -3 < x < 3, 0 elsewhere and at the bounds, NaN for NaN; f'' and f''' are 0.
//
// Source: torch.nn.Hardsigmoid's definition (Courbariaux et al., "BinaryConnect", 2015, with the
// slope of Howard et al., "Searching for MobileNetV3", 2019).
#pragma once

#include "ops/formulas/formula.h"

namespace fastact::inline FASTACT_TARGET {

struct Hardsigmoid {
  static constexpr Traits kTraits = {.saves = Saves::kInput};

  explicit constexpr Hardsigmoid(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE Compute<Element> derivative(Wide<Element> x) const {
    using T = Compute<Element>;
    const T wide = static_cast<T>(x);
    if constexpr (Order == 0) {
      const T above = wide < T{-3} ? T{-3} : wide;
      return ((above > T{3} ? T{3} : above) + T{3}) * static_cast<T>(0x1.5555555555555p-3);
    } else {
      const T slope = magnitude(wide) < T{3} ? T{Order == 1} / T{6} : T{0};
      return is_nan(wide) ? wide : slope;
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

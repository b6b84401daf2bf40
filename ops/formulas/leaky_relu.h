// Leaky ReLU: f(x) = x for x > 0, negative_slope x for x <= 0.
//
// Range: every input. leaky_relu(-0.0) = -0.0 for a positive slope.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        0.5  0.5  0.5  0.5
//   float64        0.5  0.5  0.5  0.5
//
// f'(x) = 1 for x > 0, negative_slope for x <= 0, NaN for NaN; f'' and f''' are 0. From the result
// (in-place calls): the same, if the slope is at least 0. A negative slope maps both sides of zero
// to positive results, which do not tell where the input was: in place the input is kept then.
//
// Source: Maas, Hannun and Ng, "Rectifier Nonlinearities Improve Neural Network Acoustic Models",
// 2013.
#pragma once

#include "ops/formulas/formula.h"

namespace fastact::inline FASTACT_TARGET {

struct LeakyRelu {
  static constexpr Traits kTraits = {.saves = Saves::kInput, .gradient_from_result = true};
  static constexpr bool result_suffices(const double* parameters) { return parameters[0] >= 0; }

  double slope;

  explicit constexpr LeakyRelu(const double* parameters) : slope(parameters[0]) {}

  template <class Element, int Order>
  FASTACT_INLINE Compute<Element> derivative(Wide<Element> x) const {
    using T = Compute<Element>;
    const T wide = static_cast<T>(x);
    if constexpr (Order == 0) {
      const T below_zero = times_slope<Element>(wide);
      return wide > T{0} ? wide : below_zero;
    } else {
      const T below_zero = Order == 1 ? static_cast<T>(slope) : T{0};
      const T result = wide > T{0} ? T{Order == 1} : below_zero;
      return is_nan(wide) ? wide : result;
    }
  }

  template <class Element, int Order>
  FASTACT_INLINE Compute<Element> derivative_from_result(Wide<Element> y) const {
    return derivative<Element, Order>(y);
  }

 private:
  // 0.01 x is within 2^-55 of a tie for many x whose result is subnormal: the product's rest
  // decides.
  template <class Element>
  FASTACT_INLINE Compute<Element> times_slope(Compute<Element> x) const {
    if constexpr (std::is_same_v<Element, double>) {
      return slope * x;
    } else if constexpr (std::is_same_v<Element, float>) {
      const double product = slope * x;
      return round_to_odd(product, fma(slope, x, -product));
    } else {
      // The slope in three pieces; the rest times 2^40, so that it is not below float's range.
      const float high = static_cast<float>(slope);
      const float middle = static_cast<float>(slope - high);
      const float low = static_cast<float>(slope - high - middle);
      const float product = high * x;
      const float rest = fma(high * 0x1p40f, x, product * -0x1p40f);
      return round_to_odd(product, fma(low * 0x1p40f, x, fma(middle * 0x1p40f, x, rest)));
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

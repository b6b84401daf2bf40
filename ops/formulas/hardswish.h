// Hardswish: f(x) = 0 for x <= -3, x for x >= 3, else x (x + 3) / 6.
//
// Range: every input. hardswish(-0.0) = -0.0; for x <= -3, minus infinity included, +0.0 (PyTorch
// has -0.0 there, and NaN at minus infinity).
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        0.5  0.5  0.5  0.5
//   float64        1.5  1.5  0.5  0.5
//
// f'(x) = 0 for x <= -3, 1 for x >= 3, else (2x + 3) / 6; f''(x) = 1/3 for -3 < x < 3, 0 elsewhere;
// f''' = 0. At the bounds as PyTorch's.
//
// Source: Howard et al., "Searching for MobileNetV3", 2019.
#pragma once

#include "ops/formulas/formula.h"

namespace fastact::inline FASTACT_TARGET {

struct Hardswish {
  static constexpr Traits kTraits = {.saves = Saves::kInput};

  explicit constexpr Hardswish(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE Compute<Element> derivative(Wide<Element> x) const {
    using T = Compute<Element>;
    const T wide = static_cast<T>(x);
    T between = 0;
    T beyond = 0;
    if constexpr (Order == 0) {
      between = value_between<Element>(wide);
      beyond = wide;
    } else if constexpr (Order == 1) {
      between = slope_between<Element>(wide);
      beyond = 1;
    } else if constexpr (Order == 2) {
      between = static_cast<T>(kThird);
    }
    const T outside = wide > T{0} ? beyond : T{0};
    const T result = magnitude(wide) < T{3} ? between : outside;
    return is_nan(wide) ? wide : result;
  }

 private:
  static constexpr double kThird = 0x1.5555555555555p-2;
  static constexpr double kSixth = 0x1.5555555555555p-3;

  template <class Element>
  FASTACT_INLINE static Compute<Element> value_between(Compute<Element> x) {
    using T = Compute<Element>;
    const T sum = x + T{3};
    if constexpr (std::is_same_v<Element, double>) {
      // With the rests of the sum and of the product; x / 2 for tiny x, whose zeros have signs.
      const double product = x * sum;
      const double rest = fma(x, sum, -product) + x * (x - (sum - 3.0));
      const double value = quotient(product, rest, 6.0, kSixth);
      return magnitude(x) <= 0x1p-60 ? 0.5 * x : value;
    } else {
      // For tiny x it is just above x / 2, which may be half a subnormal number: a tie.
      constexpr T kTiny = kIs16Bit<Element> ? 0x1p-23 : 0x1p-60;
      const T above_half = round_to_odd(T{0.5} * x, T{1});
      const T value = x * sum * static_cast<T>(kSixth);
      return magnitude(x) <= kTiny ? above_half : value;
    }
  }

  template <class Element>
  FASTACT_INLINE static Compute<Element> slope_between(Compute<Element> x) {
    using T = Compute<Element>;
    const T sum = x + T{1.5};
    if constexpr (std::is_same_v<Element, double>) {
      const double of_x = sum - 1.5;
      const double rest = (x - of_x) + (1.5 - (sum - of_x));
      return quotient(sum, rest, 3.0, kThird);
    } else {
      return sum * static_cast<T>(kThird);
    }
  }

  // (a + rest) / divisor, without a division.
  FASTACT_INLINE static double quotient(double a, double rest, double divisor, double inverse) {
    const double first = a * inverse;
    return fma(fma(-divisor, first, a) + rest, inverse, first);
  }
};

}  // namespace fastact::inline FASTACT_TARGET

// Leaky ReLU: f(x) = x for x > 0, negative_slope x for x <= 0.
//
// Range: every input. leaky_relu(-0.0) = -0.0 for a positive slope. Except in float64, a slope
// beyond float32's range is infinite.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        1    0.5  0.5  0.5
//   float64        0.5  0.5  0.5  0.5
//
// In float32 more than 0.51 only where the result is subnormal: the slope is a sum of two floats,
// and the second one's product is rounded there, too.
//
// f'(x) = 1 for x > 0, negative_slope for x <= 0, NaN for NaN; f'' and f''' are 0. From the result
// (in-place calls): the same, if the slope is at least 0. A negative slope maps both sides of zero
// to positive results, which do not tell where the input was: in place the input is kept then.
//
// Source: Maas, Hannun and Ng, "Rectifier Nonlinearities Improve Neural Network Acoustic Models",
// 2013.
#pragma once

#include <cmath>

#include "ops/formulas/double_float.h"
#include "ops/formulas/formula.h"

namespace fastact::inline FASTACT_TARGET {

struct LeakyRelu {
  static constexpr Traits kTraits = {
      .saves = Saves::kInput, .gradient_from_result = true, .piecewise_polynomial = true};
  static constexpr bool result_suffices(const double* parameters) { return parameters[0] >= 0; }

  double slope;
  // The same as a sum of one sign.
  float high;
  float low;
  // For 16 bits: the float next to the slope, further from zero, and the least float with its sign;
  // the slope itself and a zero, if it is a float.
  float beyond;
  float least;

  explicit LeakyRelu(const double* parameters)
      : slope(parameters[0]),
        high(towards_zero(slope)),
        low(with_sign_of(std::isfinite(slope) ? towards_zero(slope - high) : 0.0f, high)),
        beyond(beyond_of(slope, high)),
        least(with_sign_of(beyond == slope ? 0.0f : 0x1p-149f, high)) {}

  template <class Element, int Order>
  FASTACT_INLINE Wide<Element> derivative(Wide<Element> x) const {
    using T = Wide<Element>;
    if constexpr (Order == 0) {
      const T below_zero = times_slope<Element>(x);
      return x > T{0} ? x : below_zero;
    } else {
      return is_nan(x) ? x : T{0};
    }
  }

  template <class Element>
  FASTACT_INLINE Wide<Element> backward(Wide<Element> g, Wide<Element> x) const {
    using T = Wide<Element>;
    T product = 0;
    if constexpr (kIs16Bit<Element>) {
      product = static_cast<T>(slope) * g;
    } else {
      product = times_slope<Element>(g);
    }
    const T below_zero = slope == 0 ? T{0} : product;
    const T result = x > T{0} ? g : below_zero;
    return is_nan(x) ? x : result;
  }

  template <class Element, int Order>
  FASTACT_INLINE Wide<Element> derivative_from_result(Wide<Element> y) const {
    return derivative<Element, Order>(y);
  }

  template <class Element>
  FASTACT_INLINE Wide<Element> backward_from_result(Wide<Element> g, Wide<Element> y) const {
    return backward<Element>(g, y);
  }

 private:
  // Beyond float's range it is infinite.
  static float towards_zero(double x) {
    const float nearest = static_cast<float>(x);
    const bool is_too_large = magnitude(nearest) > magnitude(x) && !std::isinf(nearest);
    return is_too_large ? std::nextafter(nearest, 0.0f) : nearest;
  }

  // At the ends of float's range, where the next float is far off or infinite, the nearest one.
  static float beyond_of(double slope, float high) {
    const float next = std::nextafter(high, std::copysign(INFINITY, high));
    const bool is_ordinary = magnitude(high) >= 0x1p-126f && !std::isinf(next);
    return is_ordinary && magnitude(slope) > magnitude(high) ? next : static_cast<float>(slope);
  }

  template <class Element>
  FASTACT_INLINE Wide<Element> times_slope(Wide<Element> x) const {
    if constexpr (std::is_same_v<Element, double>) {
      return slope * x;
    } else if constexpr (std::is_same_v<Element, float>) {
      return DoubleFloat{high, low}.times(x);
    } else {
      // 0.01 x is within 2^-55 of a tie for many x whose result is subnormal, always on the side
      // away from zero: there is the product with a slightly larger slope as well. Below float's
      // range that product is rounded to a tie; the least float moves it on.
      const uint32_t sign = to_bits(x) & 0x80000000u;
      return fma(beyond, x, from_bits(to_bits(least) ^ sign));
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

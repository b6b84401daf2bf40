// Leaky ReLU: f(x) = x for x > 0, negative_slope x for x <= 0.
//
// Range: every input, and every slope. leaky_relu(-0.0) = -0.0 for a positive slope.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        1    0.5  0.5  0.5
//   float64        0.5  0.5  0.5  0.5
//
// The float32 error is above 0.51 only if the result is subnormal. The slope is a sum of two
// floats, and for subnormal results the product with the second one is rounded as well.
//
// f'(x) = 1 for x > 0, negative_slope for x <= 0. f'(NaN) = NaN. f'' and f''' are 0. From the
// result (in-place calls), f' is the same if the slope is at least 0. A negative slope maps both
// sides of zero to positive results, which do not determine the sign of the input. Then the
// in-place form saves its input.
//
// Source: Maas, Hannun and Ng, "Rectifier Nonlinearities Improve Neural Network Acoustic Models",
// 2013.
#pragma once

#include "ops/activations/activation.h"
#include "ops/math/double_float.h"

namespace fastact::inline FASTACT_TARGET {

// A slope of ordinary size, whose first digits fit into a normal float.
struct OrdinaryLeakyRelu {
  static constexpr Traits kTraits = {
      .saves = Saves::kInput, .gradient_from_result = true, .breaks_ties_at_zero = true};

  template <class Element, int Order, bool FromResult>
  static constexpr bool stands_in() {
    return true;
  }

  double slope;
  // The slope as a sum of two floats with the same sign.
  float high;
  float low;
  // For 16-bit types. If the slope is a float: the slope itself and a zero. Otherwise: the
  // neighbouring float further from zero, and the smallest float with its sign.
  float beyond;
  float least;

  FASTACT_INLINE explicit OrdinaryLeakyRelu(const double* parameters)
      : slope(parameters[0]),
        high(towards_zero(slope)),
        low(with_sign_of(towards_zero(slope - high), high)),
        beyond(beyond_of(slope, high)),
        least(with_sign_of(beyond == slope ? 0.0f : 0x1p-149f, high)) {}

  template <class Element, int Order>
  FASTACT_INLINE OpMath<Element> derivative(OpMath<Element> x) const {
    using T = OpMath<Element>;
    if constexpr (Order == 0) {
      const T below_zero = times_slope<Element>(x);
      return x > T{0} ? x : below_zero;
    } else {
      return is_nan(x) ? x : T{0};
    }
  }

  template <class Element>
  FASTACT_INLINE auto backward(OpMath<Element> g, OpMath<Element> x) const {
    using T = OpMath<Element>;
    T product = 0;
    if constexpr (kIs16Bit<Element>) {
      product = static_cast<T>(slope) * g;
    } else {
      product = times_slope<Element>(g);
    }
    const T below_zero = slope == 0 ? T{0} : product;
    return with_nan_of<Element>(x, x > T{0} ? g : below_zero);
  }

  template <class Element, int Order>
  FASTACT_INLINE OpMath<Element> derivative_from_result(OpMath<Element> y) const {
    return derivative<Element, Order>(y);
  }

  template <class Element>
  FASTACT_INLINE auto backward_from_result(OpMath<Element> g, OpMath<Element> y) const {
    return backward<Element>(g, y);
  }

  template <class Element>
  FASTACT_INLINE float unrounded(float x) const {
    const float below_zero = static_cast<float>(slope) * x;
    return x > 0.0f ? x : below_zero;
  }

 private:
  // Neighbouring floats of the same sign have neighbouring bit patterns.
  FASTACT_INLINE static float towards_zero(double x) {
    const float nearest = static_cast<float>(x);
    return magnitude(nearest) > magnitude(x) ? from_bits(to_bits(nearest) - 1) : nearest;
  }

  FASTACT_INLINE static float beyond_of(double slope, float high) {
    return magnitude(slope) > magnitude(high) ? from_bits(to_bits(high) + 1) : high;
  }

  // Returns x, or if `condition` is true the zero with its sign. This avoids 0 times infinity.
  FASTACT_INLINE static float only_sign_if(bool condition, float x) {
    return from_bits(to_bits(x) & (condition ? 0x80000000u : 0xffffffffu));
  }

  template <class Element>
  FASTACT_INLINE OpMath<Element> times_slope(OpMath<Element> x) const {
    if constexpr (std::is_same_v<Element, double>) {
      return slope * x;
    } else if constexpr (std::is_same_v<Element, float>) {
      return fma(high, x, only_sign_if(low == 0.0f, x) * low);
    } else if constexpr (std::is_same_v<Element, Float16>) {
      return beyond * x;
    } else {
      // 0.01 x is within 2^-55 of a tie for many x whose result is subnormal, always on the side
      // away from zero. The product with a slightly larger slope is on the same side. Below the
      // range of float, that product is rounded to a tie, and the smallest float moves it off. The
      // step is added by a sum: an fma with a subnormal operand is slow on Intel processors
      // (docs/dev/tuning.md).
      const uint32_t sign = to_bits(x) & 0x80000000u;
      return beyond * x + from_bits(to_bits(least) ^ sign);
    }
  }
};

// Any slope, by products in double.
struct LeakyRelu {
  static constexpr Traits kTraits = {
      .saves = Saves::kInput, .gradient_from_result = true, .breaks_ties_at_zero = true};
  static constexpr Parameter kParameters[] = {{"negative_slope", 0.01}};
  using Default = OrdinaryLeakyRelu;

  static constexpr bool is_default(const double* parameters) {
    const double size = parameters[0] < 0.0 ? -parameters[0] : parameters[0];
    return size == 0.0 || (size >= 0x1p-100 && size <= 0x1p100);
  }
  static constexpr bool result_suffices(const double* parameters) { return parameters[0] >= 0; }

  FASTACT_INLINE explicit constexpr LeakyRelu(const double* parameters) : slope(parameters[0]) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    const auto wide = static_cast<double>(x);
    if constexpr (Order == 0) {
      const double below_zero = slope * wide;
      return narrowed<Element>(x > OpMath<Element>{0} ? wide : below_zero);
    } else {
      return narrowed<Element>(is_nan(wide) ? wide : 0.0);
    }
  }

  template <class Element>
  FASTACT_INLINE auto backward(OpMath<Element> g, OpMath<Element> x) const {
    const double below_zero = slope * static_cast<double>(g);
    const double result = x > OpMath<Element>{0} ? static_cast<double>(g) : below_zero;
    return narrowed<Element>(is_nan(x) ? static_cast<double>(x) : result);
  }

  template <class Element, int Order>
  FASTACT_INLINE auto derivative_from_result(OpMath<Element> y) const {
    return derivative<Element, Order>(y);
  }

  template <class Element>
  FASTACT_INLINE auto backward_from_result(OpMath<Element> g, OpMath<Element> y) const {
    return backward<Element>(g, y);
  }

 private:
  double slope;
};

}  // namespace fastact::inline FASTACT_TARGET

// Hardswish: f(x) = 0 for x <= -3, x for x >= 3, else x (x + 3) / 6.
//
// Range: every input. hardswish(-0.0) = -0.0; for x <= -3, minus infinity included, +0.0 (PyTorch
// has -0.0 there, and NaN at minus infinity).
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        1.9  0.51 0.5  0.5
//   float64        1.5  1.5  0.5  0.5
//
// f'(x) = 0 for x <= -3, 1 for x >= 3, else (2x + 3) / 6; f''(x) = 1/3 for -3 < x < 3, 0 elsewhere;
// f''' = 0. At the bounds as PyTorch's.
//
// Source: Howard et al., "Searching for MobileNetV3", 2019.
#pragma once

#include "ops/activations/activation.h"
#include "ops/math/double_float.h"

namespace fastact::inline FASTACT_TARGET {

struct Hardswish {
  static constexpr Traits kTraits = {.saves = Saves::kInput};

  FASTACT_INLINE explicit constexpr Hardswish(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    using T = std::conditional_t<(Order < 2), OpMath<Element>, Wider<Element>>;
    if constexpr (Order == 0 && std::is_same_v<Element, double>) {
      const auto factor = sixth_of_sum(x);
      const double between = fma(x, factor.high, x * (factor.rest * factor.inverse));
      const double below = x < 3.0 ? between : x;  // a NaN too
      return x <= -3.0 ? 0.0 : below;
    } else if constexpr (Order == 0 && kIs16Bit<Element>) {
      return value_16<Element>(clamp_below(x, -3.0f));
    } else if constexpr (Order == 0) {
      // With x clamped the factor is 1 from 3 on.
      const float factor = sixth_of(clamp_ordered(x, -3.0f, 3.0f) + 3.0f);
      return canonical_positive(x, x > -3.0f ? x * factor : 0.0f);
    } else if constexpr (Order == 1) {
      return either(x, slope_between<Element>(x), T{1});
    } else {
      return either(static_cast<T>(x), static_cast<T>(Order == 2 ? kThird : 0.0), T{0});
    }
  }

  template <class Element>
  FASTACT_INLINE auto backward(OpMath<Element> g, OpMath<Element> x) const {
    using T = OpMath<Element>;
    T between = 0;
    if constexpr (std::is_same_v<Element, float>) {
      const auto slope = quotient_between(x);
      between = slope.high == 0.0f ? 0.0f : slope.sum().times(g);
    } else {
      const T slope = slope_between<Element>(x);
      between = slope == T{0} ? T{0} : slope * g;
    }
    const T below = x < T{3} ? between : g;
    return with_nan_of<Element>(x, x <= T{-3} ? T{0} : below);
  }

  template <class Element>
  FASTACT_INLINE static float unrounded(float x) {
    const float from_zero = clamp_below(x, -3.0f);  // minus infinity too: no product with 0
    return from_zero * ((clamp_above(from_zero, 3.0f) + 3.0f) * static_cast<float>(kSixth));
  }

 private:
  static constexpr double kThird = 1.0 / 3.0;
  static constexpr double kSixth = 1.0 / 6.0;
  // See divide(); in double it is the nearest, as no product is made of the quotient's parts.
  template <class T>
  static constexpr T kInverseOf3 = std::is_same_v<T, float> ? T{kBelowThird} : T{kThird};

  template <class T>
  FASTACT_INLINE static T either(T x, T between, T beyond) {
    const T outside = x > T{0} ? beyond : T{0};
    const T result = magnitude(x) < T{3} ? between : outside;
    return is_nan(x) ? x : result;
  }

  // x (x + 3) / 6 for x >= -3, to be rounded to 16 bits.
  template <class Element>
  FASTACT_INLINE static float value_16(float x) {
    // Both factors are negated: so this is -0.0 at -3, and the product +0.0.
    const float factor = (-3.0f - clamp_above(x, 3.0f)) * -static_cast<float>(kSixth);
    const float product = x * factor;
    // For tiny x it is just above x / 2, which may be half a subnormal number: a tie. By a sum:
    // with a subnormal operand an fma took 5.8 ns an element, a sum 0.37 (Sapphire Rapids, AVX2).
    // Not next to zero, so that a zero keeps its sign.
    constexpr float kUp = std::is_same_v<Element, BFloat16> ? 0x1p-147f : 0x1p-40f;
    const auto size = static_cast<int32_t>(to_bits(magnitude(product)));
    return size > static_cast<int32_t>(to_bits(kUp)) ? product + kUp : product;
  }

  // (x + 3) / 6 in two parts; it is 1/2 exactly where x is tiny.
  FASTACT_INLINE static Quotient<double> sixth_of_sum(double x) {
    const double sum = x + 3.0;
    return divide(sum, x - (sum - 3.0), 6.0, kSixth);
  }

  template <class Element>
  FASTACT_INLINE static OpMath<Element> slope_between(OpMath<Element> x) {
    if constexpr (kIs16Bit<Element>) {
      return (x + 1.5f) * static_cast<float>(kThird);
    } else {
      return quotient_between(x).value();
    }
  }

  template <class T>
  FASTACT_INLINE static Quotient<T> quotient_between(T x) {
    // What the sum loses: it is exact below -0.75, and sum - 1.5 is from there on.
    const T sum = x + T{1.5};
    return divide(sum, x - (sum - T{1.5}), T{3}, kInverseOf3<T>);
  }
};

}  // namespace fastact::inline FASTACT_TARGET

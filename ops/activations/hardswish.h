// Hardswish: f(x) = 0 for x <= -3, x for x >= 3, else x (x + 3) / 6.
//
// Range: every input. hardswish(-0.0) = -0.0. For x <= -3 and for minus infinity, the result is
// +0.0; PyTorch returns -0.0 there, and NaN at minus infinity.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        1.9  0.51 0.5  0.5
//   float64        1.5  1.5  0.5  0.5
//
// f'(x) = 0 for x <= -3, 1 for x >= 3, else (2x + 3) / 6. f''(x) = 1/3 for -3 < x < 3, 0 elsewhere.
// f''' = 0. The values at the bounds are those of PyTorch.
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
      const double below = x < 3.0 ? between : x;  // keeps a NaN
      return x <= -3.0 ? 0.0 : below;
    } else if constexpr (Order == 0 && kIs16Bit<Element>) {
      return value_16<Element>(clamp_below(x, -3.0f));
    } else if constexpr (Order == 0) {
      // Because x is clamped, the factor is 1 from 3 on.
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
    const float from_zero =
        clamp_below(x, -3.0f);  // for minus infinity too: avoids a product with 0
    return from_zero * ((clamp_above(from_zero, 3.0f) + 3.0f) * static_cast<float>(kSixth));
  }

 private:
  static constexpr double kThird = 1.0 / 3.0;
  static constexpr double kSixth = 1.0 / 6.0;
  // For divide(). In double the nearest number suffices, because no product is made of the
  // quotient's parts.
  template <class T>
  static constexpr T kInverseOf3 = std::is_same_v<T, float> ? T{kBelowThird} : T{kThird};

  template <class T>
  FASTACT_INLINE static T either(T x, T between, T beyond) {
    const T outside = x > T{0} ? beyond : T{0};
    const T result = magnitude(x) < T{3} ? between : outside;
    return is_nan(x) ? x : result;
  }

  // Returns x (x + 3) / 6 for x >= -3, before the rounding to 16 bits.
  template <class Element>
  FASTACT_INLINE static float value_16(float x) {
    // Both factors are negated, so this one is -0.0 at x = -3 and the product is +0.0.
    const float factor = (-3.0f - clamp_above(x, 3.0f)) * -static_cast<float>(kSixth);
    const float product = x * factor;
    // For tiny x the product is just above x / 2, which may be half a subnormal number: a tie. The
    // step is added by a sum: an fma with a subnormal operand took 5.8 ns an element, a sum 0.37
    // (Sapphire Rapids, AVX2). Nothing is added next to zero, so that a zero keeps its sign.
    constexpr float kUp = std::is_same_v<Element, BFloat16> ? 0x1p-147f : 0x1p-40f;
    const auto size = static_cast<int32_t>(to_bits(magnitude(product)));
    return size > static_cast<int32_t>(to_bits(kUp)) ? product + kUp : product;
  }

  // Returns (x + 3) / 6 in two parts. It is exactly 1/2 for tiny x.
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
    // The rounding error of the sum. The sum is exact below -0.75; from there on, sum - 1.5 is
    // exact.
    const T sum = x + T{1.5};
    return divide(sum, x - (sum - T{1.5}), T{3}, kInverseOf3<T>);
  }
};

}  // namespace fastact::inline FASTACT_TARGET

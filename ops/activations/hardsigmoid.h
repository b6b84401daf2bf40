// Hardsigmoid: f(x) = 0 for x <= -3, 1 for x >= 3, else (x + 3) / 6.
//
// Range: every input.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        1.1  0.5  0.5  0.5
//   float64        1.5  0.5  0.5  0.5
//
// f'(x) = 1/6 for -3 < x < 3, 0 elsewhere and at the bounds. f'(NaN) = NaN. f'' and f''' are 0.
//
// Source: torch.nn.Hardsigmoid's definition (Courbariaux et al., "BinaryConnect", 2015, with the
// slope of Howard et al., "Searching for MobileNetV3", 2019).
#pragma once

#include "ops/activations/activation.h"
#include "ops/math/double_float.h"

namespace fastact::inline FASTACT_TARGET {

struct Hardsigmoid {
  static constexpr Traits kTraits = {.saves = Saves::kInput};

  FASTACT_INLINE explicit constexpr Hardsigmoid(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    using T = OpMath<Element>;
    if constexpr (Order == 0) {
      if constexpr (std::is_same_v<Element, float>) {
        return canonical_positive(x, sixth_of(clamp_ordered(x, -3.0f, 3.0f) + 3.0f));
      } else {
        constexpr T kSixth = T{1} / T{6};
        if constexpr (std::is_same_v<Element, BFloat16>) {
          return (clamp_below(clamp_above(x, 3.0f), -3.0f) + 3.0f) * kSixth;
        } else if constexpr (kIs16Bit<Element> && prefers_selections()) {
          return Canonical<T>{(clamp_below(clamp_above(x, 3.0f), -3.0f) + 3.0f) * kSixth};
        } else {
          const T below = x > T{3} ? T{3} : x;
          const T clamped = below > T{-3} ? below : T{-3};  // NaN stays NaN
          return canonical_positive(x, (clamped + T{3}) * kSixth);
        }
      }
    } else {
      const T slope = magnitude(x) < T{3} ? T{Order == 1} / T{6} : T{0};
      return is_nan(x) ? x : slope;
    }
  }

  template <class Element>
  FASTACT_INLINE auto backward(OpMath<Element> g, OpMath<Element> x) const {
    using T = OpMath<Element>;
    T between = 0;
    if constexpr (std::is_same_v<Element, float>) {
      between = sixth().times(g);
    } else {
      between = g * (T{1} / T{6});
    }
    return with_nan_of<Element>(x, magnitude(x) < T{3} ? between : T{0});
  }

 private:
  FASTACT_INLINE static DoubleFloat sixth() {
    constexpr float kHigh = 0.5f * kBelowThird;
    constexpr auto kLow = static_cast<float>(1.0 / 6.0 - kHigh);
    return {kHigh, kLow};
  }
};

}  // namespace fastact::inline FASTACT_TARGET

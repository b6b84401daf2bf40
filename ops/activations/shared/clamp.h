// min(max(x, low), high) for two bounds, the common formula of hardtanh and relu6.
//
// The bounds are first rounded to the element's type. Then the result equals a bound exactly if the
// input is at or beyond it, so every derivative can be computed from the result. If a bound is NaN,
// so is every value, as in PyTorch.
#pragma once

#include "ops/activations/activation.h"

namespace fastact::inline FASTACT_TARGET {

struct Clamp {
  static constexpr Traits kTraits = {.saves = Saves::kInputOrResultAsInput};

  // Each bound is NaN if the other is.
  FASTACT_INLINE Clamp(double min, double max)
      : low(max == max ? min : max), high(min == min ? max : min) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    using T = OpMath<Element>;
    if constexpr (Order == 0) {
      const T lower = low.template in<Element>();
      const T upper = high.template in<Element>();
      // NaN if x or a bound is NaN.
      return canonical(upper, at_most(at_least(x, lower), upper));
    } else {
      return is_nan(x) ? x : T{0};
    }
  }

  template <class Element>
  FASTACT_INLINE auto backward(OpMath<Element> g, OpMath<Element> x) const {
    using T = OpMath<Element>;
    const T lower = low.template in<Element>();
    const T upper = high.template in<Element>();
    return canonical(x, ((x > lower) & (x < upper)) ? g : T{0});
  }

  template <class Element>
  FASTACT_INLINE float unrounded(float x) const {
    return clamp_above(clamp_below(x, low.template in<Element>()), high.template in<Element>());
  }

 private:
  // A bound rounded to each type, computed once per call, because GCC 12 leaves the rounding to
  // Float16 inside the loop. hardtanh: 0.100 instead of 0.114 ns an element (Emerald Rapids,
  // AVX-512, docs/dev/tuning.md).
  struct Bound {
    double exact;
    float nearest;
    float bfloat16;
    float float16;

    FASTACT_INLINE explicit Bound(double value)
        : exact(value),
          nearest(static_cast<float>(value)),
          bfloat16(widen(round_to<BFloat16>(nearest))),
          float16(widen(round_to<Float16>(nearest))) {}

    template <class Element>
    FASTACT_INLINE OpMath<Element> in() const {
      if constexpr (std::is_same_v<Element, BFloat16>) {
        return bfloat16;
      } else if constexpr (std::is_same_v<Element, Float16>) {
        return float16;
      } else if constexpr (std::is_same_v<Element, float>) {
        return nearest;
      } else {
        return exact;
      }
    }
  };

  Bound low;
  Bound high;
};

}  // namespace fastact::inline FASTACT_TARGET

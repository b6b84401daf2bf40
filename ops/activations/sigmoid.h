// Sigmoid: f(x) = 1 / (1 + e^-x).
//
// Range: every input. f(-inf) = 0 and f(inf) = 1. The far negative tail keeps its relative accuracy
// down to the subnormal numbers.
//
// Accuracy (ULP):  f     f'    f''   f'''
//   bfloat16       0.5   0.5   0.5   0.5
//   float16        0.5   0.5   0.5   0.5
//   float32        1.7   0.5   0.501 0.5
//   float64        0.8   1.5   0.5   0.5
//
// The derivatives are functions of the result y. Their bounds are those of d(y) = y (1 - y) and its
// derivatives, for any y.
//
// Source: the definition. logistic.h describes the computation. The coefficients for float16
// misround none of the 65,536 inputs.
#pragma once

#include "ops/activations/activation.h"
#include "ops/math/logistic.h"

namespace fastact::inline FASTACT_TARGET {

struct Sigmoid {
  static constexpr Traits kTraits = {
      .saves = Saves::kOutput, .last_division = 0, .is_costly = true};

  FASTACT_INLINE explicit constexpr Sigmoid(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    static_assert(Order == 0);
    using T = OpMath<Element>;
    if constexpr (kIs16Bit<Element>) {
      return logistic_16<Element>(x);
    } else if constexpr (std::is_same_v<Element, float>) {
      return CanonicalOnGpu{logistic_of(x, clamp_magnitude(x, kLogisticEnd<float>))};
    } else {
      return logistic_of(x, clamp_magnitude(x, kLogisticEnd<T>));
    }
  }

  // d(y) = y (1 - y), d' = 1 - 2y, d'' = -2. For any y; an infinite y gives no NaN.
  template <class Element, int Order>
  FASTACT_INLINE auto derivative_from_result(OpMath<Element> y) const {
    using T = Wider<Element>;
    const auto wide = static_cast<T>(y);
    if constexpr (Order == 1 && std::is_same_v<Element, BFloat16>) {
      // Far outside [0, 1], y^2 may be a tie. The y that a float sum drops decides the rounding.
      const float size = clamp_ordered_magnitude(y, 0x1p100f);
      const bool far = to_compare(magnitude(y), size) > 0x1p20f;
      return y * fma(far ? size : 0.0f, 0x1p-22f, 1.0f - y);
    } else if constexpr (Order == 1 && std::is_same_v<Element, float>) {
      // The addend is clamped to a finite number, because infinity minus infinity is NaN.
      return fma(-y, y, clamp_ordered(y, -0x1.fffffep127f, 0x1.fffffep127f));
    } else if constexpr (Order == 1) {
      return wide * (T{1} - wide);
    } else if constexpr (Order == 2) {
      return fma(T{-2}, wide, T{1});
    } else {
      return is_nan(wide) ? wide : T{-2};
    }
  }
  FASTACT_INLINE static constexpr bool approximates() { return true; }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      // Scaled by 2^9, so that the far tail is not subnormal.
      const float scaled = approximate_exp2(clamp_above(fma(-x, kLog2E<float>, -9.0f), 125.99f));
      const float y = approximate_reciprocal(0x1.fffffcp-10f + scaled) * 0x1p-9f;
      return corrected_at(x, 0x1p-7f, y, -0x1p-11f);
    } else {
      const float e = approximate_exp2(fma(-x, kLog2E<float>, -0x1.8p-25f));
      const float y = moved_towards_half(x, approximate_reciprocal(1.0f + e));
      return corrected_at(x, -0x1.4fcp-3f, y, -0x1p-15f);
    }
  }

  template <class Element>
  FASTACT_INLINE static float unrounded(float x) {
    return unrounded_logistic_16<Element>(x);
  }

  template <class Element>
  FASTACT_INLINE static float approximate_unrounded(float x) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      // Scaled by 2^16, so that the far tail is not subnormal.
      const float scaled = approximate_exp2(fma(-x, kLog2E<float>, -16.0f));
      return approximate_reciprocal(0x1p-16f + scaled) * 0x1p-16f;
    } else {
      return approximate_reciprocal(1.0f + approximate_exp2(-kLog2E<float> * x));
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

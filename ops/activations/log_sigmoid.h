// Log-sigmoid: f(x) = -log(1 + e^-x).
//
// Range: every input. f(-inf) = -inf and f(inf) = -0.0. The far positive tail keeps its relative
// accuracy down to the subnormal numbers. f'(-inf) = 1 and f'(inf) = 0; the higher derivatives are
// 0 at both infinities.
//
// Accuracy (ULP):  f     f'    f''   f'''
//   bfloat16       0.5   0.5   0.5   0.5
//   float16        0.5   0.5   0.5   0.5
//   float32        1.5   1.7   0.501 0.501
//   float64        0.85  3     5     8
//
// Source: the definition. logarithm.h describes the computation in double, segments.h that of f in
// float32, logistic.h that of f' in float32.
#pragma once

#include "ops/activations/activation.h"
#include "ops/activations/shared/logarithm_in_segments.h"
#include "ops/math/differentiable.h"
#include "ops/math/logarithm.h"

namespace fastact::inline FASTACT_TARGET {

struct LogSigmoid : LogarithmInSegments {
  static constexpr Traits kTraits = {.saves = Saves::kInput, .last_division = 3, .is_costly = true};

  FASTACT_INLINE explicit constexpr LogSigmoid(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    using T = OpMath<Element>;
    if constexpr (Order == 0) {
      return value<Element>(x);
    } else if constexpr (Order == 1 && kIs16Bit<Element>) {
      return logistic_16<Element>(-x);
    } else if constexpr (Order == 1 && std::is_same_v<Element, float>) {
      return logistic_of(-x, clamp_magnitude(x, kLogisticEnd<float>));
    } else {
      const auto wide = static_cast<double>(x);
      const double size = clamp_magnitude(wide, kDerivativeEnd<Element>);
      if constexpr (Order == 1) {
        return logistic<Element>(-wide, size);
      } else {
        const LogisticSlope slope = logistic_slope<Element>(size);
        if constexpr (Order == 2)
          return narrowed<Element>(-slope.guarded * kDerivativeUnguard<Element>);
        const double result =
            below_a_tie<Element>(wide, slope.guarded * slope.t * kDerivativeUnguard<Element>);
        return narrowed<Element>(x < T{0} ? result : -result);
      }
    }
  }

  template <int Order>
  FASTACT_INLINE static CanonicalOnGpu derivative_in(const Segment& segment, float x) {
    return CanonicalOnGpu{fma(guarded(segment, x), -kUnguard<float>, -positive_part(-x))};
  }

  template <class Tensor>
  static Tensor fourth_derivative(const Tensor& x) {
    return -LogisticDerivatives<Tensor>(x).third();
  }

  FASTACT_INLINE static constexpr bool approximates() { return true; }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    return -approximate_log_1p_exponential<Element>(-x);
  }

 private:
  template <class Element>
  FASTACT_INLINE static OpMath<Element> value(OpMath<Element> x) {
    if constexpr (kIs16Bit<Element>) {
      const float e = log_1p_power_16<Element>(x);
      return -log_1p_exponential_16<Element>(-x, e);
    } else {
      const auto [high, low] = log_1p_exponential(-x);
      const double result = (high + low) * -kUnguard<double>;
      return x < -40.0 ? x : result;
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

// Softsign: f(x) = x / (1 + |x|).
//
// Range: every input. softsign(-0.0) = -0.0. softsign(+-inf) = +-1, where PyTorch returns NaN.
//
// Accuracy (ULP):  f      f'     f''    f'''
//   bfloat16       0.5    0.5    0.5    0.5
//   float16        0.5    0.5    0.5    0.5
//   float32        1.5    0.501  0.501  0.501
//   float64        1.5    1.5    1.5    1.5
//
// f'(x) = 1 / (1 + |x|)^2, f''(x) = -2 sign(x) / (1 + |x|)^3 with f''(0) = 0 as in PyTorch, and
// f'''(x) = 6 / (1 + |x|)^4.
//
// Source: the definition (Turian, Bergstra and Bengio, 2009).
#pragma once

#include "ops/activations/activation.h"
#include "ops/math/differentiable.h"

namespace fastact::inline FASTACT_TARGET {

struct Softsign {
  static constexpr Traits kTraits = {.saves = Saves::kInput, .last_division = 0};

  FASTACT_INLINE explicit constexpr Softsign(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    using T = Wider<Element>;
    if constexpr (Order == 0 && !std::is_same_v<Element, double>) {
      // A division keeps the sign of a zero; a quotient by a reciprocal does not.
      if constexpr (kApproximate) {
        const float a = clamp_magnitude(x, kOne);
        return with_sign_of(refined_quotient(a, 1.0f + a), x);
      } else {
        const float bounded = clamp_below(clamp_above(x, kOne), -kOne);
        return bounded / (1.0f + magnitude(bounded));
      }
    } else if constexpr (Order == 1 && kIs16Bit<Element>) {
      // Three roundings to float misround none of the 65,536 results, so no correction is needed.
      const float t = 1.0f / (1.0f + magnitude(x));
      return t * t;
    } else {
      return derivative_wide<Order>(static_cast<T>(x));
    }
  }

  template <class Element>
  FASTACT_INLINE float unrounded(float x) const {
    return derivative<Element, 0>(x);
  }

  template <class Element>
  FASTACT_INLINE static float approximate_unrounded(float x) {
    const float a = clamp_magnitude(x, kOne);
    return with_sign_of(a * approximate_reciprocal(1.0f + a), x);
  }

  // -24 sign(x) / (1 + |x|)^5.
  template <class Tensor>
  static Tensor fourth_derivative(const Tensor& x) {
    return -24.0 * sign(x) * pow(reciprocal(1.0 + abs(x)), 5);
  }

 private:
  // Large enough that the value is 1 and the derivatives are 0, but finite.
  template <class T>
  static constexpr T kLargest = sizeof(T) == 4 ? 0x1p120 : 0x1p1000;

  // Large enough that the value in float is 1.
  static constexpr float kOne = 0x1p30f;

  template <int Order, class T>
  FASTACT_INLINE static T derivative_wide(T wide) {
    const T above = wide < -kLargest<T> ? -kLargest<T> : wide;
    const T bounded = above > kLargest<T> ? kLargest<T> : above;
    const T a = magnitude(bounded);
    const T sum = T{1} + a;
    if constexpr (Order == 0) {
      return bounded / sum;
    } else {
      // t = 1 / (1 + a), and the rounding errors of t and of the sum.
      const T rounded = sum - T{1};
      const T rest_of_sum = (T{1} - (sum - rounded)) + (a - rounded);
      const T t = T{1} / sum;
      const T rest = t * (fma(-sum, t, T{1}) - rest_of_sum * t);
      if constexpr (Order == 1) return fma(t, t, T{2} * t * rest);
      const T square = t * t;
      const T rest_of_square = fma(t, t, -square) + T{2} * t * rest;
      if constexpr (Order == 2) {
        const T either_side = wide < T{0} ? T{2} : T{-2};
        const T factor = wide == T{0} ? T{0} : either_side;
        const T twice = factor * square;
        return fma(twice, t, fma(twice, rest, factor * rest_of_square * t));
      }
      const T six = T{6} * square;
      const T rest_of_six = fma(T{6}, square, -six);
      return fma(six, square, fma(rest_of_six, square, T{2} * six * rest_of_square));
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

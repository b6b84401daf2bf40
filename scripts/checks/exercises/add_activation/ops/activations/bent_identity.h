// Bent identity: f(x) = x + (s - 1) / 2 with s = sqrt(x^2 + 1), which is x (1 + x / (2 (s + 1))).
//
// Range: every input. bent_identity(-0.0) = -0.0, bent_identity(-inf) = -inf.
//
// Accuracy (ULP):  f      f'     f''    f'''
//   bfloat16       0.501  0.501  0.501  0.501
//   float16        0.51   0.51   0.51   0.51
//   float32        0.501  0.501  0.501  0.501
//   float64        4      2      10     16
//
// f'(x) = 1 + x / (2s), f''(x) = 1 / (2 s^3), f'''(x) = -3x / (2 s^5).
//
// Source: the definition.
#pragma once

#include "ops/activations/activation.h"
#include "ops/math/differentiable.h"

namespace fastact::inline FASTACT_TARGET {

struct BentIdentity {
  static constexpr Traits kTraits = {.saves = Saves::kInput};

  FASTACT_INLINE explicit constexpr BentIdentity(const double* /*parameters*/) {}

  // Computes in Wider<Element>: float for 16-bit types, else double. The engine rounds once.
  template <class Element, int Order>
  FASTACT_INLINE Wider<Element> derivative(OpMath<Element> x) const {
    using T = Wider<Element>;
    // From here on x / s is 1 and f'' is 0. The square of this number is still finite.
    constexpr T kLargest = sizeof(T) == 4 ? 0x1p60 : 0x1p500;
    const T wide = static_cast<T>(x);
    const T above = wide < -kLargest ? -kLargest : wide;
    const T bounded = above > kLargest ? kLargest : above;
    const T s = square_root(fma(bounded, bounded, T{1}));
    if constexpr (Order == 0) return wide * fma(T{0.5}, bounded / (s + T{1}), T{1});
    const T t = T{1} / s;
    if constexpr (Order == 1) return fma(T{0.5} * bounded, t, T{1});
    if constexpr (Order == 2) return T{0.5} * t * t * t;
    return T{-1.5} * bounded * t * t * t * t * t;
  }

  // 3/2 (4 x^2 - 1) / s^7.
  template <class Tensor>
  static Tensor fourth_derivative(const Tensor& x) {
    const Tensor size = bounded(x, 0x1p500);
    const Tensor t = rsqrt(size * size + 1.0);
    const Tensor ratio = size * t;
    return 1.5 * pow(t, 5) * (4.0 * ratio * ratio - t * t);
  }
};

}  // namespace fastact::inline FASTACT_TARGET

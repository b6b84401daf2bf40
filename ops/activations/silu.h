// SiLU (swish): f(x) = x / (1 + e^-x).
//
// Range: every input. f(-0.0) = -0.0 and f(-inf) = -0.0. The far negative tail keeps its relative
// accuracy down to the subnormal numbers. f'(inf) = 1 and f'(-inf) = 0; the higher derivatives are
// 0 at both infinities.
//
// Accuracy (ULP):  f     f'    f''   f'''
//   bfloat16       0.5   0.5   0.5   0.5
//   float16        0.5   0.5   0.5   0.5
//   float32        1.7   1.9   0.6   0.6
//   float64        0.8   6     9     14
//
// Terms cancel (float64): f', f'', f'''
//
// Next to a zero of a derivative, terms cancel. Where the derivative is below 1/16 and |x| < 10,
// the bound of float64 is absolute: it is in ULP of 1/16. The bounds of float32 hold everywhere: f'
// is computed in segments with a center at its zero, the higher derivatives in double.
//
// Source: the definition (Hendrycks and Gimpel, 2016). logistic.h describes the computation,
// segments.h that of f' in float32. The coefficients for the 16-bit types misround none of the
// 65,536 inputs.
#pragma once

#include "ops/activations/activation.h"
#include "ops/activations/tables/silu.h"
#include "ops/math/differentiable.h"
#include "ops/math/logistic.h"

namespace fastact::inline FASTACT_TARGET {

struct Silu {
  static constexpr Traits kTraits = {
      .saves = Saves::kInput, .last_division = 3, .breaks_ties_at_zero = true, .is_costly = true};

  FASTACT_INLINE explicit constexpr Silu(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    using T = OpMath<Element>;
    if constexpr (kIs16Bit<Element> && Order <= 1) {
      return derivative_16<Element, Order>(x);
    } else if constexpr (Order == 0 && std::is_same_v<Element, float>) {
      const float size = clamp_magnitude(x, kLogisticEnd<float>);
      return CanonicalOnGpu{gate(x, size, tail_of(size))};
    } else if constexpr (Order == 0) {
      const T size = clamp_magnitude(x, kLogisticEnd<T>);
      return gate(x, size, size);
    } else {
      const auto wide = static_cast<double>(x);
      const double size = clamp_magnitude(wide, kDerivativeEnd<Element>);
      const double y = gate_derivative<Element, Order>(wide, size, {size, 0.0, 1.0, 0.0, 0.0});
      return narrowed<Element>(Order == 3 ? below_a_tie<Element>(wide, y) : y);
    }
  }

  // `size` is |x|, clamped.
  FASTACT_INLINE static ShortLogisticTail tail_of(float size) { return short_logistic_tail(size); }

  template <int Order>
  static constexpr auto kSegmentTable = table_of<Order>(nullptr, &kSiluSlopeSegments);

  template <class Tensor>
  static Tensor fourth_derivative(const Tensor& x) {
    return gate_fourth_derivative(x);
  }

  FASTACT_INLINE static constexpr bool approximates() { return true; }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      const float above = clamp_below(x, -101.0f);
      return with_sign_of(approximate_gate<Element>(above, fma(-above, kLog2E<float>, -16.0f)), x);
    } else {
      const float above = clamp_below(x, -64.0f);
      const float y = approximate_gate<Element>(above, fma(-above, 0x1.715478p0f, -0x1.8p-25f));
      return with_sign_of(corrected_at(x, -0x1.3bp2f, y, -0x1p-18f), x);
    }
  }

 private:
  // (e^r - 1) / r for |r| <= ln2 / 2, to 2^-20.6 of e^r. For the value in float16
  // (scripts/coefficients/fit_polynomials.py).
  static constexpr Coefficients kValueExponentialFloat16{0x1.ffffe4p-1f, 0x1.000024p-1f,
                                                         0x1.55548cp-3f, 0x1.55547ep-5f,
                                                         0x1.123fc8p-7f, 0x1.6daa36p-10f};
  // The same for the first derivative, to 2^-20.8 of e^r.
  static constexpr Coefficients kSlopeExponentialFloat16{0x1.fffffp-1f,  0x1.fffdcp-2f,
                                                         0x1.555462p-3f, 0x1.5605eep-5f,
                                                         0x1.123234p-7f, 0x1.6d92a4p-10f};

  template <class Element, int Order>
  FASTACT_INLINE static float derivative_16(float x) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      const float size = clamp_magnitude(x, kEnd16<Element>);
      const float e = exponential_16<Element, kGateExponentialBFloat16>(-size);
      if constexpr (Order == 0) {
        return gate_16<Element>(x, size, e);
      } else {
        return gate_derivative_16<Element>(x, with_sign_of(size, x), e);
      }
    } else {
      const float size = clamp_magnitude(x, kEnd16<Element>);
      if constexpr (Order == 0) {
        const float e = exponential_16<Element, kValueExponentialFloat16>(-size);
        return gate_16<Element>(x, size, e);
      } else {
        const float e = exponential_16<Element, kSlopeExponentialFloat16>(-size);
        const float y = gate_derivative_16<Element>(x, with_sign_of(size, x), e);
        return y - nudge_towards_half(x);
      }
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

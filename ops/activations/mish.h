// Mish: f(x) = x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^2x + 2 e^x.
//
// Range: every input. f(-0.0) = -0.0 and f(-inf) = -0.0. The far negative tail keeps its relative
// accuracy down to the subnormal numbers. f'(inf) = 1 and f'(-inf) = 0; the higher derivatives are
// 0 at both infinities.
//
// Accuracy (ULP):  f     f'    f''   f'''
//   bfloat16       0.5   0.5   0.5   0.5
//   float16        0.5   0.5   0.5   0.5
//   float32        1.7   1.4   0.6   0.7
//   float64        0.8   10    14    60
//
// Terms cancel (float64): f', f'', f'''
//
// Next to a zero of a derivative, terms cancel. Where the derivative is below 1/16 and |x| < 10,
// the bound of float64 is absolute: it is in ULP of 1/16. The bounds of float32 hold everywhere: f'
// is computed in segments with a center at its zero, the higher derivatives in double.
//
// Source: Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019. logistic.h
// describes how f is computed in float32, segments.h how f' is. The coefficients for the 16-bit
// types misround none of the 65,536 inputs except five in float16, which are corrected.
#pragma once

#include "ops/activations/activation.h"
#include "ops/activations/tables/mish.h"
#include "ops/math/differentiable.h"
#include "ops/math/logistic.h"

namespace fastact::inline FASTACT_TARGET {

struct Mish {
  static constexpr Traits kTraits = {.saves = Saves::kInput, .last_division = 3, .is_costly = true};

  FASTACT_INLINE explicit constexpr Mish(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    if constexpr (kIs16Bit<Element> && Order <= 1) {
      return derivative_16<Element, Order>(x);
    } else if constexpr (Order == 0) {
      return value(x);
    } else {
      return narrowed<Element>(derivative_in_double<Element, Order>(static_cast<double>(x)));
    }
  }

  template <int Order>
  static constexpr auto kSegmentTable = table_of<Order>(nullptr, &kMishSlopeSegments);

  template <int Order>
  FASTACT_INLINE static uint32_t segment(float x) {
    return signed_segment_index<*kSegmentTable<Order>>(
        x, clamp_magnitude_of_number(x, kLogisticEnd<float>));
  }

  template <int Order>
  FASTACT_INLINE static float derivative_in(const Segment& segment, float x) {
    const float size = clamp_magnitude(x, kLogisticEnd<float>);
    return mirrored_slope(x,
                          decaying(segment_value_with_zero(segment, size), reduce_in_pieces(size)));
  }

  // With T(x) = tanh(log(1 + e^x)): T' = 4 r^2 s / (1 + r^2)^2, r = sigma(-x) and s = sigma(x);
  // T'' = T' l, T''' = T' (l^2 + l') and T'''' = T' (l^3 + 3 l l' + l'').
  template <class Tensor>
  static Tensor fourth_derivative(const Tensor& x) {
    const Tensor size = bounded(x, 1000.0);
    const Tensor r = sigmoid(-size);
    const Tensor s = sigmoid(size);
    const Tensor one = 1.0 + r * r;
    const Tensor share = 4.0 * r * r * s / one;
    const Tensor slope = share / one;
    // The logarithmic derivative of `share`, and its derivatives.
    const Tensor rate = r - 2.0 * s + 0.5 * share;
    const Tensor share_slope = share * rate;
    const Tensor rate_slope = 0.5 * share_slope - 3.0 * r * s;
    const Tensor l = rate + 0.5 * share;
    const Tensor l_slope = share_slope - 3.0 * r * s;
    const Tensor l_bend = share_slope * rate + share * rate_slope - 3.0 * r * s * (r - s);
    const Tensor third = l * l + l_slope;
    const Tensor fourth = l * (third + 2.0 * l_slope) + l_bend;
    return slope * (size * fourth + 4.0 * third);
  }

  FASTACT_INLINE static constexpr bool approximates() { return true; }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    constexpr bool kBFloat16 = std::is_same_v<Element, BFloat16>;
    const float above = clamp_below(x, kBFloat16 ? -101.0f : -30.0f);
    const float bounded = clamp_above(above, 20.0f);
    if constexpr (kBFloat16) {
      // Scaled by 2^20, so that the far tail is not subnormal.
      const float w = approximate_exp2(fma(bounded, kLog2E<float>, 20.0f));
      const float n = w * fma(w, 0x1p-20f, 2.0f);
      const float y = above * ((n * 0x1p-20f) * approximate_reciprocal(fma(n, 0x1p-20f, 2.0f)));
      return with_sign_of(y, x);
    } else {
      const float w = approximate_exp2(fma(bounded, 0x1.715474p0f, 0x1p-25f));
      const float n = w * (w + 2.0f);
      const float y = above * ((n * 0x1.fffffep-1f) * approximate_reciprocal(n + 2.0f));
      const float corrected = corrected_at(x, 0x1.924p0f, y, 0x1p-13f);
      return with_sign_of(corrected_at(x, -0x1.78cp2f, corrected, 0x1p-19f), x);
    }
  }

 private:
  // (e^r - 1) / r for |r| <= ln2 / 2, to 2^-16.1 of e^r. For the first derivative in bfloat16
  // (scripts/coefficients/fit_polynomials.py).
  static constexpr Coefficients kSlopeExponentialBFloat16{
      0x1.fffea8p-1f, 0x1.ffe5b8p-2f, 0x1.551d78p-3f, 0x1.56f5bcp-5f, 0x1.12797ep-7f};
  // For the value in float16, to 2^-20.6 of e^r.
  static constexpr Coefficients kValueExponentialFloat16{0x1.fffffcp-1f, 0x1.0000d4p-1f,
                                                         0x1.5558bcp-3f, 0x1.54c04p-5f,
                                                         0x1.1188f8p-7f, 0x1.6dd5d4p-10f};
  // For the first derivative in float16, to 2^-20.4 of e^r.
  static constexpr Coefficients kSlopeExponentialFloat16{0x1.000018p0f,  0x1.ffff1ep-2f,
                                                         0x1.555332p-3f, 0x1.55ef88p-5f,
                                                         0x1.10e208p-7f, 0x1.6e4688p-10f};

  // Returns x q / (1 + q) with q = w + w^2 / 2 and w = e^x. From x = 14 on, this equals x.
  FASTACT_INLINE static auto value(float x) {
    const float above = clamp_below(x, -kLogisticEnd<float>);
    // w = s (1 + power), and q = s (1 + part).
    const auto [r, scale] = reduce<float, kGuardFloat>(clamp_above(above, 14.0f));
    const float half_s = scale * (0.5f * kUnguard<float>);
    const float power = fma(r * r, exponential_tail(r), r);
    const float m = 1.0f + power;
    const float part = fma(m, m * half_s, power);
    const float y = times_logistic(above, part, half_s, scale);
    return CanonicalOnGpu{x > 14.0f ? x : y};
  }

  // Returns x n / (n + 2) with n = w^2 + 2w and w = e^x. With a = |x| and s = 2^n, m is e^r or e^-r
  // such that w = m / s or w = s m. Then n s^2 = m (m + 2s) or n / s = m (s m + 2).
  FASTACT_INLINE static double value(double x) {
    const Pieces<double> a = reduce_in_pieces(clamp_magnitude(x, kLogisticEnd<double>));
    const bool negative = x < 0.0;
    const double s = a.scale * kUnguard<double>;
    // m in two parts.
    const double high = negative ? -a.high : a.high;
    const double r = negative ? -a.r : a.r;
    const double rest = negative ? -a.low : a.low;
    const double one = 1.0 + high;
    const double linear = fma(r, (high - r) + rest, (high - (one - 1.0)) + rest);
    const double m_low = fma(r * r, exponential_tail(r), linear);
    const double m = one + m_low;
    const double m_rest = m_low - (m - one);
    // The sum m + 2s or s m + 2, and its product with m.
    const double factor = negative ? s : 1.0;
    const double constant = negative ? 2.0 : s + s;
    const double sum = fma(factor, m, constant);
    const double sum_rest = fma(factor, m_rest, fma(factor, m, constant - sum));
    const double n = m * sum;
    const double n_rest = fma(m, sum, -n) + fma(m, sum_rest, m_rest * sum);
    // n / (factor n + 2) or n / (n + 2 s^2).
    const double scaled = factor * n;
    const double two = negative ? 2.0 : constant * s;
    const double larger = scaled > two ? scaled : two;
    const double smaller = scaled > two ? two : scaled;
    const double inverse = reciprocal(scaled + two);
    double remainder = fma(-smaller, inverse, fma(-larger, inverse, 1.0));
    remainder = fma(-(factor * n_rest), inverse, remainder);
    const double q = n * inverse;
    const double q_rest = fma(n, inverse, -q) + fma(n_rest, inverse, q * remainder);
    const double ratio = q + q_rest;
    const double ratio_rest = q_rest - (ratio - q);
    const double scale = negative ? a.scale : 1.0 / kUnguard<double>;
    const double scaled_x = clamp_below(x, -kLogisticEnd<double>) * scale;
    const double y = fma(scaled_x, ratio, scaled_x * ratio_rest) * kUnguard<double>;
    return x > 40.0 ? x : y;
  }

  // With tau = n / (n + 2) = tanh(log(1 + w)): tau' = 4 w (1 + w) / (n + 2)^2, tau'' = tau' l and
  // tau''' = tau' (l^2 + l'), where l = 1 + sigma - 4 h, h = w (1 + w) / (n + 2) and l' = sigma (1
  // - sigma) - 4 h (1 + sigma - 2 h). All terms are computed from e = e^-|x|.
  template <class Element, int Order>
  FASTACT_INLINE static double derivative_in_double(double x) {
    const bool negative = x < 0.0;
    const double size = clamp_magnitude(x, kDerivativeEnd<Element>);
    const double bounded = negative ? -size : size;
    const Exponential exponential_ = exponential<Element>(-size);
    const double e = exponential_.value;
    const double square = e * e;
    const double n = negative ? fma(e, e, e + e) : fma(2.0, e, 1.0);
    const double denominator = negative ? n + 2.0 : fma(2.0, square, n);
    const double inverse = reciprocal_for<Element>(denominator);
    const double one_e = 1.0 + e;
    if constexpr (Order == 1) {
      // (n (n + 2) + 4 x w (1 + w)) / (n + 2)^2. For negative x the terms cancel, so they are
      // summed as w (4 + 4x + w (6 + 4x + w (4 + w))).
      const double four_x = 4.0 * bounded;
      const double canceling = fma(e, fma(e, e + 4.0, 6.0) + four_x, 4.0 + four_x);
      const double numerator = negative ? canceling : fma(four_x * square, one_e, n * denominator);
      const double own = negative ? exponential_.guarded : 1.0 / kDerivativeUnguard<Element>;
      return own * (numerator * inverse * inverse) * kDerivativeUnguard<Element>;
    } else {
      const double guarded = (negative ? exponential_.guarded : exponential_.guarded * e);
      const double slope = 4.0 * guarded * (one_e * inverse * inverse);
      const double sigma = (negative ? e : 1.0) * reciprocal_for<Element>(one_e);
      const double h = (negative ? e * one_e : one_e) * inverse;
      const double l = fma(-4.0, h, 1.0 + sigma);
      if constexpr (Order == 2) {
        return slope * fma(bounded, l, 2.0) * kDerivativeUnguard<Element>;
      } else {
        const double l_slope = fma(-4.0 * h, fma(-2.0, h, 1.0 + sigma), sigma * (1.0 - sigma));
        return slope * fma(bounded, fma(l, l, l_slope), 3.0 * l) * kDerivativeUnguard<Element>;
      }
    }
  }

  template <class Element, int Order>
  FASTACT_INLINE static float derivative_16(float x) {
    const float above = clamp_below(x, -kEnd16<Element>);
    const float bounded = clamp_above(above, 14.0f);
    float guarded;
    if constexpr (std::is_same_v<Element, BFloat16> && Order == 0) {
      guarded = exponential_16<Element, kExponentialBFloat16>(bounded);
    } else if constexpr (std::is_same_v<Element, BFloat16>) {
      guarded = exponential_16<Element, kSlopeExponentialBFloat16>(bounded);
    } else if constexpr (Order == 0) {
      guarded = exponential_16<Element, kValueExponentialFloat16>(bounded);
    } else {
      guarded = exponential_16<Element, kSlopeExponentialFloat16>(bounded);
    }
    // Where n / (n + 2) is not small, it is more accurate as the difference 1 - 2 / (n + 2).
    const bool small = x < -1.0f;
    const float w = guarded * kUnguard16<Element>;
    const float half_n = guarded * fma(w, 0.5f, 1.0f);
    const float inverse = reciprocal(fma(half_n, kUnguard16<Element>, 1.0f));
    if constexpr (Order == 0) {
      const float part = (small ? half_n * kUnguard16<Element> : -1.0f) * inverse;
      float y = fma(bounded, part, small ? 0.0f : x);
      if constexpr (std::is_same_v<Element, Float16>) {
        y = corrected_at(x, 0x1.a14p-10f, y, 0x1p-29f);
        y = corrected_at(x, -0x1.efcp-12f, y, 0x1p-30f);
        y = corrected_at(x, -0x1.4p-11f, y, 0x1p-30f);
      }
      return with_sign_of(y, x);
    } else {
      // tau + x tau' with tau' = w (1 + w) inverse^2. In bfloat16, the number just below 1 replaces
      // 1, for an input near a tie.
      constexpr float kOne = 1.0f / kUnguard16<Element>;
      constexpr float kBase = std::is_same_v<Element, BFloat16> ? 0x1.fffffep19f : 1.0f;
      const float bend = bounded * fma(guarded, w, guarded);
      const float part = fma(bend, inverse, small ? half_n : -kOne);
      float y = fma(inverse, part, small ? 0.0f : kBase) * kUnguard16<Element>;
      if constexpr (std::is_same_v<Element, Float16>) {
        y = corrected_at(x, 0x1.18p-11f, y, -0x1p-20f);
        y = corrected_at(x, -0x1.5dcp3f, y, 0x1p-30f);
      }
      return y;
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

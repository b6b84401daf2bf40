// Tanhshrink: f(x) = x - tanh(x).
//
// Range: every input. f(-0.0) = -0.0. Near zero f(x) is x^3 / 3, with full relative accuracy.
// f'(inf) = f'(-inf) = 1; the higher derivatives are 0 there.
//
// Accuracy (ULP):  f     f'    f''   f'''
//   bfloat16       0.5   0.5   0.5   0.5
//   float16        0.5   0.5   0.5   0.5
//   float32        1.5   0.7   0.501 0.6
//   float64        1.5   9     8     36
//
// Terms cancel (float64): f'''
//
// Next to the zeros of f''' other than 0, terms cancel. Where f''' is below 1/16 and |x| < 10, the
// bound of float64 is absolute: it is in ULP of 1/16. The bound of float32 holds everywhere: all
// float32 numbers next to the zeros were tested.
//
// Source: the definition. Near zero, float64 uses a polynomial that interpolates at the Chebyshev
// nodes to 2^-59. float32's f and f' are computed in segments (segments.h). The coefficients for
// the 16-bit types misround none of the 65,536 inputs except one pair of f' in float16, which is
// corrected.
#pragma once

#include "ops/activations/activation.h"
#include "ops/activations/tables/tanhshrink.h"
#include "ops/math/differentiable.h"
#include "ops/math/logistic.h"

namespace fastact::inline FASTACT_TARGET {

struct Tanhshrink {
  static constexpr Traits kTraits = {.saves = Saves::kInput, .last_division = 3, .is_costly = true};

  FASTACT_INLINE explicit constexpr Tanhshrink(const double* /*parameters*/) {}

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
  static constexpr auto kSegmentTable =
      table_of<Order>(&kTanhshrinkSegments, &kTanhshrinkSlopeSegments);

  template <int Order>
  FASTACT_INLINE static uint32_t segment(float x) {
    return segment_index<*kSegmentTable<Order>>(unbounded_size(x, 20.0f));
  }

  template <int Order>
  FASTACT_INLINE static float derivative_in(const Segment& segment, float x) {
    const float size = clamp_magnitude(x, 20.0f);
    const auto [high, low] = accurate_segment_value(segment, size);
    if constexpr (Order == 0) {
      // x^2 times x (1 - tanh(x) / x) / x^2, both in two parts. Above 9, tanh is 1.
      const float square = size * size;
      const float square_rest = fma(size, size, -square);
      const float linear = size * high;
      const float linear_rest = fma(size, low, fma(size, high, -linear));
      const float near = fma(square, linear, fma(square, linear_rest, square_rest * linear));
      return with_sign_of(size > 9.0f ? magnitude(x) - 1.0f : near, x);
    } else {
      return fma(high, high, 2.0f * high * low);
    }
  }

  // tanh(x) = 2 sigma(2x) - 1.
  template <class Tensor>
  static Tensor fourth_derivative(const Tensor& x) {
    return -32.0 * LogisticDerivatives<Tensor>(2.0 * x).fourth();
  }

  FASTACT_INLINE static constexpr bool approximates() { return true; }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    const float size = magnitude(x);
    const float exponent =
        clamp_above(size * (2.0f * kLog2E<float>), kAlmostOneExponent16<Element>);
    const float e = approximate_exp2(exponent);
    const float beyond = fma(approximate_reciprocal(e + 1.0f), 2.0f, size - 1.0f);
    return with_sign_of(size < 1.0f ? near_zero_16<Element>(size) : beyond, x);
  }

 private:
  // ((1 - tanh(x) / x) / x^2 - 1/3) / x^2 by x^2 for |x| < 0.55, to 2^-59.3. Interpolated at the
  // Chebyshev nodes (scripts/coefficients/fit_polynomials.py).
  static constexpr Coefficients kNearZero{
      -0x1.1111111111111p-3,  0x1.ba1ba1ba1ba0fp-5,  -0x1.664f4882c019ap-6,  0x1.226e355df5191p-7,
      -0x1.d6d3d0a5b44d2p-9,  0x1.7da35b7c4ac19p-10, -0x1.35574f3441d8cp-11, 0x1.f562d9b3265f7p-13,
      -0x1.9560220cfb877p-14, 0x1.41725c82fbd73p-15, -0x1.ca88d8da7b24fp-17, 0x1.ac3c980a70a28p-19};
  // (1 - tanh(x) / x) / x^2 by x^2 for |x| <= 1, to 2^-20.3 of itself.
  static constexpr Coefficients kNearZeroBFloat16{0x1.555544p-2f, -0x1.1107a2p-3f,
                                                  0x1.b859eap-5f, -0x1.5672cep-6f,
                                                  0x1.bbf2a6p-8f, -0x1.44b04ap-10f};
  // For float16, to 2^-20.6 of itself.
  static constexpr Coefficients kNearZeroFloat16{0x1.555556p-2f,  -0x1.111016p-3f, 0x1.b9d5ecp-5f,
                                                 -0x1.62e49ep-6f, 0x1.0d5cfep-7f,  -0x1.49329ap-9f,
                                                 0x1.b97ccap-12f};
  // (e^r - 1) / r for |r| <= ln2 / 2, to 2^-18.8 of itself.
  static constexpr Coefficients kExpm1BFloat16{0x1.ffffdp-1f, 0x1.fffe4cp-2f, 0x1.555478p-3f,
                                               0x1.570f4p-5f, 0x1.1272dcp-7f};
  // For float16, to 2^-18.7 of itself.
  static constexpr Coefficients kExpm1Float16{0x1.00000ap0f,  0x1.0000c8p-1f, 0x1.5557dp-3f,
                                              0x1.551334p-5f, 0x1.13c7ecp-7f, 0x1.6cf4dep-10f};

  // A 16-bit x - 1 may be halfway between two numbers, and x - tanh(x) is just above it. Above this
  // number, the formula computes with an x that is one unit in float's last place larger.
  static constexpr float kFar = 32.0f;
  // The power of two that bounds e^2x. With it, 1 - 2 / (e^2x + 1) is one unit in float's last
  // place below 1 at the largest such x, which is 2^9 or 2^12.
  template <class Element>
  static constexpr float kAlmostOneExponent16 = std::is_same_v<Element, BFloat16> ? 16.0f : 13.0f;

  FASTACT_INLINE static double value(double x) {
    const double size = magnitude(x);
    // The series in two parts: (1 - tanh(x) / x) / x^2 = p + p_rest by x^2.
    const double square = size * size;
    const double square_rest = fma(size, size, -square);
    constexpr double kThird = 1.0 / 3.0;
    constexpr double kThirdRest = 0x1p-54 * kThird;  // its digits repeat
    const double tail = square * polynomial<kNearZero>(square);
    const double p = kThird + tail;
    const double p_rest = ((kThird - p) + tail) + kThirdRest;
    const double product = square * p;
    const double product_rest = fma(square, p, -product) + fma(square, p_rest, square_rest * p);
    const double near_zero = fma(size, product, size * product_rest);
    // tanh in two parts, subtracted from |x|.
    const double bounded = clamp_magnitude(x, 20.0);
    const auto logistic = logistic_tail(bounded + bounded);
    const double q = logistic.inverse * (logistic.scale * (2.0 * kUnguard<double>));
    const double q_rest = logistic.remainder(1.0, logistic.inverse) * q;
    const double tanh = 1.0 - q;
    const double tanh_rest = ((1.0 - tanh) - q) - q_rest;
    const double difference = size - tanh;
    const double beyond = difference + (((size - difference) - tanh) - tanh_rest);
    const double rest = size > 60.0 ? size - 1.0 : beyond;
    return with_sign_of(size < 0.55 ? near_zero : rest, x);
  }

  // f' = t^2, f'' = 2 t (1 - t^2), f''' = 2 (1 - t^2) (1 - 3 t^2), where t = tanh(|x|), 1 - t^2 = 4
  // e / (1 + e)^2 and e = e^(-2 |x|).
  template <class Element, int Order>
  FASTACT_INLINE static double derivative_in_double(double x) {
    const double size = clamp_magnitude(x, 0.5 * kDerivativeEnd<Element>);
    const Exponential e = exponential<Element>(-2.0 * size);
    const double inverse = reciprocal_for<Element>(1.0 + e.value);
    const double t = -e.minus_one * inverse;
    if constexpr (Order == 1) {
      return t * t;
    } else {
      const double guarded = 8.0 * e.guarded * inverse * inverse;
      const double slope = 4.0 * e.value * inverse * inverse;
      if constexpr (Order == 2) return with_sign_of(guarded * t * kDerivativeUnguard<Element>, x);
      return guarded * fma(-2.0 * t, t, slope) * kDerivativeUnguard<Element>;
    }
  }

  // Returns |x| - tanh(|x|) for |x| below 1.
  template <class Element>
  FASTACT_INLINE static float near_zero_16(float size) {
    const float square = size * size;
    float series;
    if constexpr (std::is_same_v<Element, BFloat16>) {
      series = polynomial<kNearZeroBFloat16>(square);
    } else {
      series = polynomial<kNearZeroFloat16>(square);
    }
    return size * (square * series);
  }

  template <class Element, int Order>
  FASTACT_INLINE static float derivative_16(float x) {
    // tanh(a) = -m / (2 + m), where m = e^-2a - 1.
    const float size = magnitude(x);
    const float bounded = size > 15.0f ? 15.0f : size;
    const auto [r, scale] = reduce<Element>(-2.0f * bounded);
    float p;
    if constexpr (std::is_same_v<Element, BFloat16>) {
      p = polynomial<kExpm1BFloat16>(r);
    } else {
      p = polynomial<kExpm1Float16>(r);
    }
    const float m = fma(scale * r, p, scale - 1.0f);
    if constexpr (Order == 1) {
      const float t = m * reciprocal(2.0f + m);
      // Stays below x^2, even if float cannot tell the difference: for tiny x, x^2 may be a tie.
      const float y = t * (t * 0x1.fffffep-1f);
      return std::is_same_v<Element, Float16> ? corrected_at(size, 0x1.14cp-6f, y, -0x1p-30f) : y;
    } else {
      const float near_zero = near_zero_16<Element>(size);
      const float beyond = fma(m, reciprocal(2.0f + m), size);
      const float far = fma(size, 0x1.000002p0f, -1.0f);
      return with_sign_of(size < 1.0f ? near_zero : size > kFar ? far : beyond, x);
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

// GELU, tanh approximation: f(x) = x / (1 + e^-w) with w = 2 sqrt(2 / pi) (x + 0.044715 x^3). This
// equals x (1 + tanh(w / 2)) / 2.
//
// Range: every input. f(-0.0) = -0.0 and f(-inf) = -0.0. The far negative tail keeps its relative
// accuracy down to the subnormal numbers. f'(inf) = 1 and f'(-inf) = 0; the higher derivatives are
// 0 at both infinities.
//
// Accuracy (ULP):  f     f'    f''   f'''
//   bfloat16       0.5   0.5   0.5   0.5
//   float16        0.5   0.5   0.5   0.5
//   float32        2     1.5   0.7   0.6
//   float64        1     9     16    38
//
// Terms cancel (float64): f', f'', f'''
//
// Next to a zero of a derivative, terms cancel. Where the derivative is below 1/16 and |x| < 10,
// the bound of float64 is absolute: it is in ULP of 1/16. The bounds of float32 hold everywhere: f'
// is computed in segments with a center at its zero, the higher derivatives in double.
//
// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016. logistic.h describes the
// computation, segments.h that of f' in float32. The coefficients for the 16-bit types misround
// none of the 65,536 inputs.
#pragma once

#include "ops/activations/activation.h"
#include "ops/activations/tables/gelu_tanh.h"
#include "ops/math/differentiable.h"
#include "ops/math/logistic.h"

namespace fastact::inline FASTACT_TARGET {

struct GeluTanh {
  static constexpr Traits kTraits = {
      .saves = Saves::kInput, .last_division = 3, .breaks_ties_at_zero = true, .is_costly = true};

  FASTACT_INLINE explicit constexpr GeluTanh(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    if constexpr (kIs16Bit<Element> && Order <= 1) {
      return derivative_16<Element, Order>(x);
    } else if constexpr (Order == 0) {
      return value(x);
    } else {
      const auto wide = static_cast<double>(x);
      const double size = clamp_magnitude(wide, kDerivativeStop<Element>);
      const auto [argument, rest] = exponent(size);
      const double first = fma(3.0 * kC1 * size, size, kC0);
      return narrowed<Element>(gate_derivative<Element, Order>(
          wide, size, {argument, rest, first, 6.0 * kC1 * size, 6.0 * kC1}));
    }
  }

  // `size` is |x|, clamped.
  FASTACT_INLINE static ShortLogisticTail tail_of(float size) {
    const auto [negative, scale] = reduced(-size);
    const OnePlusScale sum = one_plus(scale);
    const float r = sum.lost - negative;
    return {fma(r, polynomial<kExponentialQuotientFloat>(r), sum.high), scale};
  }

  template <int Order>
  static constexpr auto kSegmentTable = table_of<Order>(nullptr, &kGeluTanhSlopeSegments);

  template <int Order>
  FASTACT_INLINE static uint32_t segment(float x) {
    return segment_index<*kSegmentTable<Order>>(clamp_magnitude_of_number(x, kEndFloat));
  }

  template <int Order>
  FASTACT_INLINE static float derivative_in(const Segment& segment, float x) {
    const float size = clamp_magnitude(x, kEndFloat);
    return mirrored_slope(x, decaying(segment_value_with_zero(segment, size), reduced(-size)));
  }

  // x g'''' + 4 g''' with g = sigma(w), by Faa di Bruno's formula.
  template <class Tensor>
  static Tensor fourth_derivative(const Tensor& x) {
    const Tensor size = bounded(x, 40.0);
    const Tensor square = size * size;
    const LogisticDerivatives<Tensor> sigma(size * (kC0 + kC1 * square));
    // The derivatives of the exponent w.
    const Tensor first = kC0 + 3.0 * kC1 * square;
    const Tensor second = 6.0 * kC1 * size;
    const double third = 6.0 * kC1;
    const Tensor first_square = first * first;
    const Tensor logistic_third = sigma.third() * first_square * first +
                                  3.0 * sigma.second * first * second + third * sigma.first;
    const Tensor logistic_fourth = sigma.fourth() * first_square * first_square +
                                   6.0 * sigma.third() * first_square * second +
                                   sigma.second * (3.0 * second * second + 4.0 * third * first);
    return size * logistic_fourth + 4.0 * logistic_third;
  }

  FASTACT_INLINE static constexpr bool approximates() { return true; }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    // The exponent is -w log2(e). Where it is bounded, the tail is 0.
    if constexpr (std::is_same_v<Element, BFloat16>) {
      constexpr float kLinear = -kC0Float * kLog2E<float>;
      constexpr float kCubic = -(kC0Float * 0.044715f) * kLog2E<float>;
      const float exponent = clamp_below(x, -13.0f) * fma(x * x, kCubic, kLinear);
      const float y = approximate_gate<Element>(clamp_below(x, -101.0f), exponent - 16.0f);
      return with_sign_of(y, x);
    } else {
      constexpr float kLinear = -kC0Float * kLog2E<float>;
      constexpr float kCubic = -kC1Float * kLog2E<float>;
      const float exponent = clamp_below(x, -16.0f) * fma(x * x, kCubic, kLinear);
      const float y = approximate_gate<Element>(clamp_below(x, -64.0f), exponent);
      const float corrected = corrected_at(x, -0x1.954p-12f, y, -0x1p-26f);
      return with_sign_of(corrected_at(x, -0x1.5fp-10f, corrected, -0x1p-24f), x);
    }
  }

 private:
  // Reduces e^w.
  FASTACT_INLINE static Reduced<float> reduced(double x) {
    return reduce_to_float(x * fma(kC1 * x, x, kC0));
  }

  FASTACT_INLINE static auto value(float x) {
    const float size = clamp_magnitude(x, kEndFloat);
    return CanonicalOnGpu{gate(x, size, tail_of(size))};
  }

  // From this |x| on, the far tail is 0.
  static constexpr double kEnd = 22.0;
  static constexpr float kEndFloat = 11.0f;
  // The same for derivatives: w is kDerivativeEnd.
  template <class Element>
  static constexpr double kDerivativeStop = std::is_same_v<Element, double> ? 22.0 : 21.1535;
  // w = x (c0 + c1 x^2), where c0 = 2 sqrt(2 / pi) = 4 / sqrt(2 pi) and c1 = 0.044715 c0.
  static constexpr double kC0 = 4.0 * kNormalDensity;
  static constexpr double kC1 = 0x1.2444f2a4d8b4bp-4;
  static constexpr auto kC0Float = static_cast<float>(kC0);
  static constexpr auto kC1Float = static_cast<float>(kC1);

  // (e^r - 1) / r for |r| <= ln2 / 2, to 2^-20.3 of e^r. For the value in float16
  // (scripts/coefficients/fit_polynomials.py).
  static constexpr Coefficients kValueExponentialFloat16{0x1.ffffe4p-1f, 0x1.ffff44p-2f,
                                                         0x1.555b1ap-3f, 0x1.556a38p-5f,
                                                         0x1.12e0fp-7f,  0x1.6da034p-10f};
  // The same for the first derivative, to 2^-19.5 of e^r.
  static constexpr Coefficients kSlopeExponentialFloat16{0x1.00000ep0f,  0x1.000158p-1f,
                                                         0x1.55586cp-3f, 0x1.5558a6p-5f,
                                                         0x1.123d36p-7f, 0x1.6da79ap-10f};

  struct Sum {
    double high;
    double low;
  };

  // Returns w for x = a. The first part of c0 has few digits, so its sum with c1 a^2 has a known
  // rounding error.
  FASTACT_INLINE static Sum exponent(double a) {
    constexpr double kC0High = 0x1.988453p0;
    constexpr double kC0Low = (kC0 - kC0High) + 4.0 * kNormalDensityRest;
    constexpr double kC1Low = -0x1.6c843a29d1c70p-61;
    const double square = a * a;
    const double square_rest = fma(a, a, -square);
    const double factor = fma(kC1, square, kC0High);
    const double factor_rest =
        fma(kC1, square, kC0High - factor) + fma(kC1, square_rest, fma(kC1Low, square, kC0Low));
    const double product = a * factor;
    return {product, fma(a, factor_rest, fma(a, factor, -product))};
  }

  FASTACT_INLINE static double value(double x) {
    const double size = clamp_magnitude(x, kEnd);
    const auto [argument, rest] = exponent(size);
    return gate(x, size, argument, rest);
  }

  template <class Element, int Order>
  FASTACT_INLINE static float derivative_16(float x) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      const float size = clamp_magnitude(x, 10.6f);
      const float square = size * size;
      const float argument = size * fma(square, kC1Float, kC0Float);
      const float e = exponential_16<Element, kGateExponentialBFloat16>(-argument);
      if constexpr (Order == 0) {
        return gate_16<Element>(x, size, e);
      } else {
        const float steepness = size * fma(square, 3.0f * kC1Float, kC0Float);
        return gate_derivative_16<Element>(x, with_sign_of(steepness, x), e);
      }
    } else {
      const float size = clamp_magnitude(x, 10.03f);
      const float square = size * size;
      if constexpr (Order == 0) {
        const float argument = size * fma(square, 0x1.2444fp-4f, 0x1.988452p0f);
        const float e = exponential_16<Element, kValueExponentialFloat16>(-argument);
        return gate_16<Element>(x, size, e);
      } else {
        const float argument = size * fma(square, 0x1.2444eep-4f, kC0Float);
        const float steepness = size * fma(square, 0x1.b6674ep-3f, 0x1.988458p0f);
        const float e = exponential_16<Element, kSlopeExponentialFloat16>(-argument);
        return gate_derivative_16<Element>(x, with_sign_of(steepness, x), e);
      }
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

// Quick GELU: f(x) = x / (1 + e^(-1.702 x)).
//
// Range: every input. f(-0.0) = -0.0 and f(-inf) = -0.0. The far negative tail keeps its relative
// accuracy down to the subnormal numbers. f'(inf) = 1 and f'(-inf) = 0; the higher derivatives are
// 0 at both infinities.
//
// Accuracy (ULP):  f     f'    f''   f'''
//   bfloat16       0.5   0.5   0.5   0.5
//   float16        0.5   0.5   0.5   0.5
//   float32        2     1.7   0.6   0.7
//   float64        1     7     10    23
//
// Terms cancel (float64): f', f'', f'''
//
// Next to a zero of a derivative, terms cancel. Where the derivative is below 1/16 and |x| < 10,
// the bound of float64 is absolute: it is in ULP of 1/16. The bounds of float32 hold everywhere: f'
// is computed in segments with a center at its zero, the higher derivatives in double.
//
// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016; 1.702 is exactly that decimal
// number. logistic.h describes the computation, segments.h that of f' in float32. The coefficients
// for the 16-bit types misround none of the 65,536 inputs except one of f' in float16, which is
// corrected.
#pragma once

#include "ops/activations/activation.h"
#include "ops/activations/tables/quick_gelu.h"
#include "ops/math/differentiable.h"
#include "ops/math/logistic.h"

namespace fastact::inline FASTACT_TARGET {

struct QuickGelu {
  static constexpr Traits kTraits = {
      .saves = Saves::kInput, .last_division = 3, .breaks_ties_at_zero = true, .is_costly = true};

  FASTACT_INLINE explicit constexpr QuickGelu(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    if constexpr (kIs16Bit<Element> && Order <= 1) {
      return derivative_16<Element, Order>(x);
    } else if constexpr (Order == 0) {
      return value(x);
    } else {
      const auto wide = static_cast<double>(x);
      const double size = clamp_magnitude(wide, kDerivativeEnd<Element> / kFactor);
      const auto [argument, rest] = exponent(size);
      return narrowed<Element>(
          gate_derivative<Element, Order>(wide, size, {argument, rest, kFactor, 0.0, 0.0}));
    }
  }

  // `size` is |x|, clamped.
  FASTACT_INLINE static ShortLogisticTail tail_of(float size) {
    // x| = r - n ln2 / 1.702. No product is rounded.
    constexpr double kPeriod = kLn2<double> / kFactor;
    constexpr double kPeriodHigh = 0x1.a108p-2;  // few digits, so that n times it is exact
    const auto [n, scale] = nearest_power(size, -static_cast<float>(1.0 / kPeriod));
    const OnePlusScale sum = one_plus(scale);
    const float low = fma(n, static_cast<float>(kPeriod - kPeriodHigh),
                          sum.lost * static_cast<float>(1.0 / kFactor));
    const float r = fma(n, static_cast<float>(kPeriodHigh), size) + low;
    return {fma(r, polynomial<kQuotient>(r), sum.high), scale};
  }

  template <int Order>
  static constexpr auto kSegmentTable = table_of<Order>(nullptr, &kQuickGeluSlopeSegments);

  template <int Order>
  FASTACT_INLINE static uint32_t segment(float x) {
    return segment_index<*kSegmentTable<Order>>(clamp_magnitude_of_number(x, kEndFloat));
  }

  template <int Order>
  FASTACT_INLINE static float derivative_in(const Segment& segment, float x) {
    constexpr auto kHigh = static_cast<float>(kFactor);
    constexpr auto kLow = static_cast<float>(kFactor - kHigh);
    const float size = clamp_magnitude(x, kEndFloat);
    const float product = size * kHigh;
    const float rest = fma(size, kLow, fma(size, kHigh, -product));
    const Pieces<float> exponent = reduce_in_pieces(product, rest);
    return mirrored_slope(x, decaying(segment_value_with_zero(segment, size), exponent));
  }

  template <class Tensor>
  static Tensor fourth_derivative(const Tensor& x) {
    return (kFactor * kFactor * kFactor) * gate_fourth_derivative<Tensor>(kFactor * x);
  }

  FASTACT_INLINE static constexpr bool approximates() { return true; }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      const float above = clamp_below(x, -60.0f);
      return with_sign_of(approximate_gate<Element>(above, fma(-above, 0x1.3a4cbep1f, -16.0f)), x);
    } else {
      const float above = clamp_below(x, -51.75f);
      const float y = approximate_gate<Element>(above, -above * 0x1.3a4cbcp1f);
      return with_sign_of(corrected_at(x, -0x1.d84p1f, y, 0x1p-21f), x);
    }
  }

 private:
  // 1.702 as the sum of two doubles.
  static constexpr double kFactor = 0x1.b3b645a1cac08p0;
  static constexpr double kFactorRest = 0x1.89374bc6a7efap-55;
  // (e^(1.702 r) - 1) / r.
  static constexpr auto kQuotient = [] {
    auto quotient = kExponentialQuotientFloat;
    double power = 1.0;
    for (float& value : quotient.values) value = static_cast<float>((power *= kFactor) * value);
    return quotient;
  }();
  // (e^r - 1) / r for |r| <= ln2 / 2, to 2^-19.8 of e^r. For bfloat16
  // (scripts/coefficients/fit_polynomials.py).
  static constexpr Coefficients kExponentialBFloat16{0x1.ffffb8p-1f, 0x1.fffe4ap-2f, 0x1.555424p-3f,
                                                     0x1.5711bap-5f, 0x1.126f12p-7f};
  // For the value in float16, to 2^-21.8 of e^r.
  static constexpr Coefficients kValueExponentialFloat16{0x1.000008p0f,  0x1.00001p-1f,
                                                         0x1.55556ep-3f, 0x1.55539ep-5f,
                                                         0x1.123e56p-7f, 0x1.6da892p-10f};
  // For the first derivative in float16, to 2^-18.9 of e^r.
  static constexpr Coefficients kSlopeExponentialFloat16{0x1.fffffcp-1f, 0x1.0000a4p-1f,
                                                         0x1.55662ep-3f, 0x1.55d57cp-5f,
                                                         0x1.121bdcp-7f, 0x1.6dcad2p-10f};
  // From this |x| on, the far tail is 0.
  static constexpr double kEnd = 448.0;
  static constexpr float kEndFloat = 66.0f;

  struct Sum {
    double high;
    double low;
  };

  FASTACT_INLINE static Sum exponent(double a) {
    const double product = a * kFactor;
    return {product, fma(a, kFactorRest, fma(a, kFactor, -product))};
  }

  FASTACT_INLINE static auto value(float x) {
    const float size = clamp_magnitude(x, kEndFloat);
    return CanonicalOnGpu{gate(x, size, tail_of(size))};
  }

  FASTACT_INLINE static double value(double x) {
    const double size = clamp_magnitude(x, kEnd);
    const auto [argument, rest] = exponent(size);
    return gate(x, size, argument, rest);
  }

  template <class Element, int Order>
  FASTACT_INLINE static float derivative_16(float x) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      const float size = clamp_magnitude(x, 60.0f);
      const float e = exponential_16<Element, kExponentialBFloat16>(size * -0x1.b3b644p0f);
      if constexpr (Order == 0) {
        return gate_16<Element>(x, size, e);
      } else {
        const float y =
            gate_derivative_16<Element>(x, with_sign_of(size * static_cast<float>(kFactor), x), e);
        return corrected_at(x, -0x1.818p-1f, y, 0x1p-24f);
      }
    } else {
      const float size = clamp_magnitude(x, 51.75f);
      if constexpr (Order == 0) {
        const float e = exponential_16<Element, kValueExponentialFloat16>(size * -0x1.b3b644p0f);
        return gate_16<Element>(x, size, e);
      } else {
        const float e = exponential_16<Element, kSlopeExponentialFloat16>(size * -0x1.b3b648p0f);
        const float y =
            gate_derivative_16<Element>(x, with_sign_of(size * static_cast<float>(kFactor), x), e);
        return corrected_at(x, -0x1.818p-1f, y, 0x1p-24f);
      }
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

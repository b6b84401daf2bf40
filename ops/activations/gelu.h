// GELU: f(x) = x Phi(x), where Phi is the cumulative distribution function of the normal
// distribution.
//
// Range: every input. f(-0.0) = -0.0 and f(-inf) = -0.0. The far negative tail keeps its relative
// accuracy down to the subnormal numbers. f'(inf) = 1 and f'(-inf) = 0; the higher derivatives are
// 0 at both infinities.
//
// Accuracy (ULP):  f     f'    f''   f'''
//   bfloat16       0.5   0.5   0.5   0.5
//   float16        0.5   0.5   0.5   0.5
//   float32        1.2   1.3   0.501 0.501
//   float64        0.9   5     4     4
//
// Terms cancel (float64): f'
//
// Next to the zero of f', terms cancel. Where f' is below 1/16 and |x| < 10, the bound of float64
// is absolute: it is in ULP of 1/16. f'' and f''' are products and keep their bounds. The bounds of
// float32 hold everywhere: f' is computed in segments with a center at its zero, the higher
// derivatives in double.
//
// Source: the definition (Hendrycks and Gimpel, 2016). error_function.h describes how Phi is
// computed in double, segments.h how f and f' are computed in float32. The coefficients for the
// 16-bit types misround none of the 65,536 inputs.
#pragma once

#include "ops/activations/activation.h"
#include "ops/activations/tables/gelu.h"
#include "ops/math/differentiable.h"
#include "ops/math/error_function.h"
#include "ops/math/logistic.h"

namespace fastact::inline FASTACT_TARGET {

struct Gelu {
  static constexpr Traits kTraits = {
      .saves = Saves::kInput, .last_division = 1, .breaks_ties_at_zero = true, .is_costly = true};

  FASTACT_INLINE explicit constexpr Gelu(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    if constexpr (kIs16Bit<Element> && Order <= 1) {
      return derivative_16<Element, Order>(x);
    } else if constexpr (Order == 0) {
      const double moment = guarded_normal_tail_moment(clamp_magnitude(x, kEnd<double>));
      return fma(moment, -kUnguard<double>, positive_part(x));
    } else {
      return narrowed<Element>(derivative_in_double<Element, Order>(static_cast<double>(x)));
    }
  }

  template <int Order>
  static constexpr auto kSegmentTable = table_of<Order>(&kGeluSegments, &kGeluSlopeSegments);

  template <int Order>
  FASTACT_INLINE static uint32_t segment(float x) {
    return segment_index<*kSegmentTable<Order>>(clamp_magnitude_of_number(x, kEnd<float>));
  }

  template <int Order>
  FASTACT_INLINE static auto derivative_in(const Segment& segment, float x) {
    const float size = clamp_magnitude(x, kEnd<float>);
    const float half = 0.5f * size;
    const float square = half * size;
    const auto exponent = reduce_in_pieces(square, fma(half, size, -square));
    if constexpr (Order == 0) {
      return CanonicalOnGpu{mirrored_value(x, decaying(segment_value(segment, size), exponent))};
    } else {
      return mirrored_slope(x, decaying(segment_value_with_zero(segment, size), exponent));
    }
  }

  // (-x^4 + 7 x^2 - 4) phi(x).
  template <class Tensor>
  static Tensor fourth_derivative(const Tensor& x) {
    const Tensor size = bounded(x, 40.0);
    const Tensor square = size * size;
    return kNormalDensity * exp(-0.5 * square) * (square * (7.0 - square) - 4.0);
  }

  FASTACT_INLINE static constexpr bool approximates() { return true; }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    // x Phi(x) = max(x, 0) - a e^(-a^2/2) G(1 / (a + 3)), where a = |x|.
    constexpr bool kBFloat16 = std::is_same_v<Element, BFloat16>;
    const float a = clamp_magnitude(x, kBFloat16 ? 14.0f : 6.5f);
    const float e = approximate_exp2(fma(a * a, -0.5f * kLog2E<float>, kBFloat16 ? 20.0f : 0.0f));
    const float v = approximate_reciprocal(a + 3.0f);
    float g;
    if constexpr (kBFloat16) {
      g = polynomial<kUnguardedMillsBFloat16>(v);
    } else {
      g = polynomial<kMillsFloat16>(v);
    }
    // Half of a tiny odd x is a tie; the exact value is above it.
    const float tail = fma(a, e, kBFloat16 ? -0x1p-127f : -0x1p-40f);
    return with_sign_of(fma(-tail, g, clamp_below(x, 0.0f)), x);
  }

 private:
  // Phi(-a) e^(a^2 / 2), which is Mills' ratio times phi(0), by 1 / (a + 3) for 0 <= a <= 14, to
  // 2^-18.9 of itself (scripts/coefficients/fit_polynomials.py).
  static constexpr Coefficients kMillsBFloat16{-0x1.04c366p-14f, 0x1.9c879p-2f,  0x1.18121cp+0f,
                                               0x1.29ae86p+2f,   -0x1.3efbbp+2f, 0x1.1e1458p+6f,
                                               -0x1.27f90cp+7f,  0x1.70cc06p+6f};
  static constexpr auto kUnguardedMillsBFloat16 = kUnguard16<BFloat16> * kMillsBFloat16;
  // The same for 0 <= a <= 6.5, to 2^-25.0 of itself. For the value.
  static constexpr Coefficients kMillsFloat16{
      -0x1.5a2a66p-15f, 0x1.9a613ep-2f, 0x1.2a3deap+0f,  0x1.b853aap+1f, 0x1.c27926p+2f,
      -0x1.0270e2p+1f,  0x1.0952f6p+7f, -0x1.16c932p+9f, 0x1.a095ap+9f,  -0x1.c4d5bep+8f};
  // For the first derivative, to 2^-20.0 of itself.
  static constexpr Coefficients kSlopeMillsFloat16{
      -0x1.5a390ap-15f, 0x1.9a614ap-2f, 0x1.2a3e3ap0f,  0x1.b8538ap1f, 0x1.c27866p2f,
      -0x1.0271bp1f,    0x1.0952bcp7f,  -0x1.16c912p9f, 0x1.a095aap9f, -0x1.c4d3e4p8f};
  // (e^r - 1) / r for |r| <= ln2 / 2, to 2^-26.8 of e^r. For the value.
  static constexpr Coefficients kValueExponentialFloat16{
      0x1p0f, 0x1p-1f, 0x1.55547ap-3f, 0x1.55546cp-5f, 0x1.124002p-7f, 0x1.6daa9p-10f};
  // For the first derivative, to 2^-20.5 of e^r.
  static constexpr Coefficients kSlopeExponentialFloat16{0x1.ffffbp-1f,  0x1.fffeb2p-2f,
                                                         0x1.555b46p-3f, 0x1.555434p-5f,
                                                         0x1.123f1ep-7f, 0x1.6dafb4p-10f};

  // From this |x| on, the far tail is 0.
  template <class T>
  static constexpr T kEnd = sizeof(T) == 4 ? T{14.6f} : T{39};
  // The same for derivatives: x^2 / 2 is kDerivativeEnd.
  template <class Element>
  static constexpr double kDerivativeStop = std::is_same_v<Element, double> ? 39.0 : 37.66;

  // f' = Phi(x) + x phi(x), f'' = (2 - x^2) phi(x), f''' = (x^3 - 4x) phi(x).
  template <class Element, int Order>
  FASTACT_INLINE static double derivative_in_double(double x) {
    const double size = clamp_magnitude(x, kDerivativeStop<Element>);
    const double square = size * size;
    const double square_rest = fma(size, size, -square);
    const Exponential e = exponential<Element>(-0.5 * square, -0.5 * square_rest);
    if constexpr (Order == 1) {
      // Both terms of Phi(-a) / e - a phi(0) in two parts, because they cancel.
      const auto [ratio, ratio_rest] = normal_ratio(size, reciprocal_for<Element>(size + 4.0));
      const double inverse = reciprocal_for<Element>(ratio);
      const double inverse_rest = inverse * fma(-ratio_rest, inverse, fma(-ratio, inverse, 1.0));
      const double slope =
          fma(size, -kNormalDensity, inverse) + fma(size, -kNormalDensityRest, inverse_rest);
      const double base = x < 0.0 ? 0.0 : 1.0;
      const double sign = x < 0.0 ? kDerivativeUnguard<Element> : -kDerivativeUnguard<Element>;
      return fma(sign * slope, e.guarded, base);
    } else if constexpr (Order == 2) {
      return e.guarded * kNormalDensity * fma(-size, size, 2.0) * kDerivativeUnguard<Element>;
    } else {
      const double sign = x < 0.0 ? -1.0 : 1.0;
      // In this order, no partial product is subnormal.
      return sign * e.guarded * kNormalDensity * size * fma(size, size, -4.0) *
             kDerivativeUnguard<Element>;
    }
  }

  template <class Element, int Order>
  FASTACT_INLINE static float derivative_16(float x) {
    float size;
    float e;
    float mills;
    if constexpr (std::is_same_v<Element, BFloat16>) {
      size = clamp_magnitude(x, 14.27f);
      e = gaussian_16<Element, kExponentialBFloat16>(size * size);
      const float v = reciprocal(size + 3.0f);
      // The value's unguarding factor is a power of two, so both branches give the same bits.
      if constexpr (Order == 0 && factor_goes_into_coefficients()) {
        mills = polynomial<kUnguardedMillsBFloat16>(v);
      } else {
        mills = polynomial<kMillsBFloat16>(v) * (Order == 0 ? kUnguard16<Element> : 1.0f);
      }
    } else if constexpr (Order == 0) {
      size = clamp_magnitude(x, 13.27f);
      e = gaussian_16<Element, kValueExponentialFloat16>(size * size);
      mills = polynomial<kMillsFloat16>(reciprocal(size + 3.0f));
    } else {
      size = clamp_magnitude(x, 13.27f);
      e = gaussian_16<Element, kSlopeExponentialFloat16>(size * size);
      mills = polynomial<kSlopeMillsFloat16>(reciprocal(size + 3.0f));
    }
    if constexpr (Order == 0) {
      return mirrored_16<Element>(x, fma(size, e, -kUp16<Element>), mills);
    } else {
      const float slope = e * fma(size, -0x1.988456p-2f, mills);
      return x < 0.0f ? slope * kUnguard16<Element> : fma(-slope, kUnguard16<Element>, 1.0f);
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

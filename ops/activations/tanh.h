// Tanh: f(x) = (e^2x - 1) / (e^2x + 1).
//
// Range: every input. f(-0.0) = -0.0, f(-inf) = -1 and f(inf) = 1.
//
// Accuracy (ULP):  f     f'    f''   f'''
//   bfloat16       0.5   0.5   0.5   0.5
//   float16        0.5   0.5   0.5   0.5
//   float32        1.1   0.5   0.5   0.5
//   float64        0.8   0.5   0.5   0.5
//
// The derivatives are functions of the result y. Their bounds are those of d(y) = 1 - y^2 and its
// derivatives, for any y.
//
// Source: in double the definition, as (1 - e) / (1 + e) with e = e^-2|x|; in float32 segments
// (segments.h).
#pragma once

#include "ops/activations/activation.h"
#include "ops/activations/tables/tanh.h"
#include "ops/math/logistic.h"

namespace fastact::inline FASTACT_TARGET {

struct Tanh {
  static constexpr Traits kTraits = {
      .saves = Saves::kOutput, .last_division = 0, .is_costly = true};

  FASTACT_INLINE explicit constexpr Tanh(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE OpMath<Element> derivative(OpMath<Element> x) const {
    static_assert(Order == 0);
    if constexpr (kIs16Bit<Element>) {
      return value_16<Element>(x);
    } else {
      return with_sign_of(value_of_magnitude(clamp_magnitude(x, 20.0)), x);
    }
  }

  // d(y) = 1 - y^2, d' = -2y, d'' = -2.
  template <class Element, int Order>
  FASTACT_INLINE auto derivative_from_result(OpMath<Element> y) const {
    using T = Wider<Element>;
    const auto wide = static_cast<T>(y);
    if constexpr (Order == 1) {
      return fma(-y, y, OpMath<Element>{1});
    } else if constexpr (Order == 2) {
      return T{-2} * wide;
    } else {
      return is_nan(wide) ? wide : T{-2};
    }
  }

  template <int Order>
  static constexpr auto kSegmentTable = table_of<Order>(&kTanhSegments);

  FASTACT_INLINE static constexpr bool approximates() { return true; }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    const float e = approximate_exp2(x * (2.0f * kLog2E<float>));
    const float beyond = fma(approximate_reciprocal(e + 1.0f), -2.0f, 1.0f);
    float p;
    if constexpr (std::is_same_v<Element, BFloat16>) {
      p = polynomial<kNearZeroBFloat16>(x * x);
    } else {
      p = polynomial<kNearZeroFloat16>(x * x);
    }
    constexpr float kNear = std::is_same_v<Element, BFloat16> ? 0.5f : 0.75f;
    return with_sign_of(magnitude(x) < kNear ? x * p : beyond, x);
  }

 private:
  // tanh(x) / x by x^2 for |x| <= 1/2, to 2^-20.7 of itself
  // (scripts/coefficients/fit_polynomials.py).
  static constexpr Coefficients kNearZeroBFloat16{0x1.ffffeep-1f, -0x1.554356p-2f, 0x1.0e2b72p-3f,
                                                  -0x1.6c16a2p-5f};
  // The same for |x| <= 3/4, to 2^-24.0 of itself.
  static constexpr Coefficients kNearZeroFloat16{0x1p0f,          -0x1.555468p-2f, 0x1.10e8fcp-3f,
                                                 -0x1.b51cbcp-5f, 0x1.414fa6p-6f,  -0x1.366768p-8f};
  // (e^r - 1) / r for |r| <= ln2 / 2, to 2^-25.4 of itself.
  static constexpr Coefficients kExpm1Float16{0x1p0f,         0x1p-1f,        0x1.55547ap-3f,
                                              0x1.55546ep-5f, 0x1.124002p-7f, 0x1.6daa9p-10f};

  // (1 - e) / (1 + e) with e = e^-2a = s e^-r for a power of two s. The denominator is 2 minus the
  // numerator. Both are sums of two doubles, so the quotient keeps its relative accuracy down to a
  // = 0, where s is 1 and the numerator is almost r.
  FASTACT_INLINE static double value_of_magnitude(double a) {
    const Pieces<double> x = reduce_in_pieces(a + a);
    const double s = x.scale * kUnguard<double>;
    // e^-r = linear + rest, including the effect of r's rounding error on r^2 / 2.
    const double linear = 1.0 - x.high;
    const double lost = fma(x.r, (x.high - x.r) + x.low, ((1.0 - linear) - x.high) - x.low);
    const double rest = fma(x.r * x.r, exponential_tail(-x.r), lost);
    const double difference = fma(-s, linear, 1.0);
    const double difference_rest = fma(-s, rest, fma(-s, linear, 1.0 - difference));
    const double n = difference + difference_rest;
    const double n_rest = difference_rest - (n - difference);
    const double d = 2.0 - n;
    const double d_rest = ((2.0 - d) - n) - n_rest;
    const double inverse = reciprocal(d);
    const double q = n * inverse;
    return fma(inverse, fma(-d_rest, q, fma(-d, q, n)) + n_rest, q);
  }

  template <class Element>
  FASTACT_INLINE static float value_16(float x) {
    // tanh(a) = -m / (2 + m), where m = e^-2a - 1.
    const float size = clamp_magnitude(x, 15.0f);
    const auto [r, scale] = reduce<Element>(-2.0f * size);
    float p;
    if constexpr (std::is_same_v<Element, BFloat16>) {
      p = polynomial<kExponentialBFloat16>(r);
    } else {
      p = polynomial<kExpm1Float16>(r);
    }
    const float m = fma(scale * r, p, scale - 1.0f);
    return with_sign_of(m * reciprocal(2.0f + m), x);
  }
};

}  // namespace fastact::inline FASTACT_TARGET

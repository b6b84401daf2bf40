// SELU: f(x) = lambda x for x > 0, lambda alpha (e^x - 1) for x <= 0.
//
// Range: every input. selu(-0.0) = -0.0, selu(-inf) = -lambda alpha; f'(0) = lambda alpha, from the
// left.
//
// Accuracy (ULP):  f    f'     f''    f'''
//   bfloat16       0.5  0.5    0.5    0.5
//   float16        0.5  0.5    0.5    0.5
//   float32        0.5  0.85   0.501  0.501
//   float64        1.5  1.5    1.5    1.5
//
// The float32 gradient is within 1 ULP for any incoming gradient, and within 1.3 if one of the two
// is close to underflow.
//
// From the result (in-place calls), f' = y + lambda alpha includes the rounding errors of y and of
// the sum. Together they are less than one ULP of lambda alpha. This error is absolute: where f' is
// small, it is large relative to f'.
//
// Source of the constants: the closed form for mean 0 and variance 1 in Klambauer et al.,
// "Self-Normalizing Neural Networks", 2017, equation 14, evaluated to 30 digits.
#pragma once

#include "ops/activations/activation.h"
#include "ops/math/differentiable.h"
#include "ops/math/exponential.h"

namespace fastact::inline FASTACT_TARGET {

struct Selu {
  static constexpr Traits kTraits = {.saves = Saves::kInput, .gradient_from_result = true};

  // lambda = 1.0507009873554804934193349852946, lambda alpha = 1.7580993408473768599402175208123,
  // each as the sum of two doubles. The first part of lambda is one unit in the last place below
  // the nearest double, so that its rest is positive and inf * rest is +inf.
  static constexpr double kLambda = 0x1.0cfabd6a91132p0;
  static constexpr double kLambdaHigh = 0x1.0cfabd6a91131p0;
  static constexpr double kLambdaLow = 0x1.2df8fa4e5e4d3p-52;
  static constexpr double kLambdaAlpha = 0x1.c212cc640f031p0;
  static constexpr double kLambdaAlphaLow = 0x1.05161b045a1fep-56;
  static constexpr auto kLambdaAlphaFloat = static_cast<float>(kLambdaAlpha);

  // f' underflows below this number. It is the first number of T for which lambda alpha e^x is at
  // least half the smallest subnormal number (of float, in which 16-bit types compute, or of
  // double).
  template <class T>
  static constexpr T kVanishing =
      static_cast<T>(sizeof(T) == 4 ? -0x1.a2252ep6 : -0x1.74d9461ed854cp9);

  FASTACT_INLINE explicit constexpr Selu(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE Wider<Element> derivative(OpMath<Element> x) const {
    using T = Wider<Element>;
    if constexpr (Order == 0) {
      const T negative = value_below_zero<Element>(x);
      const T positive = times_lambda<Element>(x);
      return x < OpMath<Element>{0} ? negative : positive;
    } else {
      const T beyond_zero = Order == 1 ? static_cast<T>(kLambda) : T{0};
      const T below_zero = derivative_below_zero<Element>(x);
      // The branch for negative x keeps a NaN.
      return x > OpMath<Element>{0} ? beyond_zero : below_zero;
    }
  }

  template <class Element>
  FASTACT_INLINE auto backward(OpMath<Element> g, OpMath<Element> x) const {
    using T = OpMath<Element>;
    // Where f' underflows, the result is +0 for any g, because zero times any factor is +0.
    const T kept = x < kVanishing<T> ? T{0} : g;
    if constexpr (std::is_same_v<Element, float>) {
      return canonical(x, split_derivative(x).times(kept));
    } else {
      const T below_zero = derivative_below_zero<Element>(x);
      return kept * (x > T{0} ? static_cast<T>(kLambda) : below_zero);
    }
  }

  // d(y) = y + lambda alpha below zero, lambda above. Never negative, even if y was rounded to or
  // below -lambda alpha.
  template <class Element, int Order>
  FASTACT_INLINE Wider<Element> derivative_from_result(OpMath<Element> y) const {
    using T = Wider<Element>;
    const T wide = static_cast<T>(y);
    T below_zero = 0;
    T beyond_zero = 0;
    if constexpr (Order == 1) {
      below_zero = wide + static_cast<T>(kLambdaAlpha);
      below_zero = below_zero > T{0} ? below_zero : T{0};
      beyond_zero = static_cast<T>(kLambda);
    } else if constexpr (Order == 2) {
      below_zero = 1;
    }
    const T result = wide <= T{0} ? below_zero : beyond_zero;
    return is_nan(wide) ? wide : result;
  }

  template <class Tensor>
  static Tensor fourth_derivative(const Tensor& x) {
    return where(x > 0.0, 0.0, kLambdaAlpha * exp(below_zero(x)));
  }

 private:
  // Polynomials for |r| <= ln2 / 2 that include the factor lambda alpha
  // (scripts/coefficients/fit_polynomials.py).

  // lambda alpha (e^r - 1) / r, to 2^-47.4 of itself. Misrounds none of the 2^31 negative inputs.
  static constexpr Coefficients kExpm1Float{
      0x1.c212cc640f02fp0,  0x1.c212cc640efd7p-1, 0x1.2c0c8842b0fd9p-2,  0x1.2c0c8842c1925p-4,
      0x1.e0140d582d352p-7, 0x1.400d5df608da3p-9, 0x1.6dc5c2afa573cp-12, 0x1.6dc6859519e14p-15,
      0x1.460600983cb1p-18, 0x1.041b7aba757b1p-21};
  // The shortest polynomial that misrounds none of the 65,536 inputs, to 2^-20.9 of itself.
  static constexpr Coefficients kExpm1BFloat16{0x1.c212cep0f, 0x1.c21154p-1f, 0x1.2c0b70p-2f,
                                               0x1.2d9100p-4f, 0x1.e28166p-7f};
  // To 2^-24.7 of itself.
  static constexpr Coefficients kExpm1Float16{0x1.c212ccp0f,  0x1.c212ccp-1f, 0x1.2c0bc6p-2f,
                                              0x1.2c0bbcp-4f, 0x1.e228a6p-7f, 0x1.417056p-9f};
  // lambda alpha e^r, to 2^-40.1 of itself.
  static constexpr Coefficients kExponentialFloat{
      0x1.c212cc640e816p0,  0x1.c212cc63e6854p0,   0x1.c212cc6511851p-1,
      0x1.2c0c8888c5af4p-2, 0x1.2c0c870933491p-4,  0x1.e01308e923eacp-7,
      0x1.400f253ddc4dep-9, 0x1.6f2b023f90c98p-12, 0x1.6ca7cbfd64fe3p-15};
  // lambda alpha (e^r - 1 - r) / r^2, to 2^-27.7 of e^r. Minimax.
  static constexpr Coefficients kTail{0x1.c212c8p-1f, 0x1.2c0bdcp-2f, 0x1.2c0fb6p-4f,
                                      0x1.e21e4ep-7f, 0x1.3e56f2p-9f};

  template <class Element>
  FASTACT_INLINE static Wider<Element> times_lambda(OpMath<Element> x) {
    if constexpr (std::is_same_v<Element, double>) {
      return fma(x, kLambdaHigh, x * kLambdaLow);
    } else {
      // In double the product is rounded once, and it is far enough from a tie that the second
      // rounding, to float, is correct (every significand was checked).
      return static_cast<Wider<Element>>(x) * static_cast<Wider<Element>>(kLambda);
    }
  }

  // Returns lambda alpha (e^x - 1) = s r P(r) + (s - 1) lambda alpha for x <= 0, where P includes
  // lambda alpha. The result for positive x is not used.
  template <class Element>
  FASTACT_INLINE static Wider<Element> value_below_zero(OpMath<Element> x) {
    if constexpr (std::is_same_v<Element, double>) {
      const auto [r, scale] = reduce(clamp_below(x, -40.0));
      // e^r - 1 = r + tail.
      const double tail = r * r * exponential_tail(r);
      const double near = fma(kLambdaAlpha, r, fma(kLambdaAlpha, tail, kLambdaAlphaLow * r));
      const double shift = scale - 1.0;
      return fma(shift, kLambdaAlpha, fma(scale, near, shift * kLambdaAlphaLow));
    } else if constexpr (std::is_same_v<Element, float>) {
      const auto [r, scale] = reduce_short(static_cast<double>(clamp_negative(x, -20.0f)));
      const double p = polynomial<kExpm1Float>(r);
      return fma(scale, r * p, fma(scale, kLambdaAlpha, -kLambdaAlpha));
    } else {
      const auto [r, scale] = reduce<Element>(clamp_negative(x, -20.0f));
      float p;
      if constexpr (std::is_same_v<Element, BFloat16>) {
        p = polynomial<kExpm1BFloat16>(r);
      } else {
        p = polynomial<kExpm1Float16>(r);
      }
      return fma(scale * r, p, fma(scale, kLambdaAlphaFloat, -kLambdaAlphaFloat));
    }
  }

  // Returns lambda alpha e^x, which is every derivative for x <= 0. The result for positive x is
  // not used.
  template <class Element>
  FASTACT_INLINE static Wider<Element> derivative_below_zero(OpMath<Element> x) {
    if constexpr (std::is_same_v<Element, double>) {
      const auto [r, scale] = reduce<kGuardDouble>(clamp_below(x, -750.0));
      const double p = fma(r * r, exponential_tail(r), r);
      return (kLambdaAlpha + fma(kLambdaAlpha, p, kLambdaAlphaLow)) * scale * 0x1p-200;
    } else if constexpr (std::is_same_v<Element, float>) {
      // At the lower bound, n is -1023 and the bits of the scale are those of 0, and so the result
      // is 0. float32 results are 0 far above this bound already.
      const auto [r, scale] = reduce_short(static_cast<double>(clamp_below(x, -709.125f)));
      const double p = polynomial<kExponentialFloat>(r);
      return p * scale;
    } else {
      const auto [r, scale] = reduce<Element, kGuardFloat>(clamp_below(x, -110.0f));
      float p;
      if constexpr (std::is_same_v<Element, BFloat16>) {
        p = polynomial<kExponentialBFloat16>(r);
      } else {
        p = polynomial<kExponentialFloat16>(r);
      }
      return fma(scale * r, p, scale) * (kLambdaAlphaFloat * kUnguard<float>);
    }
  }

  // For float32's backward: 0.27 ns an element, in double 0.58 (Zen 5, docs/dev/tuning.md).
  FASTACT_INLINE static SplitExponential split_derivative(float x) {
    const auto [high, low, late] =
        split_exponential<kTail>(clamp_negative(x, kVanishing<float>), kLambdaAlphaFloat,
                                 static_cast<float>(kLambdaAlpha - kLambdaAlphaFloat));
    constexpr float kHigh = 0x1.0cfabcp0f;  // of lambda, below it like kLambdaHigh
    constexpr auto kLow = static_cast<float>(kLambda - kHigh);
    return {x > 0.0f ? kHigh : high, x > 0.0f ? kLow : low, late};
  }
};

}  // namespace fastact::inline FASTACT_TARGET

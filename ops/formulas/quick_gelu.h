// Quick GELU: f(x) = x / (1 + e^(-1.702 x)).
//
// Range: every input. f(-0.0) = -0.0 and f(-inf) = -0.0; the far negative tail keeps its relative
// accuracy down to the subnormal numbers. f'(inf) = 1; f'(-inf) and the higher ones at both are 0.
//
// Accuracy (ULP):  f     f'    f''   f'''
//   bfloat16       0.5   0.5   0.5   0.5
//   float16        0.5   0.5   0.5   0.5
//   float32        0.95  0.6   0.6   0.7
//   float64        0.8   7     10    17
//
// Next to a zero of a derivative, where it is below 1/16 for |x| < 10, float64's bound is in ULP of
// 1/16: an absolute one, as terms cancel there. float32 computes in double, and its bound holds
// everywhere: the float32 numbers next to the zeros were all tried.
//
// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016; 1.702 is exactly that decimal
// number. The 16-bit types' coefficients leave none of the 65,536 inputs misrounded.
#pragma once

#include "ops/formulas/formula.h"
#include "ops/formulas/logistic.h"

namespace fastact::inline FASTACT_TARGET {

struct QuickGelu {
  static constexpr Traits kTraits = {.saves = Saves::kInput};

  explicit constexpr QuickGelu(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(Wide<Element> x) const {
    using T = Wide<Element>;
    if constexpr (kIs16Bit<Element> && Order <= 1) {
      return derivative_16<Element, Order>(x);
    } else if constexpr (Order == 0) {
      const T size = clamp_magnitude(x, kEnd<T>);
      const T argument = size * kFactor<T>;
      return gate(x, size, argument, fma(size, kFactorRest<T>, fma(size, kFactor<T>, -argument)));
    } else {
      const auto wide = static_cast<double>(x);
      const double size = clamp_magnitude(wide, kDerivativeEnd<Element> / kFactor<double>);
      const double argument = size * kFactor<double>;
      const double rest = fma(size, kFactorRest<double>, fma(size, kFactor<double>, -argument));
      return narrowed<Element>(
          gate_derivative<Element, Order>(wide, size, {argument, rest, kFactor<double>, 0.0, 0.0}));
    }
  }

 private:
  // 1.702 as the sum of two.
  template <class T>
  static constexpr T kFactor =
      sizeof(T) == 4 ? T{0x1.b3b646p0f} : static_cast<T>(0x1.b3b645a1cac08p0);
  template <class T>
  static constexpr T kFactorRest =
      sizeof(T) == 4 ? T{-0x1.78d4fep-26f} : static_cast<T>(0x1.89374bc6a7efap-55);
  // |x| from where on the far tail is 0.
  template <class T>
  static constexpr T kEnd = sizeof(T) == 4 ? T{64} : T{448};

  template <class Element, int Order>
  FASTACT_INLINE static float derivative_16(float x) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      const float size = clamp_magnitude(x, 60.0f);
      const float e = exponential_16<Element>(size * -0x1.b3b644p0f, 0x1.ffffb8p-1f, 0x1.fffe4ap-2f,
                                              0x1.555424p-3f, 0x1.5711bap-5f, 0x1.126f12p-7f);
      if constexpr (Order == 0) {
        return gate_16<Element>(x, size, e);
      } else {
        const float y = gate_derivative_16<Element>(x, with_sign_of(size * 0x1.b3b646p0f, x), e);
        return corrected_at(x, -0x1.818p-1f, y, 0x1p-24f);
      }
    } else {
      const float size = clamp_magnitude(x, 51.75f);
      if constexpr (Order == 0) {
        const float e = exponential_16<Element>(size * -0x1.b3b644p0f, 0x1.000008p0f, 0x1.00001p-1f,
                                                0x1.55556ep-3f, 0x1.55539ep-5f, 0x1.123e56p-7f,
                                                0x1.6da892p-10f);
        return gate_16<Element>(x, size, e);
      } else {
        const float e = exponential_16<Element>(size * -0x1.b3b648p0f, 0x1.fffffcp-1f,
                                                0x1.0000a4p-1f, 0x1.55662ep-3f, 0x1.55d57cp-5f,
                                                0x1.121bdcp-7f, 0x1.6dcad2p-10f);
        const float y = gate_derivative_16<Element>(x, with_sign_of(size * 0x1.b3b646p0f, x), e);
        return corrected_at(x, -0x1.818p-1f, y, 0x1p-24f);
      }
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

// Sigmoid: f(x) = 1 / (1 + e^-x).
#pragma once

#include "ops/formulas/formula.h"
#include "ops/formulas/logistic.h"

namespace fastact::inline FASTACT_TARGET {

struct Sigmoid {
  static constexpr Traits kTraits = {.saves = Saves::kOutput, .gradient_from_result = true};

  explicit constexpr Sigmoid(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE Wide<Element> derivative(Wide<Element> x) const {
    static_assert(Order == 0);
    using T = Wide<Element>;
    if constexpr (kIs16Bit<Element>) {
      return value_16<Element>(x);
    } else {
      const auto tail = logistic_tail(clamp_magnitude(x, kLogisticEnd<T>));
      const T near = tail.of_one() * tail.scale;
      const T base = x < T{0} ? T{0} : T{1};
      const T factor = x < T{0} ? kUnguard<T> : -kUnguard<T>;
      return fma(near, factor, base);
    }
  }

  // d(y) = y (1 - y), d' = 1 - 2y, d'' = -2; for float32 in double, where 1 - y is exact.
  template <class Element, int Order>
  FASTACT_INLINE auto derivative_from_result(Wide<Element> y) const {
    using T = std::conditional_t<kIs16Bit<Element>, float, double>;
    const auto wide = static_cast<T>(y);
    if constexpr (Order == 1) {
      return wide * (T{1} - wide);
    } else if constexpr (Order == 2) {
      return fma(T{-2}, wide, T{1});
    } else {
      return is_nan(wide) ? wide : T{-2};
    }
  }

 private:
  template <class Element>
  FASTACT_INLINE static float value_16(float x) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      const float e =
          exponential_16<Element, 20>(-clamp_magnitude(x, 102.0f), 0x1p0f, 0x1.fffe54p-2f,
                                      0x1.555418p-3f, 0x1.570f42p-5f, 0x1.12727cp-7f);
      const float numerator = x < 0.0f ? e : 0x1p20f;
      return numerator * reciprocal(fma(e, 0x1p-20f, 1.0f)) * 0x1p-20f;
    } else {
      const float e = exponential_16<Element, 0>(-clamp_magnitude(x, 88.0f), 0x1.000002p0f,
                                                 0x1.000004p-1f, 0x1.55548p-3f, 0x1.55549p-5f,
                                                 0x1.12401p-7f, 0x1.6daa9ep-10f);
      const float numerator = x < 0.0f ? e : 1.0f;
      return numerator * reciprocal(1.0f + e) - nudge_towards_half(x);
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

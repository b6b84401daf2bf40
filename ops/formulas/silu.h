// SiLU: f(x) = x / (1 + e^-x).
#pragma once

#include "ops/formulas/formula.h"
#include "ops/formulas/logistic.h"

namespace fastact::inline FASTACT_TARGET {

struct Silu {
  static constexpr Traits kTraits = {.saves = Saves::kInput};

  explicit constexpr Silu(const double* /*parameters*/) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(Wide<Element> x) const {
    using T = Wide<Element>;
    if constexpr (kIs16Bit<Element> && Order <= 1) {
      return derivative_16<Element, Order>(x);
    } else if constexpr (Order == 0) {
      const T size = clamp_magnitude(x, kLogisticEnd<T>);
      return gate(x, size, size);
    } else {
      const auto wide = static_cast<double>(x);
      const double size = clamp_magnitude(wide, kLogisticEnd<double>);
      return narrowed<Element>(gate_derivative<Order>(wide, size, {size, 0.0, 1.0, 0.0, 0.0}));
    }
  }

 private:
  template <class Element, int Order>
  FASTACT_INLINE static float derivative_16(float x) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      const float size = clamp_magnitude(x, kEnd16<Element>);
      const float e = exponential_16<Element>(-size, 0x1.ffffaep-1f, 0x1.fffe4ap-2f, 0x1.555418p-3f,
                                                  0x1.570eb6p-5f, 0x1.12737cp-7f);
      if constexpr (Order == 0) {
        return gate_16<Element>(x, size, e);
      } else {
        return gate_derivative_16<Element>(x, with_sign_of(size, x), e);
      }
    } else {
      const float size = clamp_magnitude(x, kEnd16<Element>);
      if constexpr (Order == 0) {
        const float e = exponential_16<Element>(-size, 0x1.ffffe4p-1f,0x1.000024p-1f,0x1.55548cp-3f,0x1.55547ep-5f,0x1.123fc8p-7f,0x1.6daa36p-10f);
        return gate_16<Element>(x, size, e);
      } else {
        const float e = exponential_16<Element>(-size, 0x1.fffffp-1f,0x1.fffdcp-2f,0x1.555462p-3f,0x1.5605eep-5f,0x1.123234p-7f,0x1.6d92a4p-10f);
        const float y = gate_derivative_16<Element>(x, with_sign_of(size, x), e);
        return y - nudge_towards_half(x);
      }
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET

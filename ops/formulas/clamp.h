// min(max(x, low), high) for two bounds, which hardtanh and relu6 are.
//
// The bounds are rounded to the element's type first: then the result is at a bound exactly where
// the input is at or beyond it, and serves in the input's place in every derivative.
#pragma once

#include "ops/formulas/formula.h"

namespace fastact::inline FASTACT_TARGET {

struct Clamp {
  static constexpr Traits kTraits = {.saves = Saves::kResult};

  double low;
  double high;

  template <class Element, int Order>
  FASTACT_INLINE Wide<Element> derivative(Wide<Element> x) const {
    using T = Wide<Element>;
    const T lower = bound<Element>(low);
    const T upper = bound<Element>(high);
    if constexpr (Order == 0) {
      const T above = x < lower ? lower : x;
      return above > upper ? upper : above;
    } else {
      const T slope = ((x > lower) & (x < upper)) ? T{Order == 1} : T{0};
      return is_nan(x) ? x : slope;
    }
  }

 private:
  template <class Element>
  FASTACT_INLINE static Wide<Element> bound(double value) {
    return widen(round_to<Element>(static_cast<Wide<Element>>(value)));
  }
};

}  // namespace fastact::inline FASTACT_TARGET

// f(x) for 16-bit types if the result is not rounded at once, because a compiler continues with it
// in float (ops/codegen/one_element.cu, ops/codegen/inlined.h). Steps of a formula that only
// prepare this rounding are omitted: they break ties and make NaNs canonical. If an activation has
// no such form, the value itself is used.
//
// Accuracy: within 0.005 ULP of the 16-bit type for any float x. NaN for NaN. If f(x) is 0, its
// sign may differ from the value's.
#pragma once

#include "ops/forms/derivative.h"

namespace fastact::inline FASTACT_TARGET {

template <class A, class Element>
struct Unrounded {
  using Outputs = Elements<Element>;
  using Inputs = Elements<Element>;

  static constexpr bool kHasFastForm = HasApproximateUnrounded<A, Element>;

  FASTACT_INLINE explicit Unrounded(const double* parameters) : act(parameters) {}

  FASTACT_INLINE float evaluate(float x) const {
    if constexpr (kApproximate && kHasFastForm) {
      return A::template approximate_unrounded<Element>(x);
    } else {
      return act.template unrounded<Element>(x);
    }
  }

  A act;
};

// The unrounded form of a value form F; void if there is none.
template <class F>
struct UnroundedOf {
  using type = void;
};
template <class A, class Element>
  requires HasUnrounded<A, Element>
struct UnroundedOf<Derivative<A, Element, 0, false>> {
  using type = Unrounded<A, Element>;
};

}  // namespace fastact::inline FASTACT_TARGET

// f(x) for 16 bits where the result is not rounded to them at once, because a compiler computes
// with it in float (ops/cuda/one_element.cu, ops/cpu/one_vector.cpp). What a formula does only for
// that rounding is left out: no step off a tie, and no one NaN. Where an activation has no such
// form, the value itself serves.
//
// Numbers: for any float x within 0.005 ULP of the 16-bit type. NaN for NaN. Where f(x) is 0, its
// sign may differ from that of the value.
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

// The form that a value has in this way; void where it has none.
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

// PReLU: f(w, x) = x for x > 0, w x for x <= 0, with a weight w for each element.
//
// Range: every input. A NaN weight does not affect positive x. f(w, -0.0) = -0.0 for a positive
// weight.
//
// Correctly rounded in every type: the result is one product. For 16-bit types, float represents
// the product exactly, or the product is closer to zero than the type's smallest number.
//
// df/dx = 1 for x > 0, w for x <= 0. df/dw = 0 for x > 0, x for x <= 0. Both are NaN for a NaN x.
//
// Source: He et al., "Delving Deep into Rectifiers: Surpassing Human-Level Performance on ImageNet
// Classification", 2015.
#pragma once

#include <tuple>

#include "ops/forms/form.h"

namespace fastact::inline FASTACT_TARGET {

// f(w, x).
template <class Element>
struct Prelu {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<Element, Element>;
  static constexpr Broadcast kBroadcasts[] = {Broadcast::kPerChannel, Broadcast::kElementwise};

  FASTACT_INLINE explicit constexpr Prelu(const double* /*parameters*/) {}

  FASTACT_INLINE T evaluate(T w, T x) const {
    const T below_zero = w * x;
    return x > T{0} ? x : below_zero;
  }
};

// g df/dx.
template <class Element>
struct PreluBackward {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<Element, Element, Element>;
  static constexpr Broadcast kBroadcasts[] = {Broadcast::kElementwise, Broadcast::kPerChannel,
                                              Broadcast::kElementwise};

  FASTACT_INLINE explicit constexpr PreluBackward(const double* /*parameters*/) {}

  FASTACT_INLINE auto evaluate(T g, T w, T x) const {
    const T below_zero = w == T{0} ? T{0} : g * w;
    return with_nan_of<Element>(x, x > T{0} ? g : below_zero);
  }
};

// g df/dw.
template <class Element>
struct PreluWeightBackward {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<Element, Element>;

  FASTACT_INLINE explicit constexpr PreluWeightBackward(const double* /*parameters*/) {}

  FASTACT_INLINE auto evaluate(T g, T x) const { return product<Element>(x > T{0} ? T{0} : x, g); }
};

// g1 g2 d2f/dw dx.
template <class Element>
struct PreluWeightDoubleBackward {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<Element, Element, Element>;

  FASTACT_INLINE explicit constexpr PreluWeightDoubleBackward(const double* /*parameters*/) {}

  FASTACT_INLINE auto evaluate(T g1, T g2, T x) const {
    const T mixed = x > T{0} ? T{0} : T{1};
    return product<Element>(is_nan(x) ? x : mixed, g1, g2);
  }
};

struct PreluForms {
  static constexpr int kCount = 4;

  template <class Element, int Index>
  using Form = std::tuple_element_t<
      Index, std::tuple<Prelu<Element>, PreluBackward<Element>, PreluWeightBackward<Element>,
                        PreluWeightDoubleBackward<Element>>>;
};

}  // namespace fastact::inline FASTACT_TARGET

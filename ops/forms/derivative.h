// The forms of an activation: D_k(g1..gk, x) = g1 * ... * gk * f^(k)(x). k runs from 0, the value,
// to kTopOrder. The inputs are the k gradients, then x.
#pragma once

#include "ops/activations/activation.h"
#include "ops/forms/form.h"

namespace fastact {

// Returns the index of D_order among an activation's forms. If `from_result` is true, x is the
// result of f, see Traits::gradient_from_result. For activations whose x always is the result
// (Saves::kOutput), `from_result` is false.
constexpr int derivative_form(int order, bool from_result) {
  return from_result ? kTopOrder + order : order;
}
inline constexpr int kValueForm = derivative_form(0, false);

}  // namespace fastact

namespace fastact::inline FASTACT_TARGET {

// has_segments() for device code, which cannot call host functions.
template <class A, class Element, int Order>
inline constexpr bool kHasSegments = has_segments<A, Element, Order>();

// True if float32's f^(Order) is computed in a FullTable.
template <class A, class Element, int Order>
constexpr bool has_full_table() {
  if constexpr (has_segments<A, Element, Order>()) {
    return ShapeOf<*A::template kSegmentTable<Order>>::kIsFull;
  } else {
    return false;
  }
}

template <class A, class Element, int Order>
inline constexpr bool kHasFullTable = has_full_table<A, Element, Order>();

// Returns the segment of x.
template <int Order, class A>
FASTACT_INLINE uint32_t segment_of(const A& act, float x) {
  if constexpr (kHasFullTable<A, float, Order>) {
    static_assert(!requires { act.template segment<Order>(x); }, "a FullTable is the function");
    return full_table_index<*A::template kSegmentTable<Order>>(x);
  } else {
    return act.template segment<Order>(x);
  }
}

// Returns f^(Order)(x) from the segment of x.
template <int Order, class A, class Segment>
FASTACT_INLINE auto derivative_in(const A& act, const Segment& segment, float x) {
  if constexpr (kHasFullTable<A, float, Order>) {
    return full_table_value<*A::template kSegmentTable<Order>>(segment, x);
  } else {
    return act.template derivative_in<Order>(segment, x);
  }
}

// The same for |x| below the end of a FullTable.
template <class A, int Order, class Segment>
FASTACT_INLINE float near_derivative(const Segment& segment, float x) {
  return full_table_value_below_end<*A::template kSegmentTable<Order>>(segment, x, magnitude(x));
}

// A function instead of a lambda: GCC 12 does not inline a lambda as long as GELU's derivative, and
// does not vectorize a loop that contains a call.
template <class Element, int Order, bool FromResult, class A>
FASTACT_INLINE auto derivative_at(const A& act, OpMath<Element> x) {
  if constexpr (FromResult || (Order > 0 && A::kTraits.saves == Saves::kOutput)) {
    return act.template derivative_from_result<Element, Order>(x);
  } else if constexpr (kHasSegments<A, Element, Order>) {
    const auto segment = find_segment<*A::template kSegmentTable<Order>>(segment_of<Order>(act, x));
    return derivative_in<Order>(act, segment, x);
  } else {
    return act.template derivative<Element, Order>(x);
  }
}

// Returns f(x), computed by approximate_value() in the kernels that allow it.
template <class Element, class A>
FASTACT_INLINE auto value_at(const A& act, OpMath<Element> x) {
  if constexpr (kApproximate && HasApproximation<A, Element>) {
    if (act.approximates()) return act.template approximate_value<Element>(x);
  }
  return derivative_at<Element, 0, false>(act, x);
}

template <class Element, int Order, class Gradients = std::make_index_sequence<Order>>
struct DerivativeInputs;
template <class Element, int Order, size_t... I>
struct DerivativeInputs<Element, Order, std::index_sequence<I...>> {
  template <size_t>
  using Gradient = Element;
  using type = Elements<Gradient<I>..., Element>;
};

// Returns true if A::Default can replace A.
template <class A, class Element, int Order, bool FromResult>
constexpr bool has_default() {
  if constexpr (HasDefault<A>) {
    return A::Default::template stands_in<Element, Order, FromResult>();
  } else {
    return false;
  }
}

template <class A, class Element, int Order, bool FromResult>
struct Derivative;

// The Default of a form.
template <class A, class Element, int Order, bool FromResult,
          bool = has_default<A, Element, Order, FromResult>()>
struct DefaultDerivative {};
template <class A, class Element, int Order, bool FromResult>
struct DefaultDerivative<A, Element, Order, FromResult, true> {
  using Default = Derivative<typename A::Default, Element, Order, FromResult>;
  static constexpr bool is_default(const double* parameters) { return A::is_default(parameters); }
};

// The segment table of a form.
template <class A, class Element, int Order, bool FromResult,
          bool = !FromResult && has_segments<A, Element, Order>()>
struct DerivativeTable {};
template <class A, class Element, int Order, bool FromResult>
struct DerivativeTable<A, Element, Order, FromResult, true> {
  static constexpr auto kTable = A::template kSegmentTable<Order>;
};

template <class A, class Element, int Order, bool FromResult>
struct Derivative : DefaultDerivative<A, Element, Order, FromResult>,
                    DerivativeTable<A, Element, Order, FromResult> {
  using Activation = A;
  using Outputs = Elements<Element>;
  using Inputs = typename DerivativeInputs<Element, Order>::type;
  using T = OpMath<Element>;

  static constexpr int kOrder = Order;
  static constexpr bool kFromResult = FromResult;
  static constexpr bool kIsLookedUp = Order == 0 && kIs16Bit<Element> && A::kTraits.is_costly;
  static constexpr bool kHasFactors = Order == 1 && !FromResult && kIs16Bit<Element> &&
                                      A::kTraits.is_costly && A::kTraits.saves == Saves::kInput &&
                                      !HasBackward<A, Element, Order>;
  static constexpr bool kInSegments = !FromResult && has_segments<A, Element, Order>();
  static constexpr bool kHasFastForm =
      (Order <= A::kTraits.last_division && !std::is_same_v<Element, double> && !kInSegments) ||
      (Order == 0 && HasApproximation<A, Element>);

  FASTACT_INLINE explicit Derivative(const double* parameters) : act(parameters) {}

  FASTACT_INLINE auto evaluate(T x) const { return value_at<Element>(act, x); }
  FASTACT_INLINE auto evaluate(T g, T x) const { return times_gradients(x, g); }
  FASTACT_INLINE auto evaluate(T g1, T g2, T x) const { return times_gradients(x, g1, g2); }
  FASTACT_INLINE auto evaluate(T g1, T g2, T g3, T x) const {
    return times_gradients(x, g1, g2, g3);
  }

  FASTACT_INLINE float factor(T x) const
    requires(kHasFactors)
  {
    return derivative_at<Element, Order, FromResult>(act, x);
  }

  FASTACT_INLINE uint32_t segment(T x) const { return segment_of<Order>(act, x); }
  FASTACT_INLINE uint32_t segment(T /*g*/, T x) const { return segment_of<Order>(act, x); }

  template <class Segment>
  FASTACT_INLINE auto evaluate_in(const Segment& segment, T x) const {
    return derivative_in<Order>(act, segment, x);
  }
  template <class Segment>
  FASTACT_INLINE auto evaluate_in(const Segment& segment, T g, T x) const {
    return product<Element>(derivative_in<Order>(act, segment, x), g);
  }

  FASTACT_INLINE static T preactivation(T x) { return x; }
  FASTACT_INLINE static T preactivation(T /*g*/, T x) { return x; }

  // evaluate_in() for |x| below the end of a FullTable.
  template <class Segment>
  FASTACT_INLINE T evaluate_near(const Segment& segment, T x) const {
    return near_derivative<A, Order>(segment, x);
  }
  template <class Segment>
  FASTACT_INLINE T evaluate_near(const Segment& segment, T g, T x) const {
    return round_to<Element>(product<Element>(evaluate_near(segment, x), g));
  }

  A act;

 private:
  template <class... Gradients>
  FASTACT_INLINE auto times_gradients(T x, Gradients... gradients) const {
    if constexpr (FromResult && HasBackwardFromResult<A, Element, Gradients...>) {
      return act.template backward_from_result<Element>(gradients..., x);
    } else if constexpr (!FromResult && A::kTraits.saves != Saves::kOutput &&
                         HasBackward<A, Element, Order>) {
      return act.template backward<Element>(gradients..., x);
    } else {
      return product<Element>(derivative_at<Element, Order, FromResult>(act, x), gradients...);
    }
  }
};

// The forms that ops/catalogue.h compiles for each activation.
template <class A>
struct DerivativeForms {
  static_assert(IsActivation<A>);

  static constexpr int kCount = derivative_form(kTopOrder, true) + 1;
  static constexpr bool kIsApproximated = HasApproximation<A, BFloat16>;

  template <class Element, int Index>
  using Form = std::conditional_t<
      Index <= kTopOrder, Derivative<A, Element, Index <= kTopOrder ? Index : 1, false>,
      std::conditional_t<A::kTraits.gradient_from_result,
                         Derivative<A, Element, Index <= kTopOrder ? 1 : Index - kTopOrder, true>,
                         void>>;
};

}  // namespace fastact::inline FASTACT_TARGET

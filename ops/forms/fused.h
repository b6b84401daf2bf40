// The fused form: y = f(self * scale + bias + residual) * gate, in one pass over memory. Each of
// the four operands beside self may be absent. An absent scale or gate counts as 1, an absent bias
// or residual as -0.0; these values change no bit.
//
// Rounding: the pre-activation z = self * scale + bias + residual is computed in the type in which
// the element computes (OpMath: float for 16-bit types, else the element's own type). self * scale
// + bias is one fma, and the sum with residual is rounded once more. f(z) has the error bound of
// its formula. For float32 and float64, f(z) is rounded to the element, so the result has the bits
// of the separate operations. For 16-bit types, f(z) stays a float. The product with gate is
// rounded and then becomes the element.
//
// So for 16-bit types the result is within 0.51 ULP of f(z) * gate, if f(z) is in the range of
// float. This excludes the term that a formula adds to break ties, times gate: at most 2^-40 in
// float16, and less than half the smallest number in bfloat16.
//
// The only approximate instruction of a GPU (approximate.h) that the fused form uses is the
// reciprocal, which is compared with the IEEE reciprocal of every number. An approximate_value() is
// verified only for values of an element type, to which z is not rounded.
//
// Range: every input, with the rules of the single operations. The result is NaN for a NaN operand,
// and if z or the product is NaN: infinities of both signs, or infinity times zero.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/forms/derivative.h"

namespace fastact::inline FASTACT_TARGET {

// Returns z = self * scale + bias + residual.
template <class T>
FASTACT_INLINE T fused_preactivation(T self, T scale, T bias, T residual) {
  return fma(self, scale, bias) + residual;
}

// Returns a form's result as a compute value. The result may be exact only once rounded to an
// element.
template <class Element, class Result>
FASTACT_INLINE OpMath<Element> number_of(Result result) {
  if constexpr (!kIs16Bit<Element>) {
    return round_to<Element>(result);
  } else if constexpr (requires { result.value; }) {
    return result.value;
  } else {
    return result;
  }
}

// Returns f(z).
template <class Element, class A>
FASTACT_INLINE OpMath<Element> fused_value(const A& act, OpMath<Element> z) {
  return number_of<Element>(derivative_at<Element, 0, false>(act, z));
}

// Returns f(z); for 16-bit types, f(0) is replaced by its rounded value.
template <class A, class Element>
FASTACT_INLINE OpMath<Element> without_tie(OpMath<Element> z, OpMath<Element> value) {
  if constexpr (kIs16Bit<Element> && A::kTraits.breaks_ties_at_zero) {
    return z == 0.0f ? value * 0.0f : value;  // zero with the sign of value
  } else {
    return value;
  }
}

// Returns f(z) * gate.
template <class A, class Element>
FASTACT_INLINE OpMath<Element> fused_product(OpMath<Element> z, OpMath<Element> value,
                                             OpMath<Element> gate) {
  return without_tie<A, Element>(z, value) * gate;
}

// ---- Forms of the CPU's fused kernels, whose z is a compute value

template <class A, class Element>
struct ValueOfNumber;
template <class A, class Element>
struct GatedNumber;
template <class A, class Element>
struct SlopeOfNumber;

// The Default of such a form for D_Order.
template <template <class, class> class Form, class A, class Element, int Order,
          bool = has_default<A, Element, Order, false>()>
struct NumberDefault {};
template <template <class, class> class Form, class A, class Element, int Order>
struct NumberDefault<Form, A, Element, Order, true> {
  using Default = Form<typename A::Default, Element>;
  static constexpr bool is_default(const double* parameters) { return A::is_default(parameters); }
};

// f(z), for 16-bit types.
template <class A, class Element>
struct ValueOfNumber : NumberDefault<ValueOfNumber, A, Element, 0> {
  using Outputs = Elements<Element>;
  using Inputs = Elements<float>;

  FASTACT_INLINE explicit ValueOfNumber(const double* parameters) : act(parameters) {}

  FASTACT_INLINE float evaluate(float z) const { return fused_value<Element>(act, z); }

  A act;
};

// f(z) * gate.
template <class A, class Element>
struct GatedNumber : NumberDefault<GatedNumber, A, Element, 0>,
                     DerivativeTable<A, Element, 0, false> {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<T, Element>;

  FASTACT_INLINE explicit GatedNumber(const double* parameters) : act(parameters) {}

  FASTACT_INLINE T evaluate(T z, T gate) const {
    return fused_product<A, Element>(z, fused_value<Element>(act, z), gate);
  }

  FASTACT_INLINE uint32_t segment(T z, T /*gate*/) const { return segment_of<0>(act, z); }

  template <class Segment>
  FASTACT_INLINE T evaluate_in(const Segment& segment, T z, T gate) const {
    return number_of<Element>(derivative_in<0>(act, segment, z)) * gate;
  }

  FASTACT_INLINE static T preactivation(T z, T /*gate*/) { return z; }

  template <class Segment>
  FASTACT_INLINE T evaluate_near(const Segment& segment, T z, T gate) const {
    return round_to<float>(near_derivative<A, 0>(segment, z) * gate);
  }

  A act;
};

// D_1 of the incoming gradient and z, for 16-bit types.
template <class A, class Element>
struct SlopeOfNumber : NumberDefault<SlopeOfNumber, A, Element, 1> {
  using Outputs = Elements<float>;
  using Inputs = Elements<float, float>;

  FASTACT_INLINE explicit SlopeOfNumber(const double* parameters) : form(parameters) {}

  FASTACT_INLINE float evaluate(float g, float z) const {
    return number_of<Element>(form.evaluate(g, z));
  }

  Derivative<A, Element, 1, false> form;
};

// True if the slope is a function of z. Activations that save f(z) compute the slope from small
// differences of f(z), for which 16-bit types are too imprecise. Their 16-bit gradients use f(z)
// and the slope in float.
template <class A>
inline constexpr bool kSlopeOfPreactivation = A::kTraits.saves != Saves::kOutput;
template <class A, class Form>
using IfSlopeOfPreactivation = std::conditional_t<kSlopeOfPreactivation<A>, Form, void>;
// The element type whose precision f(z) and the slope have.
template <class A, class Element>
using GradientElement = std::conditional_t<kSlopeOfPreactivation<A>, Element, OpMath<Element>>;

// Indices of an activation's forms: f(z), f(z) * gate, and D_1 of the incoming gradient and z.
inline constexpr int kNumberValue = 0;
inline constexpr int kNumberGated = 1;
inline constexpr int kNumberSlope = 2;

// These forms of an activation, by index.
template <class A>
struct NumberForms {
  static constexpr int kCount = 3;

  template <class Element, int Index>
  using Form = std::conditional_t<
      Index == kNumberGated, GatedNumber<A, Element>,
      std::conditional_t<!kIs16Bit<Element>, Derivative<A, Element, Index == kNumberSlope, false>,
                         std::conditional_t<Index == kNumberValue, ValueOfNumber<A, Element>,
                                            IfSlopeOfPreactivation<A, SlopeOfNumber<A, Element>>>>>;
};

// The steps into which a compiler splits the fused form, besides f(z), which intermediate() in
// ops/codegen/given.h defines. Only steps whose operands are present are used, in this order. A
// scale alone and a sum alone give the bits of fused_preactivation().
enum class FusedStep : uint8_t { kScale, kScaleAndBias, kSum, kGate };

template <class Element, FusedStep Step>
struct FusedStepForm {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs =
      std::conditional_t<Step == FusedStep::kScaleAndBias, Elements<Element, Element, Element>,
                         Elements<Element, Element>>;

  FASTACT_INLINE explicit FusedStepForm(const double* /*parameters*/) {}

  FASTACT_INLINE auto evaluate(T x, T y) const {
    if constexpr (Step == FusedStep::kScale) {
      return part_of_preactivation(x * y);
    } else if constexpr (Step == FusedStep::kSum) {
      return part_of_preactivation(x + y);
    } else if constexpr (std::is_same_v<Element, float>) {
      return CanonicalOnGpu{x * y};
    } else {
      return x * y;
    }
  }
  FASTACT_INLINE auto evaluate(T self, T scale, T bias) const {
    return part_of_preactivation(fma(self, scale, bias));
  }

 private:
  // Unchanged: f maps any NaN to the canonical NaN.
  FASTACT_INLINE static Canonical<T> part_of_preactivation(T z) { return {z}; }
};

struct FusedSteps {
  static constexpr int kCount = 4;

  template <class Element, int Index>
  using Form = FusedStepForm<Element, static_cast<FusedStep>(Index)>;
};

}  // namespace fastact::inline FASTACT_TARGET

// The fused form: y = f(self * scale + bias + residual) * gate, in one pass over memory. Each of
// the four operands beside self may be absent: scale and gate are then 1, bias and residual -0.0,
// which change no bit.
//
// Numbers: z = self * scale + bias + residual is computed in the type in which the element computes
// (OpMath: float for 16 bits, else the element's own), self * scale + bias by one fma, and the sum
// with residual is rounded once more. f(z) has its formula's bound. For float32 and float64 it is
// rounded to the element, so that the result has the bits of the operations one by one; for 16 bits
// it stays a float. The product with gate is rounded, and becomes the element.
//
// So of 16 bits the result is within 0.51 ULP of f(z) * gate, where f(z) is in float's range, but
// for what a formula adds to break ties, times gate: at most 2^-40 in float16, and in bfloat16 less
// than half its smallest number.
//
// Of a GPU's approximate instructions (approximate.h) only the reciprocal, which is compared with
// IEEE's for every number: an approximate_value() is only for the values of an element, and z is
// none of these.
//
// Range: every input, as the operations have it. NaN for a NaN operand, and where z or the product
// is one: infinities of both signs, or infinity times zero.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/forms/derivative.h"

namespace fastact::inline FASTACT_TARGET {

// z = self * scale + bias + residual.
template <class T>
FASTACT_INLINE T fused_argument(T self, T scale, T bias, T residual) {
  return fma(self, scale, bias) + residual;
}

// A form's result as a number in which its element computes: it may be exact only as an element.
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

// f(z).
template <class Element, class A>
FASTACT_INLINE OpMath<Element> fused_value(const A& act, OpMath<Element> z) {
  return number_of<Element>(derivative_at<Element, 0, false>(act, z));
}

// f(z), and of 16 bits f(0) as it is rounded.
template <class A, class Element>
FASTACT_INLINE OpMath<Element> without_tie(OpMath<Element> z, OpMath<Element> value) {
  if constexpr (kIs16Bit<Element> && A::kTraits.breaks_ties_at_zero) {
    return z == 0.0f ? value * 0.0f : value;  // of its sign
  } else {
    return value;
  }
}

// f(z) * gate.
template <class A, class Element>
FASTACT_INLINE OpMath<Element> fused_product(OpMath<Element> z, OpMath<Element> value,
                                             OpMath<Element> gate) {
  return without_tie<A, Element>(z, value) * gate;
}

// ---- What the CPU's fused kernels call, of a z that is a number already

template <class A, class Element>
struct ValueOfNumber;
template <class A, class Element>
struct GatedNumber;
template <class A, class Element>
struct SlopeOfNumber;

// The Default of such a form, of D_Order.
template <template <class, class> class Form, class A, class Element, int Order,
          bool = has_default<A, Element, Order, false>()>
struct NumberDefault {};
template <template <class, class> class Form, class A, class Element, int Order>
struct NumberDefault<Form, A, Element, Order, true> {
  using Default = Form<typename A::Default, Element>;
  static constexpr bool is_default(const double* parameters) { return A::is_default(parameters); }
};

// f(z), for 16 bits.
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

  FASTACT_INLINE uint32_t segment(T z, T /*gate*/) const { return act.template segment<0>(z); }

  FASTACT_INLINE T evaluate_in(const Segment& segment, T z, T gate) const {
    return number_of<Element>(act.template derivative_in<0>(segment, z)) * gate;
  }

  A act;
};

// D_1 of the incoming gradient and z, for 16 bits.
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

// Whether the slope is a function of z, not of f(z): of what saves f(z) small differences of it,
// for which 16 bits' precision is too little. There the gradients of 16 bits have float's f(z) and
// slope.
template <class A>
inline constexpr bool kSlopeOfArgument = A::kTraits.saves != Saves::kOutput;
template <class A, class Form>
using IfSlopeOfArgument = std::conditional_t<kSlopeOfArgument<A>, Form, void>;
// The element in whose precision f(z) and the slope are.
template <class A, class Element>
using GradientElement = std::conditional_t<kSlopeOfArgument<A>, Element, OpMath<Element>>;

// An activation's, by these indices: f(z), f(z) * gate, and D_1 of the incoming gradient and z.
inline constexpr int kNumberValue = 0;
inline constexpr int kNumberGated = 1;
inline constexpr int kNumberSlope = 2;

// These of an activation, by their index.
template <class A>
struct NumberForms {
  static constexpr int kCount = 3;

  template <class Element, int Index>
  using Form = std::conditional_t<
      Index == kNumberGated, GatedNumber<A, Element>,
      std::conditional_t<!kIs16Bit<Element>, Derivative<A, Element, Index == kNumberSlope, false>,
                         std::conditional_t<Index == kNumberValue, ValueOfNumber<A, Element>,
                                            IfSlopeOfArgument<A, SlopeOfNumber<A, Element>>>>>;
};

// What a compiler makes the form of, beside f(z) as intermediate() in ops/forms/given.h has it: in
// this order those for which there are operands. A scale alone and a sum alone have the bits of
// fused_argument().
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
      return part_of_argument(x * y);
    } else if constexpr (Step == FusedStep::kSum) {
      return part_of_argument(x + y);
    } else if constexpr (std::is_same_v<Element, float>) {
      return CanonicalOnGpu{x * y};
    } else {
      return x * y;
    }
  }
  FASTACT_INLINE auto evaluate(T self, T scale, T bias) const {
    return part_of_argument(fma(self, scale, bias));
  }

 private:
  // As it is: of any NaN, f makes the one NaN.
  FASTACT_INLINE static Canonical<T> part_of_argument(T z) { return {z}; }
};

struct FusedSteps {
  static constexpr int kCount = 4;

  template <class Element, int Index>
  using Form = FusedStepForm<Element, static_cast<FusedStep>(Index)>;
};

}  // namespace fastact::inline FASTACT_TARGET

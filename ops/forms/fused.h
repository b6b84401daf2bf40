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
// Only IEEE arithmetic: a GPU's approximate instructions (approximate.h) are compared with it for
// the 65,536 values of an element, and z is none of these.
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

// f(z) * gate. A 16-bit formula may return a tiny number for f(0) = 0, which breaks ties next to it
// and would be rounded away: times gate it would not.
template <class Element>
FASTACT_INLINE OpMath<Element> fused_product(OpMath<Element> z, OpMath<Element> value,
                                             OpMath<Element> gate) {
  if constexpr (kIs16Bit<Element>) {
    const float zero = value * 0.0f;
    const float kept = magnitude(value) < 0x1p-30f ? zero : value;
    return (z == 0.0f ? kept : value) * gate;
  } else {
    return value * gate;
  }
}

// D_Order of a 16-bit type, for numbers between its elements: from float to float.
template <class A, class Element, int Order, bool = has_default<A, Element, Order, false>()>
struct Unrounded;

template <class A, class Element, int Order>
struct UnroundedDefault {
  using Default = Unrounded<typename A::Default, Element, Order>;
  static constexpr bool is_default(const double* parameters) { return A::is_default(parameters); }
};
struct NoUnroundedDefault {};

template <class A, class Element, int Order, bool HasDefault>
struct Unrounded
    : std::conditional_t<HasDefault, UnroundedDefault<A, Element, Order>, NoUnroundedDefault> {
  using Outputs = Elements<float>;
  using Inputs = typename DerivativeInputs<float, Order>::type;

  FASTACT_INLINE explicit Unrounded(const double* parameters) : form(parameters) {}

  template <class... Inputs>
  FASTACT_INLINE float evaluate(Inputs... inputs) const {
    return number_of<Element>(form.evaluate(inputs...));
  }

  Derivative<A, Element, Order, false> form;
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

// What the CPU's fused kernels take of an activation: D_0 and D_1 of numbers, by order.
template <class A>
struct NumberForms {
  static constexpr int kCount = 2;

  template <class Element, int Index>
  using Form = std::conditional_t<kIs16Bit<Element>, Unrounded<A, Element, Index>,
                                  Derivative<A, Element, Index, false>>;
};

}  // namespace fastact::inline FASTACT_TARGET

// The sum of an activation's value and another tensor: f(x) + y.
//
// Range: every input. The sum is NaN if x or y is NaN, or if f(x) and y are infinities of opposite
// signs. f(x) is infinite if it overflows its compute type: float for SELU of 16-bit types, double
// for SELU of float32 and float64.
//
// Accuracy: the sum with ReLU is correctly rounded. The error of the sum with SELU is half an ULP
// plus:
//   bfloat16  2^-16 |f(x)| + 2^-24 |f(x) + y|
//   float16   2^-20 |f(x)| + 2^-24 |f(x) + y|
//   float32   2^-28 |f(x)| + 2^-53 |f(x) + y|
//   float64   2^-51 |f(x)|
// The first term is the error of f(x). The second term is the rounding of the sum in the compute
// type, before the sum is rounded to the element type.
#pragma once

#include <type_traits>

#include "ops/activations/relu.h"
#include "ops/activations/selu.h"
#include "ops/forms/derivative.h"
#include "ops/forms/form.h"

namespace fastact::inline FASTACT_TARGET {

template <class A, class Element>
struct ActivationSum {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<Element, Element>;

  FASTACT_INLINE explicit ActivationSum(const double* parameters) : act(parameters) {}

  FASTACT_INLINE auto evaluate(T x, T y) const { return sum(value_at<Element>(act, x), y); }

  A act;

 private:
  // Adds in the type of f(x), which may be wider than the type of y. Canonical and CanonicalOnGpu
  // mark values that need no rounding. The sum needs one, so only their `value` is used.
  template <class Value>
  FASTACT_INLINE static auto sum(Value value, T y) {
    if constexpr (requires { value.value; }) {
      return value.value + y;
    } else {
      return value + static_cast<Value>(y);
    }
  }
};

struct ActivationSumForms {
  static constexpr int kCount = 2;

  template <class Element, int Index>
  using Form = ActivationSum<std::conditional_t<Index == 0, Relu, Selu>, Element>;
};

}  // namespace fastact::inline FASTACT_TARGET

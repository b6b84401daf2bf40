// Forms without an operator, for tests of the engines: several outputs, and operands of several
// types.
#pragma once

#include "ops/forms/form.h"

namespace fastact::inline FASTACT_TARGET {

// The sum of a bfloat16 and a float as float, and their product as bfloat16.
struct SumAndProduct {
  using Outputs = Elements<float, BFloat16>;
  using Inputs = Elements<BFloat16, float>;

  explicit constexpr SumAndProduct(const double* parameters) : scale(parameters[0]) {}

  FASTACT_INLINE Tuple<float, float> evaluate(float a, float b) const {
    return {a + b, {static_cast<float>(scale) * a * b}};
  }

  double scale;
};

// A form with one output that is wider than an input.
struct WideDifference {
  using Outputs = Elements<double>;
  using Inputs = Elements<Float16, double>;

  explicit constexpr WideDifference(const double* /*parameters*/) {}

  FASTACT_INLINE double evaluate(float a, double b) const { return a - b; }
};

}  // namespace fastact::inline FASTACT_TARGET

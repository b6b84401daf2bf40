// Hardtanh: f(x) = min_val for x < min_val, max_val for x > max_val, else x.
//
// Range: every input. A zero within the bounds keeps its sign, even if a bound is 0, as in PyTorch.
// The bounds are rounded to the tensor's type. min_val > max_val is an error, as in
// torch.nn.functional.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        0.5  0.5  0.5  0.5
//   float64        0.5  0.5  0.5  0.5
//
// f'(x) = 1 for min_val < x < max_val, 0 elsewhere and at the bounds. f'(NaN) = NaN, where PyTorch
// passes the gradient on. f'' and f''' are 0.
//
// Source: the definition (Collobert, 2004).
#pragma once

#include "ops/activations/shared/clamp.h"

namespace fastact::inline FASTACT_TARGET {

struct Hardtanh : Clamp {
  static constexpr Parameter kParameters[] = {{"min_val", -1.0}, {"max_val", 1.0}};
  static constexpr Requirement kRequirements[] = {
      {.parameter = 0,
       .expected = "at most max_val",
       .holds = [](const double* parameters) { return !(parameters[0] > parameters[1]); },
       .is_value_error = true}};

  FASTACT_INLINE explicit Hardtanh(const double* parameters)
      : Clamp(parameters[0], parameters[1]) {}
};

}  // namespace fastact::inline FASTACT_TARGET

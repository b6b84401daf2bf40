// The elementwise operators of clamped SwiGLU (ops/forms/clamped_swiglu.h):
//
//   _clamped_swiglu(gate, linear, limit, alpha)
//   _clamped_swiglu_backward(grad_output, gate, linear, limit, alpha) returns the gradients by gate
//     and linear, in the shape to which all three broadcast. They are composed of PyTorch's
//     operators if the device has no kernel, or if their own derivatives may be needed.
#pragma once

#include "registration/operators/operator.h"

namespace fastact {

// Positions of the inputs.
inline constexpr int kGatePart = 0;
inline constexpr int kLinearPart = 1;

}  // namespace fastact

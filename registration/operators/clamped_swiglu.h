// Clamped SwiGLU (ops/forms/clamped_swiglu.h): its gradients in one pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "registration/operators/operator.h"

namespace fastact {

// Positions of the inputs.
inline constexpr int kGatePart = 0;
inline constexpr int kLinearPart = 1;

// _clamped_swiglu_backward(grad_output, gate, linear, limit, alpha) returns the gradients by gate
// and linear, in the shape to which all three broadcast. They are composed of ATen's operators if
// the device has no kernel, or if their own derivatives may be needed.
using ClampedSwigluBackward = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&,
                                                                 const at::Tensor&,
                                                                 const at::Tensor&, double, double);

// Describes the gradients to the kernels by family and form. It is not in operators(), because it
// has two results.
const Operator& clamped_swiglu_backward_operator();

// The arguments of such a call. Throws if the tensors or parameters are invalid.
struct ClampedSwigluBackwardCall {
  ClampedSwigluBackwardCall(const at::Tensor& grad_output, const at::Tensor& gate,
                            const at::Tensor& linear, double limit, double alpha);

  const Operator& op = clamped_swiglu_backward_operator();
  CallParameters parameters;
  const at::Tensor* tensors[3];
};

}  // namespace fastact

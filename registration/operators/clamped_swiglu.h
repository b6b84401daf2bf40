// Clamped SwiGLU (ops/forms/clamped_swiglu.h): its gradients in one pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "registration/operators/operator.h"

namespace fastact {

// _clamped_swiglu_backward(grad_output, gate, linear, limit, alpha): the gradients by gate and
// linear, in the shape to which all three broadcast. Where a device has no kernel, and where
// derivatives of them may be wanted, they are composed of ATen's operators.
using ClampedSwigluBackward = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&,
                                                                 const at::Tensor&,
                                                                 const at::Tensor&, double, double);

// What it is to the kernels: its family and form. It is none of operators(), as it has two results.
const Operator& clamped_swiglu_backward_operator();

// Such a call. Throws where its tensors or parameters are not what it takes.
struct ClampedSwigluBackwardCall {
  ClampedSwigluBackwardCall(const at::Tensor& grad_output, const at::Tensor& gate,
                            const at::Tensor& linear, double limit, double alpha);

  const Operator& op = clamped_swiglu_backward_operator();
  CallParameters parameters;
  const at::Tensor* tensors[3];
};

}  // namespace fastact

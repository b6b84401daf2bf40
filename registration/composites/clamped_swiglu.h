// The derivatives of _clamped_swiglu in PyTorch's operators, which can be differentiated further.
#pragma once

#include "registration/operators/operator.h"

namespace fastact {

// Return the derivative by one input, times the incoming gradient, in float32 for 16-bit types.
// They are DerivativeRule::Compositions; `inputs` are gate and linear.
at::Tensor clamped_swiglu_derivative_by_gate(const Operator& op, const CallParameters& parameters,
                                             const at::Tensor& incoming, const at::Tensor* inputs);
at::Tensor clamped_swiglu_derivative_by_linear(const Operator& op, const CallParameters& parameters,
                                               const at::Tensor& incoming,
                                               const at::Tensor* inputs);

// Computes the results of _clamped_swiglu_backward. It is the function for Descriptor::composition.
void compose_clamped_swiglu_backward(const Operator& op, TensorPointers tensors,
                                     const CallParameters& parameters, at::Tensor* results);

}  // namespace fastact

// The gradients of the fused operators, and z, composed of other operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "registration/operators/fused.h"

namespace fastact {

// Writes the gradients that are `needed`, composed of differentiable operators. They have z's shape
// even if the input broadcasts, and are float32 for 16-bit types. Absent inputs are undefined. If
// `self_is_preactivation` is true, `self` is z.
void compose_fused_gradients(const Operator& op, const CallParameters& parameters,
                             const at::Tensor& incoming, const at::Tensor* inputs,
                             bool self_is_preactivation, const std::vector<bool>& needed,
                             at::Tensor* gradients);

// Compute the results of _fused_<activation>_backward and of
// _fused_<activation>_with_preactivation. They are the functions for Descriptor::composition.
void compose_fused_backward(const Operator& op, TensorPointers tensors,
                            const CallParameters& parameters, at::Tensor* results);
void compose_fused_with_preactivation(const Operator& op, TensorPointers tensors,
                                      const CallParameters& parameters, at::Tensor* results);

// Returns z = self * scale + bias + residual with the bits of a fused kernel, computed by Leaky
// ReLU with a slope of 1.
at::Tensor fused_preactivation_of(TensorPointers tensors);

}  // namespace fastact

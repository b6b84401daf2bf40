// The autograd Node of a fused form's pre-activation z. A kernel writes z together with the result,
// and the backward pass saves it. When a gradient is differentiated again, this node leads from z's
// gradient to those of the operands.
#pragma once

#include <ATen/core/Tensor.h>

#include "registration/operators/operator.h"

namespace fastact {

// Sets the autograd history of a fresh z = self * scale + bias + residual, if self, bias or
// residual requires a gradient. scale must not require one.
void set_preactivation_history(const at::Tensor& preactivation, TensorPointers tensors);

}  // namespace fastact

// The autograd Node of a fused form's z, which a kernel writes beside the result, and which the
// backward pass keeps: it is what leads from z's gradient to the operands' where a gradient is
// differentiated again.
#pragma once

#include <ATen/core/Tensor.h>

#include "registration/operators/operator.h"

namespace fastact {

// Makes a fresh z = self * scale + bias + residual known to autograd, where one of these requires a
// gradient; scale does not.
void set_argument_history(const at::Tensor& argument, TensorPointers tensors);

}  // namespace fastact

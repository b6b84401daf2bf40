// Type conversions in the default floating-point environment (ops/floating_point.h). ATen's own
// kernels use the environment of the thread that runs them. That may be a thread of torch's pool,
// which inherited its environment from the thread that started it.
#pragma once

#include <ATen/core/Tensor.h>

namespace fastact {

// Returns the tensor in this type, as at::Tensor::to().
at::Tensor converted(const at::Tensor& tensor, c10::ScalarType type);

// Copies `from` to `to`, which has the same shape, as at::Tensor::copy_().
void copy_converted(const at::Tensor& from, const at::Tensor& to);

}  // namespace fastact

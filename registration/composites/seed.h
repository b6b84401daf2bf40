// The seed of operators that draw random numbers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/randint.h>

#include <limits>

namespace fastact {

// Draws one int64 from PyTorch's default generator of the tensor's device.
inline at::Tensor draw_seed(const at::Tensor& tensor) {
  return at::randint(std::numeric_limits<int64_t>::max(), {1},
                     at::TensorOptions().dtype(at::kLong).device(tensor.device()));
}

}  // namespace fastact

#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace fastact {

// cross_entropy() of fastact.h for symbolic numbers.
at::Tensor cross_entropy_symint(const at::Tensor& self, const at::Tensor& target,
                                const std::optional<at::Tensor>& weight, int64_t reduction,
                                c10::SymInt ignore_index, double label_smoothing);

}  // namespace fastact

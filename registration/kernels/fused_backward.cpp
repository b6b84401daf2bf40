#include "registration/kernels/fused_backward.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace fastact {
namespace {

// Returns the dimensions in self's memory order, outermost first, merged as far as possible.
std::vector<FusedDimension> dimensions_of(const FusedBackwardTensors& tensors) {
  const at::Tensor& self = tensors.inputs[kSelf];
  std::vector<int64_t> order(self.dim());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int64_t a, int64_t b) {
    return self.stride(a) != self.stride(b) ? self.stride(a) > self.stride(b) : a < b;
  });
  at::Tensor expanded[FusedBackwardTensors::kCount];
  for (int i = 0; i < FusedBackwardTensors::kCount; ++i)
    if (tensors[i].defined()) expanded[i] = tensors[i].expand(self.sizes());
  std::vector<FusedDimension> result;
  for (const int64_t dim : order) {
    if (self.size(dim) == 1) continue;
    FusedDimension next = {.size = self.size(dim)};
    for (int i = 0; i < FusedBackwardTensors::kCount; ++i)
      if (expanded[i].defined()) next.strides[i] = expanded[i].stride(dim);
    const auto continues = [&](const FusedDimension& last) {
      for (int i = 0; i < FusedBackwardTensors::kCount; ++i)
        if (last.strides[i] != next.strides[i] * next.size) return false;
      return true;
    };
    if (!result.empty() && continues(result.back())) {
      next.size *= result.back().size;
      result.back() = next;
    } else {
      result.push_back(next);
    }
  }
  return result;
}

// Returns true if the tensors, which exclude scale and bias, are contiguous along the last
// dimension.
bool ends_contiguous(const FusedBackwardTensors& tensors,
                     const std::vector<FusedDimension>& dimensions) {
  for (int i = 0; i < FusedBackwardTensors::kCount; ++i) {
    const bool is_vector = i >= 1 && is_fused_vector((i - 1) % kFusedInputs);
    if (!is_vector && tensors[i].defined() && dimensions.back().strides[i] != 1) return false;
  }
  return true;
}

// Returns true if scale and bias, or the only one of them, have one element.
bool has_one_channel(const FusedBackwardTensors& tensors) {
  const at::Tensor& scale = tensors.inputs[kScale];
  const at::Tensor& bias = tensors.inputs[kBias];
  return (scale.defined() || bias.defined()) && (!scale.defined() || scale.numel() == 1) &&
         (!bias.defined() || bias.numel() == 1);
}

}  // namespace

std::optional<FusedLayout> fused_layout(const FusedBackwardTensors& tensors) {
  const at::Tensor& self = tensors.inputs[kSelf];
  const auto is_whole = [&](const at::Tensor& tensor) {
    return !tensor.defined() || tensor.sizes() == self.sizes();
  };
  if (!is_whole(tensors.grad_output) || !is_whole(tensors.inputs[kResidual]) ||
      !is_whole(tensors.inputs[kGate]) || self.numel() == 0) {
    return std::nullopt;
  }
  for (const int i : {kScale, kBias}) {
    const at::Tensor& vector = tensors.inputs[i];
    if (vector.defined() && !at::is_expandable_to(vector.sizes(), self.sizes()))
      return std::nullopt;
  }
  std::vector<FusedDimension> dimensions = dimensions_of(tensors);
  if (dimensions.empty()) return std::nullopt;
  if (has_one_channel(tensors)) {
    if (dimensions.size() > 1 || !ends_contiguous(tensors, dimensions)) return std::nullopt;
    return FusedLayout{.outer = {}, .channels = {}, .inner = dimensions.front()};
  }
  // The only dimension along which scale or bias varies.
  std::optional<size_t> along;
  for (const int i : {kScale, kBias}) {
    if (!tensors.inputs[i].defined()) continue;
    std::optional<size_t> own;
    for (size_t dim = 0; dim < dimensions.size(); ++dim) {
      const int64_t stride = dimensions[dim].strides[1 + i];
      if (stride == 0) continue;
      if (stride != 1 || own.has_value()) return std::nullopt;
      own = dim;
    }
    if (!own.has_value() || (along.has_value() && along != own)) return std::nullopt;
    along = own;
  }
  if (!ends_contiguous(tensors, dimensions)) return std::nullopt;
  FusedLayout layout;
  const size_t channels = along.value_or(dimensions.size() - 1);
  if (channels > 1 || dimensions.size() > channels + 2) return std::nullopt;
  if (channels == 1) layout.outer = dimensions[0];
  layout.channels = dimensions[channels];
  // A vector that repeats along the channels needs other sums.
  for (const int i : {kScale, kBias}) {
    if (tensors.inputs[i].defined() && tensors.inputs[i].numel() != layout.channels.size)
      return std::nullopt;
  }
  if (dimensions.size() > channels + 1) layout.inner = dimensions[channels + 1];
  return layout;
}

}  // namespace fastact

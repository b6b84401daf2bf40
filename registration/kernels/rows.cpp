#include "registration/kernels/rows.h"

#include <utility>

namespace fastact {
namespace {

// Dimensions that are one in memory, with the stride of each tensor in bytes.
struct MergedDimension {
  int64_t size = 1;
  int64_t strides[kMaxOperands] = {};
};

}  // namespace

std::optional<RowOperands> row_operands(std::span<const at::Tensor* const> tensors, int64_t dim) {
  const at::Tensor& out = *tensors[0];
  const auto element_size = static_cast<int64_t>(out.element_size());
  MergedDimension dimensions[2];
  int count = 0;
  for (int64_t d = 0; d < out.dim(); ++d) {
    if (d == dim || out.size(d) == 1) continue;
    MergedDimension next = {.size = out.size(d)};
    bool merges = count > 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      next.strides[i] = tensors[i]->stride(d) * element_size;
      merges = merges && dimensions[count - 1].strides[i] == next.size * next.strides[i];
    }
    if (merges) {
      next.size *= dimensions[count - 1].size;
      dimensions[count - 1] = next;
    } else if (count == 2) {
      return std::nullopt;
    } else {
      dimensions[count++] = next;
    }
  }
  // One dimension is the inner one.
  if (count == 1) std::swap(dimensions[0], dimensions[1]);
  RowOperands operands;
  operands.n = out.dim() == 0 ? 1 : out.size(dim);
  operands.outer = dimensions[0].size;
  operands.inner = dimensions[1].size;
  operands.element_size = element_size;
  operands.count = static_cast<int>(tensors.size());
  for (int i = 0; i < operands.count; ++i) {
    const at::Tensor& tensor = *tensors[static_cast<size_t>(i)];
    // Inputs are only read, but RowOperand has one pointer type for inputs and output.
    operands.operands[i] = {
        .data = static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())),
        .outer_stride = dimensions[0].strides[i],
        .inner_stride = dimensions[1].strides[i],
        .element_stride = operands.n == 1 ? element_size : tensor.stride(dim) * element_size};
  }
  return operands;
}

}  // namespace fastact

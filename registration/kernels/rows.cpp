#include "registration/kernels/rows.h"

#include <utility>

namespace fastact {
namespace {

// Dimensions that are one in memory, with the stride of each tensor in bytes.
struct MergedDimension {
  int64_t size = 1;
  int64_t strides[kMaxRowOperands] = {};
};

}  // namespace

std::optional<RowOperands> row_operands(std::span<const at::Tensor* const> tensors, int count,
                                        bool has_output, int64_t dim) {
  const at::Tensor& first = *tensors[0];
  const auto size_of = [](const at::Tensor& tensor) {
    return static_cast<int64_t>(tensor.element_size());
  };
  MergedDimension dimensions[2];
  int merged = 0;
  for (int64_t d = 0; d < first.dim(); ++d) {
    if (d == dim || first.size(d) == 1) continue;
    MergedDimension next = {.size = first.size(d)};
    bool merges = merged > 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i] == nullptr) continue;
      next.strides[i] = tensors[i]->stride(d) * size_of(*tensors[i]);
      merges = merges && dimensions[merged - 1].strides[i] == next.size * next.strides[i];
    }
    if (merges) {
      next.size *= dimensions[merged - 1].size;
      dimensions[merged - 1] = next;
    } else if (merged == 2) {
      return std::nullopt;
    } else {
      dimensions[merged++] = next;
    }
  }
  // One dimension is the inner one.
  if (merged == 1) std::swap(dimensions[0], dimensions[1]);
  RowOperands operands;
  operands.n = first.dim() == 0 ? 1 : first.size(dim);
  operands.outer = dimensions[0].size;
  operands.inner = dimensions[1].size;
  operands.element_size = size_of(first);
  operands.outputs = has_output ? 1 : 0;
  operands.count = count;
  operands.numbers = static_cast<int>(tensors.size()) - count;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i] == nullptr) continue;
    const at::Tensor& tensor = *tensors[i];
    // Inputs are only read, but RowOperand has one pointer type for inputs and output.
    const bool has_row = static_cast<int>(i) < count && operands.n > 1;
    operands.operands[i] = {
        .data = static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())),
        .outer_stride = dimensions[0].strides[i],
        .inner_stride = dimensions[1].strides[i],
        .element_stride = operands.n == 1 ? size_of(tensor) : tensor.stride(dim) * size_of(tensor),
        .repeat = has_row ? operands.n / tensor.size(dim) : 1};
  }
  return operands;
}

}  // namespace fastact

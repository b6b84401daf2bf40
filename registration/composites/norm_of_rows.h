// A norm along the last dimension, as the public operators (composites/norms.cpp,
// composites/group_norm.cpp) call it after they have shaped their arguments.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "registration/operators/operator.h"

namespace fastact {

using OptionalTensor = std::optional<at::Tensor>;

// Returns true if the tensor is given. C++ callers may pass an undefined tensor instead of none.
bool is_present(const OptionalTensor& tensor);

class NormOfRows {
 public:
  // Weight and bias broadcast to the rows (registration/row_vectors.h). They may be float32 if the
  // rows have a 16-bit type. An absent weight is 1.
  NormOfRows(const at::Tensor& rows, const OptionalTensor& weight, const OptionalTensor& bias,
             double eps);
  NormOfRows(const NormOfRows&) = delete;
  NormOfRows& operator=(const NormOfRows&) = delete;
  ~NormOfRows() = default;

  // Returns the norm in this shape, in the type of the rows. If a gradient is needed, calls
  // `with_statistics`, unless it is null, so that autograd saves the statistics.
  [[nodiscard]] at::Tensor result(const Operator& op, const Operator* with_statistics,
                                  c10::SymIntArrayRef shape) const;

  // Adds the residual to the rows. Returns the norm of this sum, and the sum, both in the shape
  // `shape` and without a history. `added` is the operator that adds and normalizes. Expects
  // converts() to be false.
  [[nodiscard]] std::tuple<at::Tensor, at::Tensor> of_sum(const Operator& added,
                                                          const at::Tensor& residual,
                                                          c10::SymIntArrayRef shape) const;

  // True if the rows have to be converted to the type of the vectors.
  [[nodiscard]] bool converts() const { return converts_; }

  // Writes the norm to `out`, in this shape. If the memory of `out` cannot be viewed as the rows,
  // computes the norm first, resizes `out` if necessary, and copies.
  at::Tensor& write(const Operator& op, c10::SymIntArrayRef shape, at::Tensor& out) const;

 private:
  at::ScalarType type_;
  bool converts_ = false;
  at::Tensor tensors_[3];
  const at::Tensor* pointers_[3] = {&tensors_[0], &tensors_[1], &tensors_[2]};
  CallParameters parameters_;
};

// Return the operator of layer_norm with this bias, and the one that also returns the statistics.
const Operator& layer_norm_operator(const OptionalTensor& bias);
const Operator& layer_norm_operator_with_statistics(const OptionalTensor& bias);

}  // namespace fastact

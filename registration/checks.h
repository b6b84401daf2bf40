// Argument checks shared by all kernels. Messages have the form "fastact::selu: expected X, but got
// Y".
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include <optional>
#include <span>

#include "registration/operators/operator.h"

namespace fastact {

// Returns the engines' type for a tensor's type, or nothing if the engines do not support it.
inline std::optional<DType> engine_type(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return DType::kFloat32;
    case c10::ScalarType::Double:
      return DType::kFloat64;
    case c10::ScalarType::BFloat16:
      return DType::kBFloat16;
    case c10::ScalarType::Half:
      return DType::kFloat16;
    default:
      return std::nullopt;
  }
}

// Raises a NotImplementedError unless every tensor has one of the four floating-point types, like
// ATen's operators. Raises a RuntimeError if the tensors are not all on self's device, and the
// error of the violated Requirement if the activation does not accept the parameters.
void check_inputs(const Operator& op, TensorPointers tensors, const CallParameters& parameters);

// The same for a fused operator (ops/forms/fused.h), whose inputs may be undefined. self must have
// one of the four types. The others must have self's type; for 16-bit types, scale and bias may be
// float32.
void check_fused(const Operator& op, TensorPointers tensors, const CallParameters& parameters);

// Return the type and the shape of a tensor with one value for each row, for rows of this type and
// shape. `dim` is counted from 0.
c10::ScalarType type_of_statistics(c10::ScalarType type);
c10::SymDimVector shape_of_statistics(c10::SymIntArrayRef shape, int64_t dim);

// Return the type and the shape of a row operator's first result, for inputs of this type and
// shape.
c10::ScalarType row_result_type(const Operator& op, c10::ScalarType type);
c10::SymDimVector row_result_shape(const Operator& op, c10::SymIntArrayRef shape, int64_t dim);

// Returns the type of a row operator's results that have one number for each row.
c10::ScalarType number_type(const Operator& op, c10::ScalarType type);

// Checks the inputs of a row operator, as check_inputs() does. Required inputs must have the type
// and shape of the last required input. Inputs of InputKind::kBroadcast must have its type and
// broadcast to its shape (registration/row_vectors.h). Inputs of InputKind::kPerRow must have the
// type and shape of statistics. Inputs of InputKind::kIndexInRow must be int64 and have the shape
// of statistics. Returns the dimension of the rows, counted from 0. Raises an IndexError if there
// is no such dimension.
int64_t check_rows(const Operator& op, TensorPointers tensors, const CallParameters& parameters);

// Returns `dim` counted from 0, for a tensor with `rank` dimensions. A 0-dimensional tensor has a
// row of one element. Raises an IndexError if there is no such dimension.
int64_t row_dimension(const Operator& op, int64_t dim, int64_t rank);

// Raises a RuntimeError unless a result of this type can be written to `out`, which must be on the
// same device and have a type to which the result can be cast.
void check_out(const Operator& op, TensorPointers tensors, c10::ScalarType result,
               const at::Tensor& out);

// Returns true if gradients are enabled and an input requires one.
bool requires_grad_of_any(const Operator& op, TensorPointers tensors);

// Raises a RuntimeError if gradients are enabled and an input or `out` requires one. Used by
// operators that copy their result to `out`.
void check_no_gradient(const Operator& op, TensorPointers tensors, const at::Tensor& out);

// Returns the type to which ATen promotes the tensors.
c10::ScalarType promoted_type(std::span<const at::Tensor* const> tensors);

// Returns true for a tensor of a function transform (torch.func) or of forward mode, and for a lazy
// negation, conjugation or zero tensor.
bool is_transformed(const at::Tensor& tensor);

// Returns true if a device's kernels can take this tensor directly, because nothing traces or
// batches it.
bool is_plain(const at::Tensor& tensor);

// The tensors converted to the promoted type.
class Promoted {
 public:
  explicit Promoted(std::span<const at::Tensor* const> tensors);
  TensorPointers tensors() const { return pointers_; }

 private:
  at::Tensor converted_[kMaxInputs];
  const at::Tensor* pointers_[kMaxInputs];
};

}  // namespace fastact

// Argument checks shared by all kernels. Every message reads "fastact::selu: expected X, but got
// Y".
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>

#include "registration/operators/operator.h"

namespace fastact {

// The engines' type for a tensor's; nothing for a type that they do not have.
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

// NotImplementedError unless every tensor has one of the four floating-point types, as ATen's
// operators raise; a RuntimeError if the tensors are not all on self's device; what its activation
// says (Requirement) for parameters that are none of its.
void check_inputs(const Operator& op, TensorPointers tensors, const CallParameters& parameters);

// The same for a fused operator (ops/forms/fused.h), of which inputs may be undefined: self has one
// of the four types, the others have self's or, scale and bias beside 16 bits, float32.
void check_fused(const Operator& op, TensorPointers tensors, const CallParameters& parameters);

// A RuntimeError unless a result of this type can be written to `out`: same device, and a type that
// it casts to.
void check_out(const Operator& op, TensorPointers tensors, c10::ScalarType result,
               const at::Tensor& out);

// The type to which ATen promotes the tensors.
c10::ScalarType promoted_type(std::span<const at::Tensor* const> tensors);

// Whether a device's kernels take this tensor, and nothing looks at how it gets there: nothing is
// traced or batched.
bool is_plain(const at::Tensor& tensor);

// Tensors in that type.
class Promoted {
 public:
  explicit Promoted(std::span<const at::Tensor* const> tensors);
  TensorPointers tensors() const { return pointers_; }

 private:
  at::Tensor converted_[kMaxInputs];
  const at::Tensor* pointers_[kMaxInputs];
};

}  // namespace fastact

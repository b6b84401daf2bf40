// Argument checks shared by all kernels. Every message reads "fastact::selu: expected X, but got
// Y".
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "registration/family.h"

namespace fastact {

// The engines' type for a tensor's; nothing for a type that they do not have.
std::optional<DType> engine_type(c10::ScalarType type);

// NotImplementedError unless every tensor has one of the four floating-point types, as ATen's
// operators raise; a RuntimeError if the tensors are not all on self's device; what the formula
// says (ops/formulas/formula.h) for parameters that are none of its.
void check_inputs(const Family& family, int order, TensorPointers tensors,
                  const CallParameters& parameters);

// A RuntimeError unless a result of this type can be written to `out`: same device, and a type that
// it casts to.
void check_out(const Family& family, int order, TensorPointers tensors, c10::ScalarType result,
               const at::Tensor& out);

// The type to which ATen promotes the tensors.
c10::ScalarType promoted_type(int order, TensorPointers tensors);

// D_order's tensors in that type.
class Promoted {
 public:
  Promoted(int order, TensorPointers tensors);
  TensorPointers tensors() const { return pointers_; }

 private:
  at::Tensor converted_[kTopOrder + 1];
  const at::Tensor* pointers_[kTopOrder + 1];
};

}  // namespace fastact

// The kernels of a device for every operator of operators(). The keys CPU, CUDA and Meta register
// them.
#pragma once

#include "registration/kernels/fused.h"
#include "registration/kernels/fused_backward.h"
#include "registration/kernels/norm_gradients.h"
#include "registration/kernels/norm_of_sum.h"
#include "registration/kernels/pointwise.h"
#include "registration/kernels/rows.h"
#include "registration/kernels/seeded.h"
#include "registration/operators/operator.h"

namespace fastact {

template <class Backend>
struct KernelsOn {
  static at::Tensor functional(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                               const CallParameters& parameters) {
    if (op.has_rows) return Rows<Backend>::functional(keys, op, tensors, parameters);
    if (op.takes_seed()) return Seeded<Backend>::functional(keys, op, tensors, parameters);
    if (op.has_optional_inputs())
      return FusedPointwise<Backend>::functional(keys, op, tensors, parameters);
    return Pointwise<Backend>::functional(keys, op, tensors, parameters);
  }

  static void several(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                      const CallParameters& parameters, at::Tensor* results) {
    if (op.has_rows && op.takes_output_mask)
      return NormGradients<Backend>::several(keys, op, tensors, parameters, results);
    if (op.adds_residual)
      return NormOfSum<Backend>::several(keys, op, tensors, parameters, results);
    if (op.has_rows) return Rows<Backend>::several(keys, op, tensors, parameters, results);
    if (op.takes_output_mask)
      return FusedBackward<Backend>::several(keys, op, tensors, parameters, results);
    if (op.has_optional_inputs())
      return FusedPointwise<Backend>::several(keys, op, tensors, parameters, results);
    return Pointwise<Backend>::several(keys, op, tensors, parameters, results);
  }

  static at::Tensor& in_place(c10::DispatchKeySet keys, const Operator& op, at::Tensor& self,
                              const CallParameters& parameters) {
    return Pointwise<Backend>::in_place(keys, op, self, parameters);
  }

  static at::Tensor& out(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                         const CallParameters& parameters, at::Tensor& out) {
    if (op.has_rows) return Rows<Backend>::out(keys, op, tensors, parameters, out);
    if (op.has_optional_inputs())
      return FusedPointwise<Backend>::out(keys, op, tensors, parameters, out);
    return Pointwise<Backend>::out(keys, op, tensors, parameters, out);
  }
};

}  // namespace fastact

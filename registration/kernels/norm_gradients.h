// Shared by the CPU, CUDA and Meta kernels of the operators that compute all gradients of a norm
// (operators/norms.cpp).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <concepts>

#include "registration/checks.h"
#include "registration/composites/norms.h"
#include "registration/operators/operator.h"
#include "registration/row_vectors.h"

namespace fastact {

// The interface of a device to NormGradients.
template <class B>
concept IsNormGradientsBackend = requires(const Operator& op, TensorPointers tensors,
                                          const CallParameters& parameters, at::Tensor* results) {
  // Computes the results that the mask asks for. Returns false and does nothing if they should be
  // composed.
  { B::run_norm_gradients(op, tensors, parameters, results) } -> std::same_as<bool>;
};

template <IsNormGradientsBackend Backend>
struct NormGradients {
  static void several(c10::DispatchKeySet /*keys*/, const Operator& op, TensorPointers tensors,
                      const CallParameters& parameters, at::Tensor* results) {
    const int64_t dim = check_rows(op, tensors, parameters);
    const at::Tensor& self = *tensors[kNormSelf];
    const at::Tensor& weight = *tensors[kNormWeight];
    TORCH_CHECK(dim == self.dim() - 1, "fastact::", op.public_name(),
                ": expected dim to be the last dimension, but got ", parameters.dim);
    TORCH_CHECK(is_vector_of_rows(weight, self), "fastact::", op.public_name(),
                ": expected a weight for each element of a row, but got the shape ",
                weight.sym_sizes(), " for ", self.sym_sizes());
    if (TORCH_GUARD_OR_FALSE(self.sym_numel().sym_eq(0)))
      return set_results_of_no_rows(op, self, weight, parameters, results);
    if (!Backend::run_norm_gradients(op, tensors, parameters, results))
      op.composition(op, tensors, parameters, results);
  }

 private:
  static void set_results_of_no_rows(const Operator& op, const at::Tensor& self,
                                     const at::Tensor& weight, const CallParameters& parameters,
                                     at::Tensor* results) {
    if (parameters.output_mask[kBySelf])
      results[kBySelf] = at::empty_like(self, at::MemoryFormat::Contiguous);
    const auto options = self.options().dtype(type_of_statistics(self.scalar_type()));
    for (int i = kByWeight; i < op.results; ++i)
      if (parameters.output_mask[i]) results[i] = at::zeros_symint(weight.sym_sizes(), options);
  }
};

}  // namespace fastact

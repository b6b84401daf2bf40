// Shared by the CPU, CUDA and Meta kernels of the norms that add a residual (operators/norms.cpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>

#include "registration/checks.h"
#include "registration/operators/operator.h"

namespace fastact {

// The interface of a device to NormOfSum.
template <class B>
concept IsNormOfSumBackend = requires(const Operator& op, TensorPointers tensors,
                                      const CallParameters& parameters, at::Tensor* results) {
  // Computes the norm and the sum. Returns false if they should be composed.
  { B::run_norm_of_sum(op, tensors, parameters, results) } -> std::same_as<bool>;
};

template <IsNormOfSumBackend Backend>
struct NormOfSum {
  static void several(c10::DispatchKeySet /*keys*/, const Operator& op, TensorPointers tensors,
                      const CallParameters& parameters, at::Tensor* results) {
    check_rows(op, tensors, parameters);
    if (!Backend::run_norm_of_sum(op, tensors, parameters, results))
      op.composition(op, tensors, parameters, results);
  }
};

}  // namespace fastact

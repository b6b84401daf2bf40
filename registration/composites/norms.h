// Derivatives of the norms (operators/norms.cpp), composed of the norms and of PyTorch's operators.
// The functions below norm_gradients() are DerivativeRule::Compositions. 16-bit types compute in
// float32 and are rounded at the end.
//
// A norm is y = w z(x) + b. S(u) stands for the gradient of z by x for the incoming u, which is its
// own transpose, and is the operator's backward operator with a weight of 1.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "registration/operators/operator.h"

namespace fastact {

// rms_norm and layer_norm (fastact.h) for symbolic shapes.
at::Tensor rms_norm_symint(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                           const std::optional<at::Tensor>& weight, std::optional<double> eps);
at::Tensor layer_norm_symint(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                             const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias, double eps);

// What the derivatives of a norm and of its backward operators call, in this order.
enum NormCalled : int {
  kNormBackward,
  kNormGradients,
  kNormSums,
  kNormWithoutBias,
  kNormWithStatistics
};

// The first inputs of a norm's backward operators, and the results of the one that computes all
// gradients: S(w g), sum(g z) and sum(g).
enum NormInput : int { kNormSelf, kNormGradOutput, kNormWeight };
enum NormGradient : int { kBySelf, kByWeight, kByBias };

// Composes the results of an operator that adds a residual.
void compose_norm_of_sum(const Operator& op, TensorPointers tensors,
                         const CallParameters& parameters, at::Tensor* results);

// Composes the results of the operator that computes all gradients. The sums have the order of
// ops/kernel.h.
void compose_norm_gradients(const Operator& op, TensorPointers tensors,
                            const CallParameters& parameters, at::Tensor* results);

// Returns input + residual, rounded once and contiguous. Raises a RuntimeError if the residual does
// not match the input.
at::Tensor checked_sum(const char* name, const at::Tensor& input, const at::Tensor& residual);

// The function for Descriptor::gradients of a norm. Calls the operator that computes all gradients.
// PyTorch adds instead under a transform, if the gradients need derivatives, or if that operator
// does not take the vectors.
void norm_gradients(const Operator& op, const CallParameters& parameters,
                    const at::Tensor& incoming, const SavedInputs& saved,
                    const std::vector<bool>& needed, at::Tensor* gradients);

// The tangents of a norm: w S(t), t z and t.
at::Tensor norm_tangent_of_self(const Operator& op, const CallParameters& parameters,
                                const at::Tensor& incoming, const at::Tensor* inputs);
at::Tensor norm_tangent_of_weight(const Operator& op, const CallParameters& parameters,
                                  const at::Tensor& incoming, const at::Tensor* inputs);
at::Tensor norm_tangent_of_bias(const Operator& op, const CallParameters& parameters,
                                const at::Tensor& incoming, const at::Tensor* inputs);

// The gradients of a backward operator, S(w g), for the incoming h: by self, see
// norm_derivatives.cpp; by grad_output, w S(h); by weight, the sum of g S(h).
template <bool IsCentered>
at::Tensor norm_backward_by_self(const Operator& op, const CallParameters& parameters,
                                 const at::Tensor& incoming, const at::Tensor* inputs);
at::Tensor norm_backward_by_grad(const Operator& op, const CallParameters& parameters,
                                 const at::Tensor& incoming, const at::Tensor* inputs);
at::Tensor norm_backward_by_weight(const Operator& op, const CallParameters& parameters,
                                   const at::Tensor& incoming, const at::Tensor* inputs);

extern template at::Tensor norm_backward_by_self<true>(const Operator&, const CallParameters&,
                                                       const at::Tensor&, const at::Tensor*);
extern template at::Tensor norm_backward_by_self<false>(const Operator&, const CallParameters&,
                                                        const at::Tensor&, const at::Tensor*);

}  // namespace fastact

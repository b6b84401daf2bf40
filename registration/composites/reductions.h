// Derivatives of the reductions of rows (operators/reductions.cpp). They are
// DerivativeRule::Compositions. 16-bit types compute in float32 and are rounded at the end.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "registration/operators/operator.h"

namespace fastact {

// The gradients of a row's sum and mean: g, and g / n.
at::Tensor sum_by_self(const Operator& op, const CallParameters& parameters,
                       const at::Tensor& incoming, const at::Tensor* inputs);
at::Tensor mean_by_self(const Operator& op, const CallParameters& parameters,
                        const at::Tensor& incoming, const at::Tensor* inputs);

// The gradient and the tangent of the variance with correction c, and d = 2 (x - mean) / (n - c):
// g d, and sum(t d).
at::Tensor var_by_self(const Operator& op, const CallParameters& parameters,
                       const at::Tensor& incoming, const at::Tensor* inputs);
at::Tensor var_tangent(const Operator& op, const CallParameters& parameters,
                       const at::Tensor& incoming, const at::Tensor* inputs);

}  // namespace fastact

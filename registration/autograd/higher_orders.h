// The derivatives above the third, to any order: ATen's operators carry on where the kernels end.
#pragma once

#include "registration/operators/operator.h"

namespace fastact {

// The derivative by self of D_3, the last order that has a kernel, in operators that ATen
// differentiates further; undefined if it is zero. `inputs` are D_3's.
at::Tensor fourth_order(const Operator& op, const CallParameters& parameters,
                        const at::Tensor& incoming, const at::Tensor* inputs);

}  // namespace fastact

// Derivatives above the third, to any order, in ATen's operators.
#pragma once

#include "registration/operators/operator.h"

namespace fastact {

// Returns the derivative by self of D_3, which is the last order with a kernel, in operators that
// ATen differentiates further. Returns an undefined tensor if it is zero. `inputs` are those of
// D_3.
at::Tensor fourth_order(const Operator& op, const CallParameters& parameters,
                        const at::Tensor& incoming, const at::Tensor* inputs);

}  // namespace fastact

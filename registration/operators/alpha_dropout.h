// SELU with alpha dropout (ops/forms/alpha_dropout.h): the operators below selu_alpha_dropout,
// which draws a seed. They are functions of the seed.
#pragma once

#include <span>

#include "registration/operators/operator.h"

namespace fastact {

// _selu_alpha_dropout(self, seed, p); _selu_alpha_dropout_backward(grad_output, self, seed, p);
// _alpha_dropout_mask(grad_output, self, seed, p), the linear part: a * grad_output for a kept
// element and 0 for a dropped one, in the layout of self.
// `seed` is an int64 tensor of one element. The list is empty in a build without selu, and in a
// torch other than the one that this library is built for.
std::span<const Operator* const> alpha_dropout_operators();

// Returns the kernel of an operator.
AlphaDropoutForm alpha_dropout_form(const Operator& op);

}  // namespace fastact

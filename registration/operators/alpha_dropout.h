// SELU with alpha dropout (ops/forms/alpha_dropout.h): the operators below selu_alpha_dropout,
// which draws a seed. Of a seed they are functions.
#pragma once

#include <span>

#include "registration/operators/operator.h"

namespace fastact {

// _selu_alpha_dropout(self, seed, p); _selu_alpha_dropout_backward(grad_output, self, seed, p);
// _alpha_dropout_mask(grad_output, self, seed, p), the linear part: what is kept of grad_output,
// times a, in the layout of self, whose elements' positions in memory tell which are dropped.
// `seed` is an int64 tensor of one element. Empty in another torch than this is built for.
std::span<const Operator* const> alpha_dropout_operators();

// Which kernel an operator has.
AlphaDropoutForm alpha_dropout_form(const Operator& op);

}  // namespace fastact

// What the formulas' fourth_derivative() share: f'''' in operators that PyTorch differentiates,
// from which it goes on to any order.
//
// Tensor is a type with PyTorch's functions and operators (exp, where, *), which are found by their
// argument: no header of Torch's is needed here. It holds float64, whatever the operands' type.
//
// PyTorch's own derivatives are to be as exact as the formula:
// - What vanishes far out is a factor, never a difference: PyTorch's derivative of sigmoid,
//   y (1 - y), has lost its digits where y is next to 1, which does no harm beside such a factor.
// - No infinity meets a zero: bounded().
// - NaN stays NaN in every order: a selection by `x > 0` lets it pass, clamp() ends its gradient.
#pragma once

#include "ops/math/arithmetic.h"

namespace fastact::inline FASTACT_TARGET {

// x, or beyond it the limit of |x|, from which on a derivative is 0.
template <class Tensor>
Tensor bounded(const Tensor& x, double limit) {
  const Tensor above = where(x < -limit, -limit, x);
  return where(x > limit, limit, above);
}

// x, and 0 above it.
template <class Tensor>
Tensor below_zero(const Tensor& x) {
  return where(x > 0.0, 0.0, x);
}

// The derivatives of 1 / (1 + e^-w) by w.
template <class Tensor>
struct LogisticDerivatives {
  explicit LogisticDerivatives(const Tensor& w)
      : first(sigmoid(w) * sigmoid(-w)), second(-first * tanh(0.5 * w)) {}

  Tensor third() const { return first * (1.0 - 6.0 * first); }
  Tensor fourth() const { return second * (1.0 - 12.0 * first); }

  Tensor first;
  Tensor second;
};

// f'''' of x / (1 + e^-x).
template <class Tensor>
Tensor gate_fourth_derivative(const Tensor& x) {
  const Tensor size = bounded(x, 1000.0);
  const LogisticDerivatives<Tensor> sigma(size);
  return size * sigma.fourth() + 4.0 * sigma.third();
}

}  // namespace fastact::inline FASTACT_TARGET

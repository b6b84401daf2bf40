// Functions shared by the formulas' fourth_derivative(): f'''' in operators that PyTorch
// differentiates further, to any order.
//
// Tensor is a type with PyTorch's functions and operators (exp, where, *). They are found by
// argument-dependent lookup, so no header of Torch is needed. Tensor contains float64, whatever the
// type of the operands.
//
// PyTorch's derivatives of these expressions must be as exact as the formula:
// - A quantity that vanishes for large |x| is a factor, never a difference. PyTorch's derivative of
//   sigmoid, y (1 - y), has no correct digits if y is close to 1; a vanishing factor makes this
//   harmless.
// - No infinity is multiplied by zero: see bounded().
// - NaN stays NaN in every order. A selection by `x > 0` passes NaN on; clamp() would end its
//   gradient.
#pragma once

#include "ops/math/arithmetic.h"

namespace fastact::inline FASTACT_TARGET {

// Returns x, limited to [-limit, limit]. Beyond these limits the derivative is 0.
template <class Tensor>
Tensor bounded(const Tensor& x, double limit) {
  const Tensor above = where(x < -limit, -limit, x);
  return where(x > limit, limit, above);
}

// Returns x, or 0 for positive x.
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

// Returns f'''' of x / (1 + e^-x).
template <class Tensor>
Tensor gate_fourth_derivative(const Tensor& x) {
  const Tensor size = bounded(x, 1000.0);
  const LogisticDerivatives<Tensor> sigma(size);
  return size * sigma.fourth() + 4.0 * sigma.third();
}

}  // namespace fastact::inline FASTACT_TARGET

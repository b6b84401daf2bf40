// The operators of the fused form (ops/forms/fused.h) and their inputs.
#pragma once

#include <span>

#include "registration/operators/operator.h"

namespace fastact {

// Positions of the inputs.
inline constexpr int kSelf = static_cast<int>(FusedInput::kSelf);
inline constexpr int kScale = static_cast<int>(FusedInput::kScale);
inline constexpr int kBias = static_cast<int>(FusedInput::kBias);
inline constexpr int kResidual = static_cast<int>(FusedInput::kResidual);
inline constexpr int kGate = static_cast<int>(FusedInput::kGate);

// The elementwise operators, which fused_<activation> calls:
//
//   _fused_<activation>(self, scale, bias, residual, gate, parameters...)
//   _fused_<activation>_with_preactivation(the same) returns the result and z = self * scale +
//     bias + residual in self's type, which the backward pass saves.
//   _fused_<activation>_backward(grad_output, the same, output_mask) returns the gradients that the
//     mask requests, in the order of the inputs, and undefined tensors for the others. A gradient
//     has its input's shape and type. The gradient of an absent residual or gate has z's shape and
//     self's type. Requesting the gradient of an absent scale or bias raises a ValueError.
//
// Operator::called of the first contains the other two; theirs contains the first.
inline constexpr int kFusedWithPreactivation = 0;
inline constexpr int kFusedBackward = 1;
inline constexpr int kFusedForward = 0;

// True for scale and bias, whose gradients are sums for each channel.
constexpr bool is_fused_vector(int input) { return input == kScale || input == kBias; }

// Returns the operators _fused_<activation>.
std::span<const Operator* const> fused_operators();

}  // namespace fastact

// The fused operators: their inputs, and the names and signatures of the operators that compute the
// gradients, or the pre-activation, in one pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "registration/operators/operator.h"

namespace fastact {

// Positions of the inputs.
inline constexpr int kSelf = static_cast<int>(FusedInput::kSelf);
inline constexpr int kScale = static_cast<int>(FusedInput::kScale);
inline constexpr int kBias = static_cast<int>(FusedInput::kBias);
inline constexpr int kResidual = static_cast<int>(FusedInput::kResidual);
inline constexpr int kGate = static_cast<int>(FusedInput::kGate);

using FusedMask = std::array<bool, kFusedInputs>;
using FusedTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// _fused_<activation>_backward(grad_output, self, scale, bias, residual, gate, parameters,
// output_mask): the gradients that the mask requests, in the order of the inputs, and undefined
// tensors for the others. A gradient has its input's shape and type. The gradient of an absent
// residual or gate has z's shape and self's type. Requesting the gradient of an absent scale or
// bias raises a ValueError.
using FusedBackward = FusedTensors(const at::Tensor&, const at::Tensor&,
                                   const std::optional<at::Tensor>&,
                                   const std::optional<at::Tensor>&,
                                   const std::optional<at::Tensor>&,
                                   const std::optional<at::Tensor>&, at::ArrayRef<double>,
                                   FusedMask);

std::string fused_backward_name(const Operator& op);

// _fused_<activation>_with_argument(self, scale, bias, residual, gate, parameters) returns the
// result and z = self * scale + bias + residual in self's type, which the backward pass saves.
using FusedWithArgument = std::tuple<at::Tensor, at::Tensor>(
    const at::Tensor&, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&,
    const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, at::ArrayRef<double>);

std::string fused_with_argument_name(const Operator& op);

// The arguments of these operators in the form of an Operator's call. Throws a ValueError if the
// number of parameters is wrong.
struct FusedArguments {
  FusedArguments(const Operator& op, const std::string& name, const at::Tensor& self,
                 const std::optional<at::Tensor>& scale, const std::optional<at::Tensor>& bias,
                 const std::optional<at::Tensor>& residual, const std::optional<at::Tensor>& gate,
                 at::ArrayRef<double> numbers);

  const at::Tensor* tensors[kFusedInputs];
  CallParameters parameters;
};

// True for scale and bias, whose gradients are sums for each channel.
constexpr bool is_fused_vector(int input) { return input == kScale || input == kBias; }

// Returns the elementwise fused operators, one for each activation.
std::span<const Operator* const> fused_operators();

}  // namespace fastact

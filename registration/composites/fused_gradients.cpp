#include "registration/composites/fused_gradients.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "registration/operators/signature.h"

namespace fastact {
namespace {

// The kernel for tensors that have no other.
struct ComposedBackward {
  const Operator* op;

  FusedTensors operator()(const at::Tensor& grad_output, const at::Tensor& self,
                          const std::optional<at::Tensor>& scale,
                          const std::optional<at::Tensor>& bias,
                          const std::optional<at::Tensor>& residual,
                          const std::optional<at::Tensor>& gate, at::ArrayRef<double> numbers,
                          FusedMask mask) const {
    const FusedArguments call(*op, fused_backward_name(*op), self, scale, bias, residual, gate,
                              numbers);
    at::Tensor inputs[kFusedInputs];
    for (int i = 0; i < kFusedInputs; ++i) inputs[i] = *call.tensors[i];
    return composed_fused_backward(*op, call.parameters, grad_output, inputs, mask);
  }
};

struct ComposedWithArgument {
  const Operator* op;

  std::tuple<at::Tensor, at::Tensor> operator()(const at::Tensor& self,
                                                const std::optional<at::Tensor>& scale,
                                                const std::optional<at::Tensor>& bias,
                                                const std::optional<at::Tensor>& residual,
                                                const std::optional<at::Tensor>& gate,
                                                at::ArrayRef<double> numbers) const {
    const FusedArguments call(*op, fused_with_argument_name(*op), self, scale, bias, residual, gate,
                              numbers);
    return {op->call(call.tensors, call.parameters), fused_preactivation_of(call.tensors)};
  }
};

}  // namespace

FusedTensors composed_fused_backward(const Operator& op, const CallParameters& parameters,
                                     const at::Tensor& grad_output, const at::Tensor* inputs,
                                     const FusedMask& mask) {
  std::array<at::Tensor, kFusedInputs> gradients;
  compose_fused_gradients(op, parameters, grad_output, inputs, /*self_is_preactivation=*/false,
                          std::vector<bool>(mask.begin(), mask.end()), gradients.data());
  for (int i = 0; i < kFusedInputs; ++i) {
    if (!mask[i]) continue;
    TORCH_CHECK_VALUE(!is_fused_vector(i) || inputs[i].defined(),
                      "fastact::", fused_backward_name(op), ": expected ", op.inputs[i].name,
                      ", whose gradient is asked for, but got None");
    // Sums before rounding.
    if (inputs[i].defined()) gradients[i] = at::sum_to(gradients[i], inputs[i].sym_sizes());
    gradients[i] = gradients[i].to((inputs[i].defined() ? inputs[i] : inputs[kSelf]).scalar_type());
    // The results of an operator must not share memory.
    const auto own = gradients.begin() + i;
    if (std::any_of(gradients.begin(), own,
                    [&](const at::Tensor& other) { return other.is_same(*own); })) {
      *own = own->clone();
    }
  }
  return std::apply([](const auto&... each) { return FusedTensors(each...); }, gradients);
}

void compose_fused_gradients(const Operator& op, const CallParameters& parameters,
                             const at::Tensor& incoming, const at::Tensor* inputs,
                             bool self_is_preactivation, const std::vector<bool>& needed,
                             at::Tensor* gradients) {
  const c10::ScalarType element = inputs[kSelf].scalar_type();
  const c10::ScalarType type = element == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor numbers[kFusedInputs];
  for (int i = 0; i < kFusedInputs; ++i) {
    if (inputs[i].defined()) numbers[i] = inputs[i].to(type);
  }
  const auto& [self, scale, bias, residual, gate] = numbers;
  at::Tensor z = self;
  if (!self_is_preactivation) {
    if (scale.defined()) {
      z = bias.defined() ? at::addcmul(bias, z, scale) : at::mul(z, scale);
    } else if (bias.defined()) {
      z = at::add(z, bias);
    }
    if (residual.defined()) z = at::add(z, residual);
  }

  const bool takes_output = op.activation->traits.saves == Saves::kOutput;
  const bool needs_slope = needed[kSelf] || needed[kScale] || needed[kBias] || needed[kResidual];
  const at::Tensor* const argument[] = {&z};
  at::Tensor value;
  // The rules name the activation's own operators.
  if (needed[kGate] || (needs_slope && takes_output))
    value = op.derivatives[kGate].op->call(argument, parameters);
  at::Tensor g = incoming.to(type);
  if (needed[kGate]) gradients[kGate] = at::mul(g, value);
  if (!needs_slope) return;
  if (gate.defined()) g = at::mul(g, gate);
  const at::Tensor* const arguments[] = {&g, takes_output ? &value : &z};
  const at::Tensor slope = op.derivatives[kSelf].op->call(arguments, parameters);
  if (needed[kSelf]) gradients[kSelf] = scale.defined() ? at::mul(slope, scale) : slope;
  if (needed[kScale]) gradients[kScale] = at::mul(slope, self);
  if (needed[kBias]) gradients[kBias] = slope;
  if (needed[kResidual]) gradients[kResidual] = slope;
}

at::Tensor fused_preactivation_of(TensorPointers tensors) {
  static const Operator& identity = operator_named("_fused_leaky_relu");
  CallParameters parameters;
  parameters.numbers.values[0] = 1.0;
  const at::Tensor* operands[kFusedInputs];
  std::copy_n(tensors, kFusedInputs, operands);
  operands[kGate] = &tensor_of(std::nullopt);
  return identity.call(operands, parameters);
}

void implement_composed_fused(torch::Library& library) {
  for (const Operator* op : fused_operators()) {
    library.impl(fused_backward_name(*op).c_str(), ComposedBackward{op});
    library.impl(fused_with_argument_name(*op).c_str(), ComposedWithArgument{op});
  }
}

}  // namespace fastact

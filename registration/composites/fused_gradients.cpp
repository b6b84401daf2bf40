#include "registration/composites/fused_gradients.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <vector>

#include "registration/operators/signature.h"

namespace fastact {
void compose_fused_with_preactivation(const Operator& op, TensorPointers tensors,
                                      const CallParameters& parameters, at::Tensor* results) {
  results[0] = op.called[kFusedForward]->call(tensors, parameters);
  results[1] = fused_preactivation_of(tensors);
}

void compose_fused_backward(const Operator& op, TensorPointers tensors,
                            const CallParameters& parameters, at::Tensor* results) {
  const OutputMask& mask = parameters.output_mask;
  at::Tensor inputs[kFusedInputs];
  for (int i = 0; i < kFusedInputs; ++i) inputs[i] = *tensors[1 + i];
  compose_fused_gradients(*op.called[kFusedForward], parameters, *tensors[0], inputs,
                          /*self_is_preactivation=*/false,
                          std::vector<bool>(mask.begin(), mask.end()), results);
  for (int i = 0; i < kFusedInputs; ++i) {
    if (!mask[i]) continue;
    TORCH_CHECK_VALUE(!is_fused_vector(i) || inputs[i].defined(), "fastact::", op.name,
                      ": expected ", op.inputs[1 + i].name,
                      ", whose gradient is asked for, but got None");
    // Sums before rounding.
    if (inputs[i].defined()) results[i] = at::sum_to(results[i], inputs[i].sym_sizes());
    results[i] = results[i].to((inputs[i].defined() ? inputs[i] : inputs[kSelf]).scalar_type());
    // The results of an operator must not share memory.
    if (std::any_of(results, results + i,
                    [&](const at::Tensor& other) { return other.is_same(results[i]); })) {
      results[i] = results[i].clone();
    }
  }
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
  operands[kGate] = &absent_tensor();
  return identity.call(operands, parameters);
}

}  // namespace fastact

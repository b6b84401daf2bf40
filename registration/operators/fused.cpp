// The fused operators (ops/forms/fused.h): the elementwise _fused_<activation>, and its gradients.
// composites/fused.cpp contains their callers.
#include "registration/operators/fused.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "registration/autograd/argument_node.h"
#include "registration/checks.h"
#include "registration/composites/fused_gradients.h"
#include "registration/device_kernels.h"
#include "registration/operators/operator.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

// Returns the derivative by one input, for forward mode.
template <int Input>
at::Tensor derivative_by(const Operator& op, const CallParameters& parameters,
                         const at::Tensor& incoming, const at::Tensor* inputs) {
  std::vector<bool> needed(kFusedInputs);
  needed[Input] = true;
  at::Tensor result[kFusedInputs];
  compose_fused_gradients(op, parameters, incoming, inputs, /*self_is_preactivation=*/false, needed,
                          result);
  return result[Input];
}

template <int Input>
DerivativeRule rule(std::string op, std::vector<int> arguments) {
  DerivativeRule result = DerivativeRule::call(std::move(op), std::move(arguments));
  result.composition = &derivative_by<Input>;
  return result;
}

// ---- What autograd saves

// True if the backward pass would otherwise save several tensors as large as the result, so that z
// is saved instead. A scale's gradient needs self.
bool saves_preactivation(TensorPointers tensors) {
  const auto numel = [&](int i) {
    return tensors[i]->defined() ? tensors[i]->sym_numel() : c10::SymInt(0);
  };
  if (tensors[kScale]->defined() && tensors[kScale]->requires_grad()) return false;
  const c10::SymInt largest = std::max({numel(kSelf), numel(kBias), numel(kResidual)});
  return numel(kSelf) + numel(kBias) + numel(kResidual) >= largest * 2;
}

// Returns z with its history. Rounds after each operation, like PyTorch's operators.
at::Tensor preactivation_of(TensorPointers tensors) {
  at::Tensor z = *tensors[kSelf];
  const c10::ScalarType type = z.scalar_type();
  if (tensors[kScale]->defined()) z = at::mul(z, tensors[kScale]->to(type));
  for (const int i : {kBias, kResidual})
    if (tensors[i]->defined()) z = at::add(z, tensors[i]->to(type));
  return z;
}

// Returns true if a key has a kernel for the gradients, which need no derivative themselves.
bool has_kernel(const at::Tensor& incoming, const at::Tensor* inputs) {
  return !at::GradMode::is_enabled() && is_plain(incoming) &&
         std::all_of(inputs, inputs + kFusedInputs, is_plain);
}

// Returns true if a kernel computes the result and z together.
bool has_kernel_with_preactivation(TensorPointers tensors) {
  return std::all_of(tensors, tensors + kFusedInputs,
                     [](const at::Tensor* tensor) { return is_plain(*tensor); });
}

// True if the activation's derivatives can use the activation's result, which is the fused form's
// result if there is neither a scale nor a gate.
bool result_replaces_preactivation(const Operator& op, TensorPointers tensors) {
  return op.activation->traits.saves == Saves::kResultAsInput && !tensors[kScale]->defined() &&
         !tensors[kGate]->defined();
}

// The function for Descriptor::compute.
Computed compute(const Operator& op, TensorPointers tensors, const CallParameters& parameters,
                 const c10::DispatchKeySet* keys) {
  Computed computed;
  const bool takes_preactivation = saves_preactivation(tensors);
  if (takes_preactivation) {
    computed.first =
        result_replaces_preactivation(op, tensors) ? Saved::kResult : Saved::kPreactivation;
  }
  if (computed.first == Saved::kPreactivation) {
    if (has_kernel_with_preactivation(tensors)) {
      at::Tensor results[2];
      {
        const at::AutoDispatchBelowADInplaceOrView guard;
        several_below(keys, *op.called[kFusedWithPreactivation], tensors, parameters, results);
      }
      computed.result = std::move(results[0]);
      computed.preactivation = std::move(results[1]);
      set_preactivation_history(computed.preactivation, tensors);
      return computed;
    }
    computed.preactivation = preactivation_of(tensors);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  computed.result = functional_below(keys, op, tensors, parameters);
  return computed;
}

// The function for Descriptor::saving. If z replaces self, only two of its operands are saved:
// scale, which self's gradient uses, and a bias whose gradient is a sum.
Saving saving(int input, TensorPointers tensors, const Computed& computed,
              const NeededGradients& needed) {
  if (input == kGate) {
    const bool is_slope_used = std::any_of(needed.begin(), needed.begin() + kGate, std::identity());
    const bool sums_gate =
        needed[kGate] && tensors[kGate]->sym_numel() < computed.result.sym_numel();
    // A gate made in inference mode is an error, as in PyTorch's multiplication.
    return is_slope_used || sums_gate ? Saving::kInput : Saving::kNothing;
  }
  if (computed.first == Saved::kInput || input == kScale) return Saving::kCopyOfInference;
  const at::Tensor& z =
      computed.first == Saved::kPreactivation ? computed.preactivation : computed.result;
  const bool sums_bias =
      input == kBias && needed[kBias] && tensors[kBias]->sym_numel() < z.sym_numel();
  return sums_bias ? Saving::kCopyOfInference : Saving::kNothing;
}

// ---- All gradients at once

// True if the node has saved z, or the result that serves as z, instead of self.
bool keeps_preactivation(const SavedInputs& saved) {
  return saved.kinds[kSelf] == Saved::kPreactivation || saved.kinds[kSelf] == Saved::kResult;
}

// True if the gradient of self and residual is plain `<activation>_backward(grad, z)`: z is saved,
// the call had neither scale nor gate, and bias needs no gradient. False if the backward operator
// takes the activation's result, because computing f(z) first would take a second pass.
bool is_own_gradient(const Operator& op, const SavedInputs& saved,
                     const std::vector<bool>& needed) {
  return keeps_preactivation(saved) && op.activation->traits.saves != Saves::kOutput &&
         saved.was_absent(kScale) && saved.was_absent(kGate) && !needed[kBias];
}

// The function for Descriptor::gradients.
void gradients(const Operator& op, const CallParameters& parameters, const at::Tensor& incoming,
               const SavedInputs& saved, const std::vector<bool>& needed, at::Tensor* gradients) {
  const at::Tensor* const inputs = saved.tensors;
  if (is_own_gradient(op, saved, needed)) {
    const at::Tensor* const arguments[] = {&incoming, &inputs[kSelf]};
    const at::Tensor slope = op.derivatives[kSelf].op->call(arguments, parameters);
    for (const int i : {kSelf, kResidual})
      if (needed[i]) gradients[i] = slope;
    return;
  }
  const bool is_preactivation = keeps_preactivation(saved);
  if (!has_kernel(incoming, inputs)) {
    compose_fused_gradients(op, parameters, incoming, inputs, is_preactivation, needed, gradients);
    return;
  }
  OutputMask mask;
  std::ranges::copy(needed, mask.begin());
  // Without a scale, residual has the same gradient as self.
  const bool is_shared = !is_preactivation && needed[kSelf] && needed[kResidual] &&
                         saved.was_absent(kScale) &&
                         inputs[kSelf].sizes() == inputs[kResidual].sizes();
  if (is_shared) mask[kResidual] = false;
  // The kernel receives z as the self of a call without scale and residual. If the gradient of bias
  // is a sum, a bias of -0.0 gives the sum its shape and leaves z unchanged.
  const bool sums_bias = is_preactivation && needed[kBias] && saved.kinds[kBias] == Saved::kInput;
  at::Tensor no_bias;
  if (is_preactivation) {
    mask = {needed[kSelf] || needed[kBias] || needed[kResidual], false, sums_bias, false,
            needed[kGate]};
    if (sums_bias) no_bias = at::full_like(inputs[kBias], -0.0);
  }
  const at::Tensor* tensors[1 + kFusedInputs] = {&incoming};
  for (int i = 0; i < kFusedInputs; ++i) {
    const bool passes = !is_preactivation || i == kSelf || i == kGate;
    tensors[1 + i] = passes ? &inputs[i] : &absent_tensor();
  }
  if (sums_bias) tensors[1 + kBias] = &no_bias;
  CallParameters with_mask = parameters;
  with_mask.output_mask = mask;
  op.called[kFusedBackward]->several(nullptr, tensors, with_mask, gradients);
  if (is_shared) gradients[kResidual] = gradients[kSelf];
  if (!is_preactivation) return;
  const at::Tensor slope = std::move(gradients[kSelf]);
  gradients[kSelf] = at::Tensor();
  for (const int i : {kSelf, kBias, kResidual})
    if (needed[i] && !gradients[i].defined()) gradients[i] = slope;
  if (needed[kSelf] && inputs[kScale].defined()) gradients[kSelf] = at::mul(slope, inputs[kScale]);
}

}  // namespace

std::span<const Operator* const> fused_operators() {
  static const auto& all = *new std::vector<const Operator*>([] {
    std::vector<const Operator*> list;
    std::ranges::copy_if(operators(), std::back_inserter(list), [](const Operator* op) {
      return op->has_optional_inputs() && op->results == 1;
    });
    return list;
  }());
  return all;
}

std::vector<Descriptor> fused_operators_of(const Activation& activation, int family) {
  const std::string name(activation.name);
  Descriptor result;
  result.name = "_fused_" + name;
  constexpr auto kOptional = InputKind::kOptional;
  result.inputs = {"self",
                   {"scale", kOptional},
                   {"bias", kOptional},
                   {"residual", kOptional},
                   {"gate", kOptional}};
  result.family = family;
  result.activation = &activation;

  Descriptor with_preactivation = result;
  with_preactivation.name += "_with_preactivation";
  with_preactivation.results = 2;
  with_preactivation.composition = &compose_fused_with_preactivation;
  with_preactivation.called_names = {result.name};

  Descriptor backward = result;
  backward.name += "_backward";
  backward.inputs.insert(backward.inputs.begin(), "grad_output");
  backward.results = kFusedInputs;
  backward.takes_output_mask = true;
  backward.composition = &compose_fused_backward;
  backward.called_names = {result.name};

  result.out = "out";
  result.called_names = {with_preactivation.name, backward.name};
  result.gradients = &gradients;
  result.compute = &compute;
  result.saving = &saving;
  const std::vector<int> of_backward = {DerivativeRule::kIncoming, kSelf};
  result.derivatives = {
      rule<kSelf>(name + "_backward", of_backward), rule<kScale>(name + "_backward", of_backward),
      rule<kBias>(name + "_backward", of_backward),
      rule<kResidual>(name + "_backward", of_backward), rule<kGate>(name, {kSelf})};
  return {std::move(result), std::move(with_preactivation), std::move(backward)};
}

}  // namespace fastact

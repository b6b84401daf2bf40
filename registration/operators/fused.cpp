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
#include <deque>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "registration/autograd/argument_node.h"
#include "registration/checks.h"
#include "registration/composites/fused_gradients.h"
#include "registration/operators/operator.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

using Optional = const std::optional<at::Tensor>&;

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

// Returns the operators fastact::_fused_<activation> followed by `end`, by the index of the
// activation. Their names must stay alive.
template <class Function>
std::deque<LazyOperator<Function>>& operators_with(const char* end) {
  auto& list = *new std::deque<LazyOperator<Function>>();
  for (const Activation& activation : activations()) {
    auto* const name = new std::string("fastact::_fused_" + std::string(activation.name));
    list.emplace_back(name->append(end).c_str(), "");
  }
  return list;
}
const LazyOperator<FusedBackward>& backward_operator(const Operator& op) {
  static const auto& all = operators_with<FusedBackward>("_backward");
  return all[op.family];
}
const LazyOperator<FusedWithArgument>& operator_with_argument(const Operator& op) {
  static const auto& all = operators_with<FusedWithArgument>("_with_argument");
  return all[op.family];
}

// Returns true if a key has a kernel for the gradients, which need no derivative themselves.
bool has_kernel(const at::Tensor& incoming, const at::Tensor* inputs) {
  return !at::GradMode::is_enabled() && is_plain(incoming) &&
         std::all_of(inputs, inputs + kFusedInputs, is_plain);
}

at::ArrayRef<double> numbers_of(const Operator& op, const CallParameters& parameters) {
  return {parameters.numbers.values, op.parameters().size()};
}

// Returns the result and z together, without a history, from the operator with a kernel for it.
// Returns two undefined tensors if there is none.
std::pair<at::Tensor, at::Tensor> with_argument(const Operator& op, TensorPointers tensors,
                                                const CallParameters& parameters,
                                                const c10::DispatchKeySet* keys) {
  if (!std::all_of(tensors, tensors + kFusedInputs,
                   [](const at::Tensor* tensor) { return is_plain(*tensor); })) {
    return {};
  }
  const auto optional = [&](int i) { return argument_of<1, 1>(*tensors[i]); };
  auto [result, z] = operator_with_argument(op).dispatch(
      keys, *tensors[kSelf], optional(kScale), optional(kBias), optional(kResidual),
      optional(kGate), numbers_of(op, parameters));
  return {std::move(result), std::move(z)};
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
    {
      const at::AutoDispatchBelowADInplaceOrView guard;
      std::tie(computed.result, computed.preactivation) =
          with_argument(op, tensors, parameters, keys);
    }
    if (computed.preactivation.defined()) {
      set_preactivation_history(computed.preactivation, tensors);
      return computed;
    }
    computed.preactivation = preactivation_of(tensors);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  computed.result = op.functional(keys, tensors, parameters);
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
  FusedMask mask;
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
  const auto optional = [&](int i) {
    if (!is_preactivation || i == kGate) return argument_of<1, 1>(inputs[i]);
    return i == kBias && sums_bias ? std::optional(no_bias) : std::nullopt;
  };
  FusedTensors result = backward_operator(op).dispatch(
      nullptr, incoming, inputs[kSelf], optional(kScale), optional(kBias), optional(kResidual),
      optional(kGate), numbers_of(op, parameters), mask);
  std::apply(
      [&](auto&... tensors) {
        int i = 0;
        ((gradients[i++] = std::move(tensors)), ...);
      },
      result);
  if (is_shared) gradients[kResidual] = gradients[kSelf];
  if (!is_preactivation) return;
  const at::Tensor slope = std::move(gradients[kSelf]);
  gradients[kSelf] = at::Tensor();
  for (const int i : {kSelf, kBias, kResidual})
    if (needed[i] && !gradients[i].defined()) gradients[i] = slope;
  if (needed[kSelf] && inputs[kScale].defined()) gradients[kSelf] = at::mul(slope, inputs[kScale]);
}

}  // namespace

std::string fused_backward_name(const Operator& op) { return op.name + "_backward"; }
std::string fused_with_argument_name(const Operator& op) { return op.name + "_with_argument"; }

FusedArguments::FusedArguments(const Operator& op, const std::string& name, const at::Tensor& self,
                               Optional scale, Optional bias, Optional residual, Optional gate,
                               at::ArrayRef<double> numbers)
    : tensors{&self, &tensor_of(scale), &tensor_of(bias), &tensor_of(residual), &tensor_of(gate)} {
  TORCH_CHECK_VALUE(numbers.size() == op.parameters().size(), "fastact::", name, ": expected ",
                    op.parameters().size(), " parameters, but got ", numbers.size());
  std::ranges::copy(numbers, parameters.numbers.values);
}

std::span<const Operator* const> fused_operators() {
  static const auto& all = *new std::vector<const Operator*>([] {
    std::vector<const Operator*> list;
    std::ranges::copy_if(operators(), std::back_inserter(list),
                         [](const Operator* op) { return op->has_optional_inputs(); });
    return list;
  }());
  return all;
}

Descriptor fused_operator(const Activation& activation, int family) {
  const std::string name(activation.name);
  Descriptor result;
  result.name = "_fused_" + name;
  result.inputs = {"self", {"scale", true}, {"bias", true}, {"residual", true}, {"gate", true}};
  result.family = family;
  result.activation = &activation;
  result.out = "out";
  result.gradients = &gradients;
  result.compute = &compute;
  result.saving = &saving;
  const std::vector<int> of_backward = {DerivativeRule::kIncoming, kSelf};
  result.derivatives = {
      rule<kSelf>(name + "_backward", of_backward), rule<kScale>(name + "_backward", of_backward),
      rule<kBias>(name + "_backward", of_backward),
      rule<kResidual>(name + "_backward", of_backward), rule<kGate>(name, {kSelf})};
  return result;
}

}  // namespace fastact

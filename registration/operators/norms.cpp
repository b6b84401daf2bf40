// The norms of rows. The public operators rms_norm and layer_norm (composites/norms.cpp) call:
//
//   _rms_norm(self, weight, eps, dim)
//   _layer_norm(self, weight, bias, eps, dim), _layer_norm_without_bias(self, weight, eps, dim)
//   _rms_norm_backward(self, grad_output, weight, eps, dim)
//   _layer_norm_backward(self, grad_output, weight, mean, rstd, eps, dim)
//   _add_rms_norm(self, residual, weight, eps, dim), _add_layer_norm, ...: the norm of
//     self + residual, and this sum; without derivatives
//   _rms_norm_gradients, _layer_norm_gradients: the same with an output_mask. They return the
//     gradients of self, weight and bias. Those of weight and bias are float32 or float64. mean and
//     rstd must be those of self: whether they are computed again depends on the call.
//
// _layer_norm_with_statistics and _layer_norm_without_bias_with_statistics also return the mean and
// rstd, which is r of ops/forms/layer_norm.h, in float32 or float64. layer_norm calls them if a
// gradient is needed.
#include "registration/composites/norms.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "registration/operators/operator.h"

namespace fastact {
namespace {

// The forms of RmsNormForms (ops/forms/rms_norm.h) and LayerNormForms (ops/forms/layer_norm.h).
enum RmsNormForm : int { kRmsNorm, kRmsNormGradient };
enum LayerNormForm : int { kLayerNormWithoutBias, kLayerNorm, kLayerNormGradient };

constexpr Parameter kEps[] = {{.name = "eps", .default_value = std::nullopt}};
constexpr Activation kNorm = row_parameters(kEps);

Descriptor norm_operator(std::string name, std::vector<Input> inputs, const char* family,
                         int form) {
  Descriptor descriptor = row_operator(std::move(name), std::move(inputs), family, form);
  descriptor.activation = &kNorm;
  return descriptor;
}

// Returns the names of the operators that a norm's derivatives call, in the order of NormCalled.
std::vector<std::string> called_by(const std::string& family) {
  std::vector<std::string> names = {"_" + family + "_backward", "_" + family + "_gradients",
                                    "_fused_leaky_relu_backward"};
  if (family == "rms_norm") {
    names.emplace_back("_rms_norm");
  } else {
    names.emplace_back("_layer_norm_without_bias");
    names.emplace_back("_layer_norm_without_bias_with_statistics");
  }
  return names;
}

// Returns a norm with its derivatives.
Descriptor value(std::string name, std::vector<Input> inputs, const char* family, int form) {
  Descriptor norm = norm_operator(std::move(name), std::move(inputs), family, form);
  norm.caller = family;
  norm.derivatives = {DerivativeRule::compose(&norm_tangent_of_self),
                      DerivativeRule::compose(&norm_tangent_of_weight)};
  if (norm.inputs.size() == 3)
    norm.derivatives.push_back(DerivativeRule::compose(&norm_tangent_of_bias));
  norm.gradients = &norm_gradients;
  norm.called_names = called_by(family);
  return norm;
}

// Returns the norm with its statistics: mean and r.
Descriptor with_statistics(Descriptor norm) {
  norm.name += "_with_statistics";
  norm.results = 3;
  norm.out = nullptr;
  return norm;
}

// Returns the operator that adds a residual to self first.
Descriptor added(const Descriptor& norm) {
  Descriptor descriptor = norm_operator("_add" + norm.name, norm.inputs, norm.caller, norm.form);
  descriptor.inputs.insert(descriptor.inputs.begin() + 1, "residual");
  descriptor.results = 2;
  descriptor.adds_residual = true;
  descriptor.caller =
      norm.caller == std::string_view("rms_norm") ? "add_rms_norm" : "add_layer_norm";
  descriptor.out = nullptr;
  descriptor.called_names = {norm.name};
  descriptor.composition = &compose_norm_of_sum;
  return descriptor;
}

Descriptor gradient(const char* family, int form, const char* caller, std::vector<Input> inputs,
                    DerivativeRule::Composition by_self) {
  using Rule = DerivativeRule;
  constexpr int kIncoming = Rule::kIncoming;
  const std::string name = std::string("_") + family + "_backward";
  Descriptor backward = norm_operator(name, std::move(inputs), family, form);
  backward.out = "grad_input";
  backward.caller = caller;
  backward.called_names = called_by(family);
  backward.derivatives = {Rule::compose(by_self), Rule::compose(&norm_backward_by_grad),
                          Rule::compose(&norm_backward_by_weight)};
  // The derivative by self is symmetric in the incoming gradient and the tangent, so one rule
  // serves both modes.
  std::vector<int> by_grad = {0, kIncoming, 2};
  std::vector<int> by_weight = {0, 1, kIncoming};
  // The derivative by self contains that by the statistics.
  for (int i = 3; i < static_cast<int>(backward.inputs.size()); ++i) {
    by_grad.push_back(i);
    by_weight.push_back(i);
    backward.derivatives.push_back(Rule::zero());
  }
  backward.tangents = backward.derivatives;
  backward.tangents[1] = Rule::call(name, std::move(by_grad));
  backward.tangents[2] = Rule::call(name, std::move(by_weight));
  return backward;
}

// Returns the operator that computes all gradients of a norm, beside the one that computes that of
// self.
Descriptor gradients(const Descriptor& backward, const char* family, int results) {
  Descriptor all = norm_operator(std::string("_") + family + "_gradients", backward.inputs, family,
                                 backward.form);
  all.results = results;
  all.takes_output_mask = true;
  all.out = nullptr;
  all.caller = backward.caller;
  all.called_names = backward.called_names;
  all.composition = &compose_norm_gradients;
  return all;
}

}  // namespace

std::vector<Descriptor> norm_operators() {
  const Input weight = {"weight", InputKind::kBroadcast};
  const Input bias = {"bias", InputKind::kBroadcast};
  const Descriptor rms = value("_rms_norm", {"self", weight}, "rms_norm", kRmsNorm);
  const Descriptor layer = value("_layer_norm", {"self", weight, bias}, "layer_norm", kLayerNorm);
  const Descriptor unbiased =
      value("_layer_norm_without_bias", {"self", weight}, "layer_norm", kLayerNormWithoutBias);
  const Descriptor rms_gradient =
      gradient("rms_norm", kRmsNormGradient, "rms_norm_backward", {"self", "grad_output", weight},
               &norm_backward_by_self</*IsCentered=*/false>);
  const Descriptor layer_gradient = gradient(
      "layer_norm", kLayerNormGradient, "layer_norm_backward",
      {"self", "grad_output", weight, {"mean", InputKind::kPerRow}, {"rstd", InputKind::kPerRow}},
      &norm_backward_by_self</*IsCentered=*/true>);
  return {rms,
          layer,
          unbiased,
          with_statistics(layer),
          with_statistics(unbiased),
          added(rms),
          added(layer),
          added(unbiased),
          rms_gradient,
          layer_gradient,
          gradients(rms_gradient, "rms_norm", /*results=*/2),
          gradients(layer_gradient, "layer_norm", /*results=*/3)};
}

}  // namespace fastact

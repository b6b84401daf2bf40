// The norms of rows. The public operators rms_norm and layer_norm (composites/norms.cpp) call:
//
//   _rms_norm(self, weight, eps, dim)
//   _layer_norm(self, weight, bias, eps, dim), _layer_norm_without_bias(self, weight, eps, dim)
//   _rms_norm_backward(self, grad_output, weight, eps, dim), _layer_norm_backward(...)
#include "registration/composites/norms.h"

#include <string>
#include <utility>
#include <vector>

#include "registration/operators/operator.h"

namespace fastact {
namespace {

// The forms of RmsNormForms (ops/forms/rms_norm.h) and LayerNormForms (ops/forms/layer_norm.h).
enum RmsNormForm : int { kRmsNorm, kRmsNormGradient };
enum LayerNormForm : int { kLayerNormWithoutBias, kLayerNorm, kLayerNormGradient };

constexpr Parameter kEps[] = {{.name = "eps", .default_value = std::nullopt}};
constexpr Activation kNorm = {.name = "norm",
                              .parameters = kEps,
                              .traits = {},
                              .requirements = {},
                              .result_suffices = nullptr};

Descriptor norm_operator(std::string name, std::vector<Input> inputs, const char* family,
                         int form) {
  Descriptor descriptor;
  descriptor.name = std::move(name);
  descriptor.inputs = std::move(inputs);
  descriptor.has_rows = true;
  descriptor.family = row_family_index(family);
  descriptor.form = form;
  descriptor.activation = &kNorm;
  return descriptor;
}

// Returns a norm with its derivatives. `without_bias` names the operator without a bias; for a norm
// that has none, that is the norm itself.
Descriptor value(std::string name, std::vector<Input> inputs, const char* family, int form,
                 const std::string& backward, const std::string& without_bias) {
  Descriptor norm = norm_operator(std::move(name), std::move(inputs), family, form);
  norm.out = "out";
  norm.derivatives = {DerivativeRule::compose(&norm_tangent_of_self),
                      DerivativeRule::compose(&norm_tangent_of_weight)};
  // The incoming gradient itself. norm_gradients() reads the shape of the bias.
  if (norm.inputs.size() == 3)
    norm.derivatives.push_back(DerivativeRule::call("", {DerivativeRule::kIncoming, 2}));
  norm.gradients = &norm_gradients;
  norm.called_names = {backward, without_bias, "_fused_leaky_relu_backward"};
  return norm;
}

Descriptor gradient(const std::string& name, const char* family, int form, const char* caller,
                    DerivativeRule::Composition by_self) {
  using Rule = DerivativeRule;
  constexpr int kIncoming = Rule::kIncoming;
  Descriptor backward =
      norm_operator(name, {"self", "grad_output", {"weight", InputKind::kBroadcast}}, family, form);
  backward.out = "grad_input";
  backward.caller = caller;
  backward.called_names = {name};
  backward.derivatives = {Rule::compose(by_self), Rule::compose(&norm_backward_by_grad),
                          Rule::compose(&norm_backward_by_weight)};
  // The derivative by self is symmetric in the incoming gradient and the tangent, so one rule
  // serves both modes.
  backward.tangents = {Rule::compose(by_self), Rule::call(name, {0, kIncoming, 2}),
                       Rule::call(name, {0, 1, kIncoming})};
  return backward;
}

}  // namespace

std::vector<Descriptor> norm_operators() {
  constexpr auto kBroadcast = InputKind::kBroadcast;
  const std::string rms_backward = "_rms_norm_backward";
  const std::string layer_backward = "_layer_norm_backward";
  const std::string without_bias = "_layer_norm_without_bias";
  const char* const rms = "rms_norm";
  const char* const layer = "layer_norm";
  Descriptor unbiased = value(without_bias, {"self", {"weight", kBroadcast}}, layer,
                              kLayerNormWithoutBias, layer_backward, without_bias);
  unbiased.caller = layer;
  return {value("_rms_norm", {"self", {"weight", kBroadcast}}, rms, kRmsNorm, rms_backward,
                "_rms_norm"),
          value("_layer_norm", {"self", {"weight", kBroadcast}, {"bias", kBroadcast}}, layer,
                kLayerNorm, layer_backward, without_bias),
          std::move(unbiased),
          gradient(rms_backward, rms, kRmsNormGradient, "rms_norm_backward",
                   &norm_backward_by_self</*IsCentered=*/false>),
          gradient(layer_backward, layer, kLayerNormGradient, "layer_norm_backward",
                   &norm_backward_by_self</*IsCentered=*/true>)};
}

}  // namespace fastact

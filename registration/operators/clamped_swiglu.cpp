// The elementwise _clamped_swiglu and its gradients.
#include "registration/operators/clamped_swiglu.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

#include "registration/checks.h"
#include "registration/composites/clamped_swiglu.h"

namespace fastact {
namespace {

constexpr Parameter kSwigluParameters[] = {{.name = "limit", .default_value = 7.0},
                                           {.name = "alpha", .default_value = 1.702}};
constexpr Requirement kSwigluRequirements[] = {
    {.parameter = 0,
     .expected = "above 0",
     .holds = [](const double* parameters) { return parameters[0] > 0; }},
    {.parameter = 1, .expected = "from 0.5 to 1024", .holds = [](const double* parameters) {
       return parameters[1] >= 0.5 && parameters[1] <= 1024;
     }}};
constexpr Activation kSwiglu = {.name = "clamped_swiglu",
                                .parameters = kSwigluParameters,
                                .traits = {},
                                .requirements = kSwigluRequirements,
                                .result_suffices = nullptr};

// The function for Descriptor::gradients.
void swiglu_gradients(const Operator& op, const CallParameters& parameters,
                      const at::Tensor& incoming, const SavedInputs& saved,
                      const std::vector<bool>& needed, at::Tensor* gradients) {
  const at::Tensor* const inputs = saved.tensors;
  const bool has_kernel = !at::GradMode::is_enabled() && is_plain(incoming) &&
                          is_plain(inputs[kGatePart]) && is_plain(inputs[kLinearPart]);
  if (has_kernel && needed[kGatePart] && needed[kLinearPart]) {
    const at::Tensor* const tensors[] = {&incoming, &inputs[kGatePart], &inputs[kLinearPart]};
    op.called.front()->several(nullptr, tensors, parameters, gradients);
    return;
  }
  if (needed[kGatePart])
    gradients[kGatePart] = clamped_swiglu_derivative_by_gate(op, parameters, incoming, inputs);
  if (needed[kLinearPart])
    gradients[kLinearPart] = clamped_swiglu_derivative_by_linear(op, parameters, incoming, inputs);
}

Descriptor swiglu_operator(const char* name, std::vector<Input> inputs, int family, int form) {
  Descriptor descriptor;
  descriptor.name = name;
  descriptor.inputs = std::move(inputs);
  descriptor.family = family;
  descriptor.form = form;
  descriptor.activation = &kSwiglu;
  return descriptor;
}

}  // namespace

std::vector<Descriptor> clamped_swiglu_operators(int family) {
  Descriptor value = swiglu_operator("_clamped_swiglu", {"gate", "linear"}, family, 0);
  value.out = "out";
  value.derivatives = {DerivativeRule::compose(&clamped_swiglu_derivative_by_gate),
                       DerivativeRule::compose(&clamped_swiglu_derivative_by_linear)};
  value.gradients = &swiglu_gradients;
  Descriptor backward =
      swiglu_operator("_clamped_swiglu_backward", {"grad_output", "gate", "linear"}, family, 1);
  backward.results = 2;
  backward.composition = &compose_clamped_swiglu_backward;
  value.called_names = {backward.name};
  return {std::move(value), std::move(backward)};
}

}  // namespace fastact

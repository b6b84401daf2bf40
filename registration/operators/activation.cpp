// The operators of an activation.
#include <algorithm>
#include <iterator>

#include "ops/forms/derivative.h"
#include "registration/composites/higher_orders.h"
#include "registration/operators/operator.h"

namespace fastact {
namespace {

// As in ATen's threshold_backward() and leaky_relu_backward(), and in the operators that compose
// squared_relu.
constexpr std::string_view kInputLeads[] = {"relu", "leaky_relu", "threshold", "squared_relu"};

Descriptor derivative(const Activation& activation, int family, int order) {
  constexpr const char* kSuffixes[] = {"", "_backward", "_double_backward", "_triple_backward"};
  constexpr const char* kGradients[] = {"grad_grad_grad", "grad_grad_input", "grad_output"};
  const Traits& traits = activation.traits;
  const auto name_of = [&](int k) { return std::string(activation.name) + kSuffixes[k]; };

  Descriptor result;
  result.name = name_of(order);
  result.inputs.assign(std::end(kGradients) - order, std::end(kGradients));
  result.inputs.emplace_back(order > 0 && traits.saves == Saves::kOutput ? "output" : "self");
  result.family = family;
  result.form = derivative_form(order, false);
  if (order > 0 && traits.gradient_from_result)
    result.form_from_result = derivative_form(order, true);
  result.activation = &activation;
  result.has_in_place = order == 0;
  result.out = order == 0 ? "out" : order == 1 ? "grad_input" : nullptr;
  result.last_input_leads =
      std::ranges::find(kInputLeads, activation.name) != std::end(kInputLeads);
  result.is_value = order == 0;

  std::vector<int> positions;
  for (int i = 0; i <= order; ++i) positions.push_back(i);
  for (int i = 0; i < order; ++i) {
    std::vector<int> replaced = positions;
    replaced[i] = DerivativeRule::kIncoming;
    result.derivatives.push_back(DerivativeRule::call(result.name, replaced));
  }
  if (order == kTopOrder) {
    result.derivatives.push_back(DerivativeRule::compose(&fourth_order));
  } else {
    positions.insert(positions.begin(), DerivativeRule::kIncoming);
    result.derivatives.push_back(DerivativeRule::call(name_of(order + 1), positions));
  }
  return result;
}

}  // namespace

std::vector<Descriptor> activation_operators(const Activation& activation, int family) {
  std::vector<Descriptor> operators;
  for (int order = 0; order <= kTopOrder; ++order)
    operators.push_back(derivative(activation, family, order));
  return operators;
}

}  // namespace fastact

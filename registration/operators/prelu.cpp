// The elementwise operators of PReLU.
#include <utility>
#include <vector>

#include "registration/operators/operator.h"

namespace fastact {

// Returns PReLU's elementwise operators: the value for a weight of self's shape, and the
// derivatives. prelu itself broadcasts its weight and calls them.
std::vector<Descriptor> prelu_operators(int family) {
  using Rule = DerivativeRule;
  constexpr int kIncoming = Rule::kIncoming;
  const auto op = [&](const char* name, std::vector<Input> inputs, int form,
                      std::vector<Rule> derivatives) {
    Descriptor descriptor;
    descriptor.name = name;
    descriptor.inputs = std::move(inputs);
    descriptor.family = family;
    descriptor.form = form;
    descriptor.last_input_leads = true;
    descriptor.derivatives = std::move(derivatives);
    return descriptor;
  };
  return {
      op("_prelu", {"weight", "self"}, 0,
         {Rule::call("_prelu_weight_backward", {kIncoming, 1}),
          Rule::call("_prelu_backward", {kIncoming, 0, 1})}),
      op("_prelu_backward", {"grad_output", "weight", "self"}, 1,
         {Rule::call("_prelu_backward", {kIncoming, 1, 2}),
          Rule::call("_prelu_weight_double_backward", {0, kIncoming, 2}), Rule::zero()}),
      op("_prelu_weight_backward", {"grad_output", "self"}, 2,
         {Rule::call("_prelu_weight_backward", {kIncoming, 1}),
          Rule::call("_prelu_weight_double_backward", {kIncoming, 0, 1})}),
      op("_prelu_weight_double_backward", {"grad_grad_input", "grad_output", "self"}, 3,
         {Rule::call("_prelu_weight_double_backward", {kIncoming, 1, 2}),
          Rule::call("_prelu_weight_double_backward", {0, kIncoming, 2}), Rule::zero()}),
  };
}

}  // namespace fastact

// relu_sum and selu_sum: f(self) + other.
#include "registration/operators/operator.h"

namespace fastact {

std::vector<Descriptor> activation_sum_operators(int family) {
  using Rule = DerivativeRule;
  const auto op = [&](const char* name, int form, const char* backward) {
    Descriptor descriptor;
    descriptor.name = name;
    descriptor.inputs = {"self", "other"};
    descriptor.family = family;
    descriptor.form = form;
    descriptor.out = "out";
    descriptor.derivatives = {Rule::call(backward, {Rule::kIncoming, 0}), Rule::identity()};
    return descriptor;
  };
  return {op("relu_sum", 0, "relu_backward"), op("selu_sum", 1, "selu_backward")};
}

}  // namespace fastact

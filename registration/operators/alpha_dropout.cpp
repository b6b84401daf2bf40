#include "registration/operators/alpha_dropout.h"

#include <utility>
#include <vector>

#include "registration/device_kernels.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

// The parameters of the operators.
constexpr Parameter kProbability[] = {{.name = "p"}};
constexpr Activation kDropout = {.name = "alpha_dropout",
                                 .parameters = kProbability,
                                 .traits = {},
                                 .requirements = {},
                                 .result_suffices = nullptr};

Descriptor described(const char* name, std::vector<Input> inputs, int index) {
  Descriptor descriptor;
  descriptor.name = name;
  descriptor.inputs = std::move(inputs);
  descriptor.form = index;
  descriptor.activation = &kDropout;
  return descriptor;
}

DerivativeRule rule(const Operator& op, std::vector<int> arguments) {
  DerivativeRule result = DerivativeRule::call(op.name, std::move(arguments));
  result.op = &op;
  return result;
}

struct Operators {
  using OfTwo = TypedOperator<Signature<2, 1, false>>;
  using OfThree = TypedOperator<Signature<3, 1, false>>;

  Operators() {
    constexpr int kIncoming = DerivativeRule::kIncoming;
    value.derivatives = {rule(backward, {kIncoming, 0, 1}), DerivativeRule::zero()};
    backward.derivatives = {rule(backward, {kIncoming, 1, 2}),
                            DerivativeRule::compose(&second_derivative), DerivativeRule::zero()};
    mask.derivatives = {rule(mask, {kIncoming, 1, 2}), DerivativeRule::zero(),
                        DerivativeRule::zero()};
  }

  static const Operators& all() {
    static const Operators& operators = *new Operators();
    return operators;
  }

  // The derivative of the gradient by self.
  static at::Tensor second_derivative(const Operator& /*op*/, const CallParameters& parameters,
                                      const at::Tensor& incoming, const at::Tensor* inputs) {
    static const Operator& selu_double_backward = operator_named("selu_double_backward");
    const at::Tensor* const tensors[] = {&inputs[0], &inputs[1], &inputs[2]};
    const at::Tensor kept = all().mask.call(tensors, parameters);
    const at::Tensor* const arguments[] = {&incoming, &kept, &inputs[1]};
    return selu_double_backward.call(arguments, {});
  }

  OfTwo value{described("_selu_alpha_dropout", {"self", "seed"},
                        static_cast<int>(AlphaDropoutForm::kValue))};
  OfThree backward{described("_selu_alpha_dropout_backward", {"grad_output", "self", "seed"},
                             static_cast<int>(AlphaDropoutForm::kGradient))};
  OfThree mask{described("_alpha_dropout_mask", {"grad_output", "self", "seed"},
                         static_cast<int>(AlphaDropoutForm::kMask))};
};

}  // namespace

std::span<const Operator* const> alpha_dropout_operators() {
  // The operator is absent in a build without selu, and in an incompatible torch.
  if (find_operator("selu") == nullptr) return {};
  const Operators& all = Operators::all();
  static const Operator* const list[] = {&all.value, &all.backward, &all.mask};
  return list;
}

AlphaDropoutForm alpha_dropout_form(const Operator& op) {
  return static_cast<AlphaDropoutForm>(op.form);
}

}  // namespace fastact

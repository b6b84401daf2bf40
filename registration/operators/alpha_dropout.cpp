// The operators of SELU with alpha dropout (ops/forms/alpha_dropout.h), which selu_alpha_dropout
// calls with a seed:
//
//   _selu_alpha_dropout(self, seed, p)
//   _selu_alpha_dropout_backward(grad_output, self, seed, p)
//   _alpha_dropout_mask(grad_output, self, seed, p): the linear part, a * grad_output for a kept
//     element and 0 for a dropped one, in the layout of self
//
// `seed` is an int64 tensor of one element. A build without selu has none of them.

#include <string>
#include <utility>
#include <vector>

#include "registration/operators/operator.h"
#include "registration/operators/seeded.h"

namespace fastact {
namespace {

// The parameters of the operators.
constexpr Parameter kProbability[] = {{.name = "p"}};
constexpr Requirement kBetween0And1[] = {
    {.parameter = 0,
     .expected = "between 0 and 1",
     .holds = [](const double* parameters) { return parameters[0] > 0 && parameters[0] < 1; },
     .is_value_error = true}};
constexpr Activation kDropout = {.name = "alpha_dropout",
                                 .parameters = kProbability,
                                 .traits = {},
                                 .requirements = kBetween0And1,
                                 .result_suffices = nullptr};

// The derivative of the gradient by self.
at::Tensor second_derivative(const Operator& op, const CallParameters& parameters,
                             const at::Tensor& incoming, const at::Tensor* inputs) {
  const at::Tensor* const tensors[] = {&inputs[0], &inputs[1], &inputs[2]};
  const at::Tensor kept = op.called[0]->call(tensors, parameters);
  const at::Tensor* const arguments[] = {&incoming, &kept, &inputs[1]};
  return op.called[1]->call(arguments, {});
}

}  // namespace

std::vector<Descriptor> alpha_dropout_operators(int family) {
  if (family_index("selu") < 0) return {};  // a build without selu
  using Rule = DerivativeRule;
  constexpr int kIncoming = Rule::kIncoming;
  const std::string of_backward = "_selu_alpha_dropout_backward";
  const std::string of_mask = "_alpha_dropout_mask";
  Descriptor value = seeded_descriptor("_selu_alpha_dropout", {"self"}, family, 0, kDropout);
  value.derivatives = {Rule::call(of_backward, {kIncoming, 0, 1}), Rule::zero()};
  Descriptor backward =
      seeded_descriptor(of_backward.c_str(), {"grad_output", "self"}, family, 1, kDropout);
  backward.derivatives = {Rule::call(of_backward, {kIncoming, 1, 2}),
                          Rule::compose(&second_derivative), Rule::zero()};
  backward.called_names = {of_mask, "selu_double_backward"};
  Descriptor mask =
      seeded_descriptor(of_mask.c_str(), {"grad_output", "self"}, family, 2, kDropout);
  mask.derivatives = {Rule::call(of_mask, {kIncoming, 1, 2}), Rule::zero(), Rule::zero()};
  return {std::move(value), std::move(backward), std::move(mask)};
}

}  // namespace fastact

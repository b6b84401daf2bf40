// The operators of the randomized leaky ReLU (ops/forms/rrelu.h), which rrelu calls with a seed:
//
//   _rrelu(self, seed, lower, upper)
//   _rrelu_backward(grad_output, self, seed, lower, upper)
//
// `seed` is an int64 tensor of one element.

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "registration/operators/operator.h"
#include "registration/operators/seeded.h"

namespace fastact {
namespace {

constexpr Parameter kBounds[] = {{.name = "lower"}, {.name = "upper"}};
constexpr Requirement kOrdered[] = {{.parameter = 1,
                                     .expected = "finite and at least lower, which must be finite",
                                     .holds =
                                         [](const double* parameters) {
                                           return parameters[0] <= parameters[1] &&
                                                  std::isfinite(parameters[1] - parameters[0]);
                                         },
                                     .is_value_error = true}};
constexpr Activation kRrelu = {.name = "rrelu",
                               .parameters = kBounds,
                               .traits = {},
                               .requirements = kOrdered,
                               .result_suffices = nullptr};

}  // namespace

std::vector<Descriptor> rrelu_operators(int family) {
  using Rule = DerivativeRule;
  constexpr int kIncoming = Rule::kIncoming;
  const std::string of_backward = "_rrelu_backward";
  Descriptor value = seeded_descriptor("_rrelu", {"self"}, family, 0, kRrelu);
  value.derivatives = {Rule::call(of_backward, {kIncoming, 0, 1}), Rule::zero()};
  Descriptor backward =
      seeded_descriptor(of_backward.c_str(), {"grad_output", "self"}, family, 1, kRrelu);
  backward.derivatives = {Rule::call(of_backward, {kIncoming, 1, 2}), Rule::zero(), Rule::zero()};
  return {std::move(value), std::move(backward)};
}

}  // namespace fastact

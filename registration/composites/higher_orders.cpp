#include "registration/composites/higher_orders.h"

#include <ATen/Functions.h>  // all of them, because the formulas choose
#include <ATen/TensorOperators.h>

#include "ops/generated/families.h"
#include "registration/checks.h"

namespace fastact {
namespace {

// f'''' at x. Null if f''' is zero or if x is the result of f.
using FourthDerivative = at::Tensor (*)(const double* parameters, const at::Tensor& x);

template <class A>
constexpr FourthDerivative fourth_derivative_of() {
  if constexpr (HasFourthDerivative<A, at::Tensor>) {
    return [](const double* parameters, const at::Tensor& x) -> at::Tensor {
      return A(parameters).fourth_derivative(x);
    };
  } else {
    return nullptr;
  }
}

// In the order of activations().
#define FASTACT_FOURTH(name, A) fourth_derivative_of<A>(),
constexpr FourthDerivative kFourthDerivatives[] = {FASTACT_ACTIVATIONS(FASTACT_FOURTH)};
#undef FASTACT_FOURTH

}  // namespace

at::Tensor fourth_order(const Operator& op, const CallParameters& parameters,
                        const at::Tensor& incoming, const at::Tensor* inputs) {
  // d''' is zero, see ops/activations/activation.h.
  if (parameters.from_result || op.activation->traits.saves == Saves::kOutput) return {};
  const FourthDerivative derivative = kFourthDerivatives[op.family];
  if (derivative == nullptr) {
    // f'''' equals f''' here: zero, and NaN for NaN.
    const at::Tensor product = at::mul(incoming, inputs[0]);
    const at::Tensor* arguments[] = {&product, &inputs[1], &inputs[2], &inputs[3]};
    return op.call(arguments, parameters);
  }
  const at::Tensor* operands[kTopOrder + 2] = {&incoming};
  for (int i = 0; i <= kTopOrder; ++i) operands[i + 1] = &inputs[i];
  // Computes in double, as do the derivatives that follow, so the result is rounded once in every
  // order.
  at::Tensor product = incoming.to(at::kDouble);
  for (int i = 0; i < kTopOrder; ++i) product = product * inputs[i].to(at::kDouble);
  const at::Tensor x = inputs[kTopOrder].to(at::kDouble);
  const at::Tensor result = product * derivative(parameters.numbers.values, x);
  return result.to(promoted_type(operands));
}

}  // namespace fastact

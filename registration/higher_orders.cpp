#include "registration/higher_orders.h"

#include <ATen/Functions.h>  // all of them: formulas choose
#include <ATen/TensorOperators.h>

#include "ops/generated/formulas.h"
#include "registration/checks.h"

namespace fastact {
namespace {

// f'''' at x; none where f''' is zero, or x is f's result.
using FourthDerivative = at::Tensor (*)(const double* parameters, const at::Tensor& x);

template <class Formula>
constexpr FourthDerivative fourth_derivative_of() {
  if constexpr (requires(const Formula formula, const at::Tensor x) {
                  formula.fourth_derivative(x);
                }) {
    return [](const double* parameters, const at::Tensor& x) -> at::Tensor {
      return Formula(parameters).fourth_derivative(x);
    };
  } else {
    return nullptr;
  }
}

#define FASTACT_FOURTH(name, Formula, parameters) fourth_derivative_of<Formula>(),
constexpr FourthDerivative kFourthDerivatives[] = {FASTACT_FORMULAS(FASTACT_FOURTH)};
#undef FASTACT_FOURTH

}  // namespace

at::Tensor fourth_order(const Family& family, const CallParameters& parameters,
                        const at::Tensor& incoming, const at::Tensor* tensors) {
  // d''' is zero, see formula.h.
  if (parameters.from_result || family.traits().saves == Saves::kOutput) return {};
  const FourthDerivative derivative = kFourthDerivatives[family.index()];
  if (derivative == nullptr) {
    // f'''' is what f''' is: zero, and NaN of NaN.
    const at::Tensor product = at::mul(incoming, tensors[0]);
    const at::Tensor* arguments[] = {&product, &tensors[1], &tensors[2], &tensors[3]};
    return family.call(kTopOrder, arguments, parameters);
  }
  const at::Tensor* operands[kTopOrder + 2] = {&incoming};
  for (int i = 0; i <= kTopOrder; ++i) operands[i + 1] = &tensors[i];
  // In double, and so are the derivatives that follow: in every order the result is rounded once.
  at::Tensor product = incoming.to(at::kDouble);
  for (int i = 0; i < kTopOrder; ++i) product = product * tensors[i].to(at::kDouble);
  const at::Tensor x = tensors[kTopOrder].to(at::kDouble);
  const at::Tensor result = product * derivative(parameters.numbers.values, x);
  return result.to(promoted_type(kTopOrder + 1, operands));
}

}  // namespace fastact

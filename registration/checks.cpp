#include "registration/checks.h"

#include <ATen/native/TypeProperties.h>

#include <string>

namespace fastact {
namespace {

// The name of the parameter at `position` of "float alpha=1.0, float scale=1.0".
std::string parameter_name(std::string_view parameters, int position) {
  size_t start = 0;
  for (int i = 0; i < position; ++i) start = parameters.find(',', start) + 2;
  start = parameters.find(' ', start) + 1;
  return std::string(parameters.substr(start, parameters.find_first_of("=,", start) - start));
}

void check_parameters(const Family& family, int order, const CallParameters& parameters) {
  const Activation& activation = family.activation();
  const double* values = parameters.numbers.values;
  for (const Requirement& requirement : activation.requirements) {
    if (requirement.holds(values)) continue;
    const std::string message =
        c10::str("fastact::", operator_name(activation, order), ": expected ",
                 parameter_name(activation.parameters, requirement.parameter), " to be ",
                 requirement.expected, ", but got ", values[requirement.parameter]);
    TORCH_CHECK_VALUE(!requirement.is_value_error, message);
    TORCH_CHECK(false, message);
  }
  TORCH_CHECK(!parameters.from_result || activation.result_suffices(values),
              "fastact::", operator_name(activation, order),
              ": expected is_result to be False with these parameters, with which the result does "
              "not tell the gradient, but got True");
}

}  // namespace

std::optional<DType> engine_type(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return DType::kFloat32;
    case c10::ScalarType::Double:
      return DType::kFloat64;
    case c10::ScalarType::BFloat16:
      return DType::kBFloat16;
    case c10::ScalarType::Half:
      return DType::kFloat16;
    default:
      return std::nullopt;
  }
}

void check_inputs(const Family& family, int order, TensorPointers tensors,
                  const CallParameters& parameters) {
  const at::Tensor& self = *tensors[order];
  for (int i = 0; i <= order; ++i) {
    const at::Tensor& tensor = *tensors[i];
    TORCH_CHECK_NOT_IMPLEMENTED(engine_type(tensor.scalar_type()).has_value(),
                                "fastact::", operator_name(family.activation(), order),
                                ": expected ", tensor_name(family.activation(), order, i),
                                " to be float32, float64, bfloat16 or float16, but got ",
                                tensor.scalar_type());
    TORCH_CHECK(tensor.device() == self.device(),
                "fastact::", operator_name(family.activation(), order),
                ": expected all tensors to be on the same device, but got ",
                tensor_name(family.activation(), order, i), " on ", tensor.device(), " and ",
                tensor_name(family.activation(), order, order), " on ", self.device());
  }
  check_parameters(family, order, parameters);
}

void check_out(const Family& family, int order, TensorPointers tensors, c10::ScalarType result,
               const at::Tensor& out) {
  const at::Tensor& self = *tensors[order];
  TORCH_CHECK(out.device() == self.device(), "fastact::", operator_name(family.activation(), order),
              ": expected ", out_overload(order), " to be on ", self.device(), ", but got ",
              out.device());
  TORCH_CHECK(c10::canCast(result, out.scalar_type()),
              "fastact::", operator_name(family.activation(), order), ": expected ",
              out_overload(order), " to be of a type that result type ", result,
              " can be cast to, but got ", out.scalar_type());
}

c10::ScalarType promoted_type(int order, TensorPointers tensors) {
  at::native::ResultTypeState state = {};
  for (int i = 0; i <= order; ++i) state = at::native::update_result_type_state(*tensors[i], state);
  return at::native::result_type(state);
}

Promoted::Promoted(int order, TensorPointers tensors) {
  const c10::ScalarType type = promoted_type(order, tensors);
  for (int i = 0; i <= order; ++i) {
    converted_[i] = tensors[i]->to(type);
    pointers_[i] = &converted_[i];
  }
}

}  // namespace fastact

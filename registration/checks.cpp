#include "registration/checks.h"

#include <ATen/native/TypeProperties.h>

#include <string>

namespace fastact {
namespace {

// The schema's name of the tensor at `position`.
std::string argument_name(int order, int position) {
  return position == order ? "self" : gradient_names(order)[position];
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

void check_inputs(const Family& family, int order, TensorPointers tensors) {
  const at::Tensor& self = *tensors[order];
  for (int i = 0; i <= order; ++i) {
    const at::Tensor& tensor = *tensors[i];
    TORCH_CHECK_NOT_IMPLEMENTED(engine_type(tensor.scalar_type()).has_value(),
                                "fastact::", operator_name(family.activation().name, order),
                                ": expected ", argument_name(order, i),
                                " to be float32, float64, bfloat16 or float16, but got ",
                                tensor.scalar_type());
    TORCH_CHECK(tensor.device() == self.device(),
                "fastact::", operator_name(family.activation().name, order),
                ": expected all tensors to be on the same device, but got ",
                argument_name(order, i), " on ", tensor.device(), " and self on ", self.device());
  }
}

void check_out(const Family& family, int order, TensorPointers tensors, c10::ScalarType result,
               const at::Tensor& out) {
  const at::Tensor& self = *tensors[order];
  TORCH_CHECK(out.device() == self.device(),
              "fastact::", operator_name(family.activation().name, order), ": expected ",
              out_overload(order), " to be on ", self.device(), ", but got ", out.device());
  TORCH_CHECK(c10::canCast(result, out.scalar_type()),
              "fastact::", operator_name(family.activation().name, order), ": expected ",
              out_overload(order), " to be of a type that result type ", result,
              " can be cast to, but got ", out.scalar_type());
}

c10::ScalarType promoted_type(int order, TensorPointers tensors) {
  at::native::ResultTypeState state = {};
  for (int i = 0; i <= order; ++i) state = at::native::update_result_type_state(*tensors[i], state);
  return at::native::result_type(state);
}

}  // namespace fastact

#include "registration/checks.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "registration/conversion.h"
#include "registration/row_vectors.h"

namespace fastact {
namespace {

void check_parameters(const Operator& op, const CallParameters& parameters) {
  if (op.activation == nullptr) return;
  const double* values = parameters.numbers.values;
  for (const Requirement& requirement : op.activation->requirements) {
    if (requirement.holds(values)) continue;
    const std::string message =
        c10::str("fastact::", op.name, ": expected ", op.parameters()[requirement.parameter].name,
                 " to be ", requirement.expected, ", but got ", values[requirement.parameter]);
    TORCH_CHECK_VALUE(!requirement.is_value_error, message);
    TORCH_CHECK(false, message);
  }
  TORCH_CHECK(!parameters.from_result || op.activation->result_suffices(values),
              "fastact::", op.name,
              ": expected is_result to be False with these parameters, because the result does not "
              "determine the gradient, but got True");
}

void check_per_row(const Operator& op, const Input& input, const at::Tensor& tensor,
                   const at::Tensor& self, int64_t dim) {
  const char* const name = input.name;
  const c10::ScalarType type =
      input.kind == InputKind::kIndexInRow ? at::kLong : type_of_statistics(self.scalar_type());
  TORCH_CHECK(tensor.scalar_type() == type, "fastact::", op.public_name(), ": expected ", name,
              " to be ", type, ", but got ", tensor.scalar_type());
  const c10::SymDimVector shape = shape_of_statistics(self.sym_sizes(), dim);
  TORCH_CHECK(tensor.sym_sizes() == c10::SymIntArrayRef(shape), "fastact::", op.public_name(),
              ": expected ", name, " to have the shape ", c10::SymIntArrayRef(shape), ", but got ",
              tensor.sym_sizes());
}

}  // namespace

c10::ScalarType type_of_statistics(c10::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

c10::SymDimVector shape_of_statistics(c10::SymIntArrayRef shape, int64_t dim) {
  c10::SymDimVector result(shape);
  if (!result.empty()) result[static_cast<size_t>(dim)] = 1;
  return result;
}

c10::ScalarType row_result_type(const Operator& op, c10::ScalarType type) {
  return op.row_result == RowResult::kRow ? type : number_type(op, type);
}

c10::ScalarType number_type(const Operator& op, c10::ScalarType type) {
  return op.row_result == RowResult::kNumber ? type : type_of_statistics(type);
}

c10::SymDimVector row_result_shape(const Operator& op, c10::SymIntArrayRef shape, int64_t dim) {
  return op.row_result == RowResult::kRow ? c10::SymDimVector(shape)
                                          : shape_of_statistics(shape, dim);
}

void check_inputs(const Operator& op, TensorPointers tensors, const CallParameters& parameters) {
  const int last = op.last_input();
  const at::Tensor& self = *tensors[last];
  for (int i = 0; i < op.num_inputs(); ++i) {
    if (op.inputs[i].kind == InputKind::kSeed) continue;
    const at::Tensor& tensor = *tensors[i];
    TORCH_CHECK_NOT_IMPLEMENTED(engine_type(tensor.scalar_type()).has_value() ||
                                    op.inputs[i].kind == InputKind::kIndexInRow,
                                "fastact::", op.public_name(), ": expected ", op.inputs[i].name,
                                " to be float32, float64, bfloat16 or float16, but got ",
                                tensor.scalar_type());
    TORCH_CHECK(tensor.device() == self.device(), "fastact::", op.public_name(),
                ": expected all tensors to be on the same device, but got ", op.inputs[i].name,
                " on ", tensor.device(), " and ", op.inputs[last].name, " on ", self.device());
  }
  check_parameters(op, parameters);
}

int64_t row_dimension(const Operator& op, int64_t dim, int64_t rank) {
  const int64_t size = rank == 0 ? 1 : rank;
  TORCH_CHECK_INDEX(-size <= dim && dim < size, "fastact::", op.public_name(),
                    ": expected dim to be from ", -size, " to ", size - 1, ", but got ", dim);
  return dim < 0 ? dim + size : dim;
}

int64_t check_rows(const Operator& op, TensorPointers tensors, const CallParameters& parameters) {
  check_inputs(op, tensors, parameters);
  const int last = op.last_input();
  const at::Tensor& self = *tensors[last];
  const int64_t dim = row_dimension(op, parameters.dim, self.dim());
  for (int i = 0; i < op.num_inputs(); ++i) {
    if (op.inputs[i].is_per_row()) {
      check_per_row(op, op.inputs[i], *tensors[i], self, dim);
      continue;
    }
    TORCH_CHECK(tensors[i]->scalar_type() == self.scalar_type(), "fastact::", op.public_name(),
                ": expected ", op.inputs[i].name, " to have the type of ", op.inputs[last].name,
                ", ", self.scalar_type(), ", but got ", tensors[i]->scalar_type());
    if (op.inputs[i].kind == InputKind::kBroadcast) {
      TORCH_CHECK(broadcasts_to_rows(*tensors[i], self, dim), "fastact::", op.public_name(),
                  ": expected ", op.inputs[i].name, " to broadcast to the shape of ",
                  op.inputs[last].name, ", ", self.sym_sizes(), ", but got ",
                  tensors[i]->sym_sizes());
      continue;
    }
    TORCH_CHECK(tensors[i]->sym_sizes() == self.sym_sizes(), "fastact::", op.public_name(),
                ": expected ", op.inputs[i].name, " to have the shape of ", op.inputs[last].name,
                ", ", self.sym_sizes(), ", but got ", tensors[i]->sym_sizes());
  }
  return dim;
}

void check_fused(const Operator& op, TensorPointers tensors, const CallParameters& parameters) {
  const at::Tensor& self = *tensors[0];
  const auto name = std::string_view(op.name).substr(1);  // the user calls fused_<activation>
  const std::optional<DType> type = engine_type(self.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(
      type.has_value(), "fastact::", name,
      ": expected self to be float32, float64, bfloat16 or float16, but got ", self.scalar_type());
  const bool takes_float = *type == DType::kBFloat16 || *type == DType::kFloat16;
  for (int i = 1; i < kFusedInputs; ++i) {
    const at::Tensor& tensor = *tensors[i];
    if (!tensor.defined()) continue;
    const auto input = static_cast<FusedInput>(i);
    const bool may_be_float =
        takes_float && (input == FusedInput::kScale || input == FusedInput::kBias);
    TORCH_CHECK(tensor.scalar_type() == self.scalar_type() ||
                    (may_be_float && tensor.scalar_type() == c10::ScalarType::Float),
                "fastact::", name, ": expected ", op.inputs[i].name, " to have self's type ",
                self.scalar_type(), may_be_float ? " or to be Float" : "", ", but got ",
                tensor.scalar_type());
    TORCH_CHECK(tensor.device() == self.device(), "fastact::", name,
                ": expected all tensors to be on the same device, but got ", op.inputs[i].name,
                " on ", tensor.device(), " and self on ", self.device());
  }
  check_parameters(op, parameters);
}

void check_out(const Operator& op, TensorPointers tensors, c10::ScalarType result,
               const at::Tensor& out) {
  const at::Tensor& self = *tensors[op.last_input()];
  TORCH_CHECK(out.device() == self.device(), "fastact::", op.public_name(), ": expected ", op.out,
              " to be on ", self.device(), ", but got ", out.device());
  TORCH_CHECK(c10::canCast(result, out.scalar_type()), "fastact::", op.public_name(), ": expected ",
              op.out, " to be of a type that result type ", result, " can be cast to, but got ",
              out.scalar_type());
}

bool requires_grad_of_any(const Operator& op, TensorPointers tensors) {
  return at::GradMode::is_enabled() &&
         std::any_of(tensors, tensors + op.num_inputs(),
                     [](const at::Tensor* tensor) { return tensor->requires_grad(); });
}

void check_no_gradient(const Operator& op, TensorPointers tensors, const at::Tensor& out) {
  TORCH_CHECK(
      !requires_grad_of_any(op, tensors) && !(at::GradMode::is_enabled() && out.requires_grad()),
      "fastact::", op.public_name(),
      ": expected no tensor that requires a gradient with out=, but got one");
}

c10::ScalarType promoted_type(std::span<const at::Tensor* const> tensors) {
  at::native::ResultTypeState state = {};
  for (const at::Tensor* tensor : tensors)
    state = at::native::update_result_type_state(*tensor, state);
  return at::native::result_type(state);
}

bool is_transformed(const at::Tensor& tensor) {
  static constexpr c10::DispatchKeySet kWrapped(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
       c10::DispatchKey::Batched, c10::DispatchKey::Negative, c10::DispatchKey::Conjugate,
       c10::DispatchKey::ZeroTensor});
  return tensor.key_set().has_any(kWrapped) || tensor._fw_grad(/*level=*/0).defined();
}

bool is_plain(const at::Tensor& tensor) {
  static constexpr c10::DispatchKeySet kTraced(
      {c10::DispatchKey::Python, c10::DispatchKey::Functionalize});
  return !tensor.defined() ||
         ((tensor.is_cpu() || tensor.is_cuda()) && tensor.layout() == at::kStrided &&
          !tensor.key_set().has_any(kTraced) && !is_transformed(tensor));
}

Promoted::Promoted(std::span<const at::Tensor* const> tensors) {
  const c10::ScalarType type = promoted_type(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    converted_[i] = converted(*tensors[i], type);
    pointers_[i] = &converted_[i];
  }
}

}  // namespace fastact

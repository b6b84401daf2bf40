#include "registration/composites/norm_of_rows.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/ones_like.h>

#include "registration/checks.h"
#include "registration/conversion.h"

namespace fastact {

bool is_present(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

NormOfRows::NormOfRows(const at::Tensor& rows, const OptionalTensor& weight,
                       const OptionalTensor& bias, double eps)
    : type_(rows.scalar_type()) {
  // float32 vectors and 16-bit rows: the kernels would compute in float32 anyway.
  const auto is_float = [](const OptionalTensor& tensor) {
    return is_present(tensor) && tensor->scalar_type() == at::kFloat;
  };
  converts_ =
      (type_ == at::kBFloat16 || type_ == at::kHalf) && (is_float(weight) || is_float(bias));
  const auto operand = [&](const at::Tensor& tensor) {
    return converts_ ? tensor.to(at::kFloat) : tensor;
  };
  tensors_[0] = operand(rows);
  if (is_present(bias)) tensors_[2] = operand(*bias);
  if (is_present(weight)) {
    tensors_[1] = operand(*weight);
  } else if (is_present(bias)) {
    tensors_[1] = at::ones_like(tensors_[2]);
  } else {
    tensors_[1] = tensors_[0].new_ones_symint({tensors_[0].sym_size(-1)});
  }
  parameters_.numbers.values[0] = eps;
  parameters_.dim = -1;
}

at::Tensor NormOfRows::result(const Operator& op, const Operator* with_statistics,
                              c10::SymIntArrayRef shape) const {
  at::Tensor results[kMaxResults];
  if (with_statistics != nullptr && requires_grad_of_any(op, pointers_)) {
    with_statistics->several(nullptr, pointers_, parameters_, results);
  } else {
    results[0] = op.call(pointers_, parameters_);
  }
  // The rows are not used otherwise, so the result need not be a view of them.
  if (results[0].sym_sizes() != shape) results[0] = at::_unsafe_view_symint(results[0], shape);
  if (!converts_) return results[0];
  // Leaky ReLU with a slope of 1 returns its input, with FastAct's NaN instead of PyTorch's.
  static const Operator& identity = operator_named("leaky_relu");
  const at::Tensor rounded = results[0].to(type_);
  const at::Tensor* const tensors[] = {&rounded};
  CallParameters slope;
  slope.numbers.values[0] = 1.0;
  return identity.call(tensors, slope);
}

std::tuple<at::Tensor, at::Tensor> NormOfRows::of_sum(const Operator& added,
                                                      const at::Tensor& residual,
                                                      c10::SymIntArrayRef shape) const {
  const at::Tensor others = residual.reshape_symint(tensors_[0].sym_sizes());
  const at::Tensor* const tensors[] = {&tensors_[0], &others, &tensors_[1], &tensors_[2]};
  at::Tensor results[kMaxResults];
  added.several(nullptr, tensors, parameters_, results);
  const auto shaped = [&](const at::Tensor& rows) {
    return rows.sym_sizes() == shape ? rows : at::_unsafe_view_symint(rows, shape);
  };
  return {shaped(results[0]), shaped(results[1])};
}

at::Tensor& NormOfRows::write(const Operator& op, c10::SymIntArrayRef shape,
                              at::Tensor& out) const {
  const c10::SymIntArrayRef rows = tensors_[0].sym_sizes();
  if (!converts_ && rows == shape) return op.write(nullptr, pointers_, parameters_, out);
  if (!converts_ && out.sym_sizes() == shape && out.is_contiguous()) {
    at::Tensor viewed = out.view_symint(rows);
    op.write(nullptr, pointers_, parameters_, viewed);
    return out;
  }
  check_out(op, pointers_, type_, out);
  check_no_gradient(op, pointers_, out);
  const at::Tensor computed = result(op, /*with_statistics=*/nullptr, shape);
  at::native::resize_output_symint(out, shape);
  copy_converted(computed, out);
  return out;
}

const Operator& layer_norm_operator(const OptionalTensor& bias) {
  static const Operator& with = operator_named("_layer_norm");
  static const Operator& without = operator_named("_layer_norm_without_bias");
  return is_present(bias) ? with : without;
}

const Operator& layer_norm_operator_with_statistics(const OptionalTensor& bias) {
  static const Operator& with = operator_named("_layer_norm_with_statistics");
  static const Operator& without = operator_named("_layer_norm_without_bias_with_statistics");
  return is_present(bias) ? with : without;
}

}  // namespace fastact

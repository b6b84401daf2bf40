// logsumexp, sum, mean and var_mean along several dimensions. The derivatives of the last three.
#include "registration/composites/reductions.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>

#include "fastact/fastact.h"
#include "registration/checks.h"
#include "registration/composites/composites.h"
#include "registration/conversion.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

at::Tensor call_on(const Operator& op, const at::Tensor& x, const CallParameters& parameters) {
  const at::Tensor* const tensors[] = {&x};
  return op.call(tensors, parameters);
}

// The rows of a tensor along some of its dimensions, or along all if there are none. Several
// dimensions are merged into one.
class RowsAlong {
 public:
  // `op` names the operator in messages.
  RowsAlong(const Operator& op, const at::Tensor& self, at::IntArrayRef dims)
      : is_scalar_(self.dim() == 0), rows_(self) {
    for (const int64_t dim : dims) {
      dims_.push_back(row_dimension(op, dim, self.dim()));
      TORCH_CHECK(std::ranges::count(dims_, dims_.back()) == 1, "fastact::", op.public_name(),
                  ": expected each dim once, but got ", dims);
    }
    for (int64_t dim = 0; dims.empty() && dim < self.dim(); ++dim) dims_.push_back(dim);
    std::ranges::sort(dims_);
    const auto count = static_cast<int64_t>(dims_.size());
    merges_ = count > 1;
    if (!merges_) return;
    Dimensions last;
    for (int64_t dim = -count; dim < 0; ++dim) last.push_back(dim);
    rows_ = self.movedim(dims_, last).flatten(-count, -1);
  }

  [[nodiscard]] const at::Tensor& rows() const { return rows_; }
  [[nodiscard]] int64_t dim() const { return merges_ || dims_.empty() ? -1 : dims_[0]; }

  // Returns an operator's result, which has one number for each row, in the shape for self.
  [[nodiscard]] at::Tensor shaped(at::Tensor result, bool keepdim) const {
    if (is_scalar_ || (keepdim && !merges_)) return result;
    result = result.squeeze(dim());
    if (keepdim)
      for (const int64_t each : dims_) result = result.unsqueeze(each);
    return result;
  }

 private:
  using Dimensions = c10::SmallVector<int64_t, 5>;

  bool is_scalar_;
  bool merges_ = false;
  Dimensions dims_;
  at::Tensor rows_;
};

const Operator& logsumexp_operator() {
  static const Operator& op = operator_named("_logsumexp");
  return op;
}
const Operator& sum_operator() {
  static const Operator& op = operator_named("_sum");
  return op;
}
const Operator& mean_operator() {
  static const Operator& op = operator_named("_mean");
  return op;
}

// Returns a reduction along these dimensions. The result has self's type.
at::Tensor reduced(const Operator& op, const at::Tensor& self, at::IntArrayRef dims, bool keepdim) {
  const RowsAlong along(op, self, dims);
  return along.shaped(call_on(op, along.rows(), along_dim(along.dim())), keepdim);
}

at::Tensor& write_reduced(const Operator& op, const at::Tensor& self, at::IntArrayRef dims,
                          bool keepdim, at::Tensor& out) {
  const at::Tensor* const tensors[] = {&self};
  check_out(op, tensors, self.scalar_type(), out);
  check_no_gradient(op, tensors, out);
  const at::Tensor computed = reduced(op, self, dims, keepdim);
  at::native::resize_output_symint(out, computed.sym_sizes());
  copy_converted(computed, out);
  return out;
}

at::IntArrayRef dims_or_all(const at::OptionalIntArrayRef& dims) {
  return dims.has_value() ? *dims : at::IntArrayRef();
}

// Returns false only if no derivative of a result is needed. A tensor with a tangent is not plain.
bool may_need_derivatives(const Operator& op, const at::Tensor& self) {
  const at::Tensor* const tensors[] = {&self};
  return !is_plain(self) || requires_grad_of_any(op, tensors);
}

std::tuple<at::Tensor, at::Tensor> var_mean_along(const at::Tensor& self,
                                                  at::OptionalIntArrayRef dims,
                                                  std::optional<double> correction, bool keepdim) {
  static const Operator& variance = operator_named("_var");
  static const Operator& both = operator_named("_var_mean");
  const RowsAlong along(variance, self, dims_or_all(dims));
  CallParameters parameters = along_dim(along.dim());
  parameters.numbers.values[0] = correction.value_or(1.0);
  at::Tensor results[2];
  if (may_need_derivatives(variance, self)) {
    results[0] = call_on(variance, along.rows(), parameters);
    results[1] = call_on(mean_operator(), along.rows(), parameters);
  } else {
    const at::Tensor* const tensors[] = {&along.rows()};
    both.several(nullptr, tensors, parameters, results);
  }
  return {along.shaped(results[0], keepdim), along.shaped(results[1], keepdim)};
}

void define_reductions(torch::Library& library) {
  const auto define = [&](const std::string& name, const std::string& arguments) {
    library.def((name + "(Tensor self, " + arguments + ") -> Tensor").c_str(),
                {at::Tag::pt2_compliant_tag});
    const char* const separator = arguments.find('*') == std::string::npos ? ", *, " : ", ";
    library.def(
        (name + ".out(Tensor self, " + arguments + separator + "Tensor(a!) out) -> Tensor(a!)")
            .c_str(),
        {at::Tag::pt2_compliant_tag});
  };
  define("logsumexp", "int[1] dim, bool keepdim=False");
  for (const char* name : {"sum", "mean"})
    define(name, "int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None");
  library.def(
      "var_mean(Tensor self, int[1]? dim=None, *, float? correction=None, bool keepdim=False) -> "
      "(Tensor, Tensor)",
      {at::Tag::pt2_compliant_tag});
}

// Registers a reduction that takes dimensions or none, and a dtype.
template <const Operator& (*Reduction)()>
void implement_with_dtype(torch::Library& library, const std::string& name) {
  library.impl(name.c_str(),
               [](const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, Dtype dtype) {
                 return reduced(Reduction(), converted_to(self, dtype), dims_or_all(dims), keepdim);
               });
  library.impl((name + ".out").c_str(),
               [](const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, Dtype dtype,
                  at::Tensor& out) -> at::Tensor& {
                 return write_reduced(Reduction(), converted_to(self, dtype), dims_or_all(dims),
                                      keepdim, out);
               });
}

void implement_reductions(torch::Library& library) {
  library.impl("logsumexp", [](const at::Tensor& self, at::IntArrayRef dims, bool keepdim) {
    return reduced(logsumexp_operator(), self, dims, keepdim);
  });
  library.impl("logsumexp.out",
               [](const at::Tensor& self, at::IntArrayRef dims, bool keepdim,
                  at::Tensor& out) -> at::Tensor& {
                 return write_reduced(logsumexp_operator(), self, dims, keepdim, out);
               });
  implement_with_dtype<&sum_operator>(library, "sum");
  implement_with_dtype<&mean_operator>(library, "mean");
  library.impl("var_mean", &var_mean_along);
}

// ---- For the derivatives

// Returns `number` as a 0-dimensional tensor with the type and device of `like`. ATen's GPU kernels
// multiply by the reciprocal of a scalar divisor, which gives other bits.
at::Tensor scalar_tensor_like(const at::Scalar& number, const at::Tensor& like) {
  // By way of float64, because a number beyond the type's range is infinite in a tensor, and an
  // error in a scalar.
  return at::scalar_tensor(number, like.options().dtype(at::kDouble)).to(like.scalar_type());
}

c10::SymInt length_of_rows(const at::Tensor& x, const CallParameters& parameters) {
  return x.dim() == 0 ? c10::SymInt(1) : x.sym_size(parameters.dim);
}

// What the variance's derivatives call, in this order.
enum VarianceCalled : int { kSumOfRow, kMeanOfRow };

// Returns 2 (x - mean) / (n - c).
at::Tensor derivative_of_variance(const Operator& op, const CallParameters& parameters,
                                  const at::Tensor& self) {
  const at::Tensor x = wide(self);
  const at::Tensor distances = x - call_on(*op.called[kMeanOfRow], x, parameters);
  const c10::SymFloat freedom =
      c10::SymFloat(length_of_rows(x, parameters)) - parameters.numbers.values[0];
  return 2 * distances / scalar_tensor_like(freedom, x);
}

}  // namespace

const Composites kReductionComposites = {.define = &define_reductions,
                                         .implement = &implement_reductions};

at::Tensor sum_by_self(const Operator& /*op*/, const CallParameters& /*parameters*/,
                       const at::Tensor& incoming, const at::Tensor* inputs) {
  return incoming.expand_symint(inputs[0].sym_sizes());
}

at::Tensor mean_by_self(const Operator& /*op*/, const CallParameters& parameters,
                        const at::Tensor& incoming, const at::Tensor* inputs) {
  const at::Tensor g = wide(incoming);
  const at::Tensor shared = g / scalar_tensor_like(length_of_rows(inputs[0], parameters), g);
  return shared.to(inputs[0].scalar_type()).expand_symint(inputs[0].sym_sizes());
}

at::Tensor var_by_self(const Operator& op, const CallParameters& parameters,
                       const at::Tensor& incoming, const at::Tensor* inputs) {
  return (wide(incoming) * derivative_of_variance(op, parameters, inputs[0]))
      .to(inputs[0].scalar_type());
}

at::Tensor var_tangent(const Operator& op, const CallParameters& parameters,
                       const at::Tensor& incoming, const at::Tensor* inputs) {
  const at::Tensor products = wide(incoming) * derivative_of_variance(op, parameters, inputs[0]);
  return call_on(*op.called[kSumOfRow], products, parameters).to(inputs[0].scalar_type());
}

// ---- The functions of fastact.h

namespace {
using AlongFunction = at::Tensor(const at::Tensor&, at::IntArrayRef, bool);
using AlongOutFunction = at::Tensor&(const at::Tensor&, at::IntArrayRef, bool, at::Tensor&);
using DtypeFunction = at::Tensor(const at::Tensor&, at::OptionalIntArrayRef, bool, Dtype);
using DtypeOutFunction = at::Tensor&(const at::Tensor&, at::OptionalIntArrayRef, bool, Dtype,
                                     at::Tensor&);
}  // namespace

at::Tensor logsumexp(const at::Tensor& self, at::IntArrayRef dim, bool keepdim) {
  static constinit const LazyOperator<AlongFunction> op("fastact::logsumexp", "");
  return op.dispatch(nullptr, self, dim, keepdim);
}
at::Tensor& logsumexp_out(at::Tensor& out, const at::Tensor& self, at::IntArrayRef dim,
                          bool keepdim) {
  static constinit const LazyOperator<AlongOutFunction> op("fastact::logsumexp", "out");
  return op.dispatch(nullptr, self, dim, keepdim, out);
}
at::Tensor sum(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, Dtype dtype) {
  static constinit const LazyOperator<DtypeFunction> op("fastact::sum", "");
  return op.dispatch(nullptr, self, dim, keepdim, dtype);
}
at::Tensor& sum_out(at::Tensor& out, const at::Tensor& self, at::OptionalIntArrayRef dim,
                    bool keepdim, Dtype dtype) {
  static constinit const LazyOperator<DtypeOutFunction> op("fastact::sum", "out");
  return op.dispatch(nullptr, self, dim, keepdim, dtype, out);
}
at::Tensor mean(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, Dtype dtype) {
  static constinit const LazyOperator<DtypeFunction> op("fastact::mean", "");
  return op.dispatch(nullptr, self, dim, keepdim, dtype);
}
at::Tensor& mean_out(at::Tensor& out, const at::Tensor& self, at::OptionalIntArrayRef dim,
                     bool keepdim, Dtype dtype) {
  static constinit const LazyOperator<DtypeOutFunction> op("fastact::mean", "out");
  return op.dispatch(nullptr, self, dim, keepdim, dtype, out);
}
std::tuple<at::Tensor, at::Tensor> var_mean(const at::Tensor& self, at::OptionalIntArrayRef dim,
                                            std::optional<double> correction, bool keepdim) {
  static constinit const LazyOperator<std::tuple<at::Tensor, at::Tensor>(
      const at::Tensor&, at::OptionalIntArrayRef, std::optional<double>, bool)>
      op("fastact::var_mean", "");
  return op.dispatch(nullptr, self, dim, correction, keepdim);
}

}  // namespace fastact

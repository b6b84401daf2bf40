// softmax and log_softmax, which convert to `dtype`, and derivatives of the row operators.
#include "registration/composites/rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sum.h>
#include <c10/util/StringUtil.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <string_view>

#include "fastact/fastact.h"
#include "registration/checks.h"
#include "registration/composites/composites.h"
#include "registration/operators/operator.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

// Computes `value(wide...)` of the tensors in the type in which the kernels compute, and rounds the
// result to the type of the first.
template <class Value, class... Tensors>
at::Tensor in_compute_type(const Value& value, const at::Tensor& first, const Tensors&... others) {
  const c10::ScalarType type = first.scalar_type();
  const c10::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  return value(first.to(wide), others.to(wide)...).to(type);
}

at::Tensor sum_of_rows(const at::Tensor& tensor, const CallParameters& parameters) {
  return at::sum(tensor, at::IntArrayRef(parameters.dim), /*keepdim=*/true);
}

// Calls the operator on self, converted to `dtype`.
at::Tensor call_rows(const Operator& op, const at::Tensor& self, int64_t dim, Dtype dtype) {
  const at::Tensor input = converted_to(self, dtype);
  const at::Tensor* const tensors[] = {&input};
  return op.call(tensors, along_dim(dim));
}
at::Tensor& write_rows(const Operator& op, const at::Tensor& self, int64_t dim, Dtype dtype,
                       at::Tensor& out) {
  const at::Tensor input = converted_to(self, dtype);
  const at::Tensor* const tensors[] = {&input};
  return op.write(nullptr, tensors, along_dim(dim), out);
}

const Operator& softmax_kernel() {
  static const Operator& op = operator_named("_softmax");
  return op;
}
const Operator& log_softmax_kernel() {
  static const Operator& op = operator_named("_log_softmax");
  return op;
}

void define_rows(torch::Library& library) {
  constexpr std::string_view kArguments = "(Tensor self, int dim, ScalarType? dtype=None";
  for (const std::string_view name : {"softmax", "log_softmax"}) {
    const std::string functional = c10::str(name, kArguments, ") -> Tensor");
    const std::string out =
        c10::str(name, ".out", kArguments, ", *, Tensor(a!) out) -> Tensor(a!)");
    library.def(functional.c_str(), {at::Tag::pt2_compliant_tag});
    library.def(out.c_str(), {at::Tag::pt2_compliant_tag});
  }
}

void implement_rows(torch::Library& library) {
  library.impl("softmax", [](const at::Tensor& self, int64_t dim, Dtype dtype) {
    return call_rows(softmax_kernel(), self, dim, dtype);
  });
  library.impl("log_softmax", [](const at::Tensor& self, int64_t dim, Dtype dtype) {
    return call_rows(log_softmax_kernel(), self, dim, dtype);
  });
  library.impl(
      "softmax.out",
      [](const at::Tensor& self, int64_t dim, Dtype dtype, at::Tensor& out) -> at::Tensor& {
        return write_rows(softmax_kernel(), self, dim, dtype, out);
      });
  library.impl(
      "log_softmax.out",
      [](const at::Tensor& self, int64_t dim, Dtype dtype, at::Tensor& out) -> at::Tensor& {
        return write_rows(log_softmax_kernel(), self, dim, dtype, out);
      });
}

}  // namespace

const Composites kRowComposites = {.define = &define_rows, .implement = &implement_rows};

at::Tensor log_softmax_tangent(const Operator& /*op*/, const CallParameters& parameters,
                               const at::Tensor& incoming, const at::Tensor* inputs) {
  const auto value = [&](const at::Tensor& t, const at::Tensor& y) {
    return t - sum_of_rows(at::exp(y) * t, parameters);
  };
  return in_compute_type(value, incoming, inputs[0]);
}

at::Tensor softmax_backward_by_output(const Operator& /*op*/, const CallParameters& parameters,
                                      const at::Tensor& incoming, const at::Tensor* inputs) {
  const auto value = [&](const at::Tensor& h, const at::Tensor& g, const at::Tensor& y) {
    return h * (g - sum_of_rows(g * y, parameters)) - g * sum_of_rows(h * y, parameters);
  };
  return in_compute_type(value, incoming, inputs[0], inputs[1]);
}

at::Tensor softmax_backward_tangent_of_output(const Operator& /*op*/,
                                              const CallParameters& parameters,
                                              const at::Tensor& incoming,
                                              const at::Tensor* inputs) {
  const auto value = [&](const at::Tensor& t, const at::Tensor& g, const at::Tensor& y) {
    return t * (g - sum_of_rows(g * y, parameters)) - y * sum_of_rows(g * t, parameters);
  };
  return in_compute_type(value, incoming, inputs[0], inputs[1]);
}

at::Tensor log_softmax_backward_by_grad(const Operator& /*op*/, const CallParameters& parameters,
                                        const at::Tensor& incoming, const at::Tensor* inputs) {
  const auto value = [&](const at::Tensor& h, const at::Tensor& y) {
    return h - sum_of_rows(at::exp(y) * h, parameters);
  };
  return in_compute_type(value, incoming, inputs[1]);
}

at::Tensor log_softmax_backward_by_output(const Operator& /*op*/, const CallParameters& parameters,
                                          const at::Tensor& incoming, const at::Tensor* inputs) {
  const auto value = [&](const at::Tensor& h, const at::Tensor& g, const at::Tensor& y) {
    return -h * at::exp(y) * sum_of_rows(g, parameters);
  };
  return in_compute_type(value, incoming, inputs[0], inputs[1]);
}

// ---- Derivatives of what is computed from softmax's exponentials. p stands for softmax(self).

namespace {

// What these operators call, in this order.
enum RowCalled : int { kSoftmaxOfRow, kSoftmaxGradient, kBackwardOfRow };

at::Tensor softmax_of(const Operator& op, const CallParameters& parameters, const at::Tensor& x) {
  const at::Tensor* const tensors[] = {&x};
  return op.called[kSoftmaxOfRow]->call(tensors, parameters);
}

// Returns sum(t p).
at::Tensor softmax_tangent(const Operator& op, const CallParameters& parameters,
                           const at::Tensor& self, const at::Tensor& t) {
  return sum_of_rows(wide(t) * softmax_of(op, parameters, wide(self)), parameters);
}

// Returns g p (h - sum(h p)).
at::Tensor softmax_derivative(const Operator& op, const CallParameters& parameters,
                              const at::Tensor& h, const at::Tensor& self, const at::Tensor& g) {
  const at::Tensor p = softmax_of(op, parameters, wide(self));
  const at::Tensor incoming = wide(h);
  const at::Tensor* const tensors[] = {&incoming, &p};
  return (g * op.called[kSoftmaxGradient]->call(tensors, parameters)).to(self.scalar_type());
}

// Returns the elements of the rows at the indices.
at::Tensor elements_at(const at::Tensor& rows, const at::Tensor& index,
                       const CallParameters& parameters) {
  return rows.gather(parameters.dim, index);
}

}  // namespace

at::Tensor logsumexp_by_self(const Operator& op, const CallParameters& parameters,
                             const at::Tensor& incoming, const at::Tensor* inputs) {
  const at::Tensor g = wide(incoming);
  const at::Tensor* const tensors[] = {&inputs[0], &g};
  return op.called[kBackwardOfRow]->call(tensors, parameters);
}

at::Tensor logsumexp_tangent(const Operator& op, const CallParameters& parameters,
                             const at::Tensor& incoming, const at::Tensor* inputs) {
  return softmax_tangent(op, parameters, inputs[0], incoming).to(inputs[0].scalar_type());
}

at::Tensor logsumexp_backward_by_self(const Operator& op, const CallParameters& parameters,
                                      const at::Tensor& incoming, const at::Tensor* inputs) {
  return softmax_derivative(op, parameters, incoming, inputs[0], inputs[1]);
}

at::Tensor logsumexp_backward_by_grad(const Operator& op, const CallParameters& parameters,
                                      const at::Tensor& incoming, const at::Tensor* inputs) {
  return softmax_tangent(op, parameters, inputs[0], incoming);
}

at::Tensor cross_entropy_tangent(const Operator& op, const CallParameters& parameters,
                                 const at::Tensor& incoming, const at::Tensor* inputs) {
  return softmax_tangent(op, parameters, inputs[0], incoming) -
         elements_at(wide(incoming), inputs[1], parameters);
}

at::Tensor cross_entropy_backward_by_self(const Operator& op, const CallParameters& parameters,
                                          const at::Tensor& incoming, const at::Tensor* inputs) {
  return softmax_derivative(op, parameters, incoming, inputs[0], inputs[2]);
}

at::Tensor cross_entropy_backward_by_grad(const Operator& op, const CallParameters& parameters,
                                          const at::Tensor& incoming, const at::Tensor* inputs) {
  return cross_entropy_tangent(op, parameters, incoming, inputs);
}

// ---- The functions of fastact.h

namespace {
using RowsFunction = at::Tensor(const at::Tensor&, int64_t, Dtype);
using RowsOutFunction = at::Tensor&(const at::Tensor&, int64_t, Dtype, at::Tensor&);
}  // namespace

at::Tensor softmax(const at::Tensor& self, int64_t dim, Dtype dtype) {
  static constinit const LazyOperator<RowsFunction> op("fastact::softmax", "");
  return op.dispatch(nullptr, self, dim, dtype);
}
at::Tensor& softmax_out(at::Tensor& out, const at::Tensor& self, int64_t dim, Dtype dtype) {
  static constinit const LazyOperator<RowsOutFunction> op("fastact::softmax", "out");
  return op.dispatch(nullptr, self, dim, dtype, out);
}
at::Tensor log_softmax(const at::Tensor& self, int64_t dim, Dtype dtype) {
  static constinit const LazyOperator<RowsFunction> op("fastact::log_softmax", "");
  return op.dispatch(nullptr, self, dim, dtype);
}
at::Tensor& log_softmax_out(at::Tensor& out, const at::Tensor& self, int64_t dim, Dtype dtype) {
  static constinit const LazyOperator<RowsOutFunction> op("fastact::log_softmax", "out");
  return op.dispatch(nullptr, self, dim, dtype, out);
}

}  // namespace fastact

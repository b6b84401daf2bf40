// rms_norm, layer_norm, add_rms_norm and add_layer_norm, which shape their arguments.
#include "registration/composites/norms.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "fastact/fastact.h"
#include "ops/floating_point.h"
#include "registration/checks.h"
#include "registration/composites/composites.h"
#include "registration/composites/norm_of_rows.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

// ---- The public operators

// Returns the norm of `input` over its last dimensions, whose sizes are `shape`, merged into one.
NormOfRows norm_over(const char* name, const at::Tensor& input, c10::SymIntArrayRef shape,
                     const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  const auto rank = static_cast<int64_t>(shape.size());
  TORCH_CHECK(rank > 0, "fastact::", name,
              ": expected normalized_shape to have at least one dimension, but got []");
  TORCH_CHECK(input.dim() >= rank && input.sym_sizes().slice(input.dim() - rank) == shape,
              "fastact::", name, ": expected the last dimensions of input to be ", shape,
              ", but got ", input.sym_sizes());
  for (const auto& [tensor, its_name] : {std::pair(&weight, "weight"), std::pair(&bias, "bias")}) {
    TORCH_CHECK(!is_present(*tensor) || (*tensor)->sym_sizes() == shape, "fastact::", name,
                ": expected ", its_name, " to have the shape ", shape, ", but got ",
                (*tensor)->sym_sizes());
  }
  if (rank == 1) return NormOfRows(input, weight, bias, eps);
  const auto merged = [&](const OptionalTensor& tensor) {
    return is_present(tensor) ? OptionalTensor(tensor->flatten()) : std::nullopt;
  };
  return NormOfRows(input.flatten(-rank, -1), merged(weight), merged(bias), eps);
}

// PyTorch's default: the distance from 1 to the next number of the type in which the norm computes.
double eps_or_default(std::optional<double> eps, const at::Tensor& input) {
  return eps.value_or(input.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                         : std::numeric_limits<float>::epsilon());
}

NormOfRows rms(const at::Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight,
               std::optional<double> eps, const char* name = "rms_norm") {
  return norm_over(name, input, shape, weight, std::nullopt, eps_or_default(eps, input));
}
const Operator& rms_operator() {
  static const Operator& op = operator_named("_rms_norm");
  return op;
}

// A bias without a weight is allowed, as in PyTorch.
NormOfRows layer(const at::Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight,
                 const OptionalTensor& bias, double eps, const char* name = "layer_norm") {
  return norm_over(name, input, shape, weight, bias, eps);
}

// ---- The norm of a sum

void check_residual(const char* name, const at::Tensor& input, const at::Tensor& residual) {
  TORCH_CHECK(residual.sym_sizes() == input.sym_sizes(), "fastact::", name,
              ": expected residual to have the shape of input, ", input.sym_sizes(), ", but got ",
              residual.sym_sizes());
  TORCH_CHECK(residual.scalar_type() == input.scalar_type(), "fastact::", name,
              ": expected residual to have the type of input, ", input.scalar_type(), ", but got ",
              residual.scalar_type());
  TORCH_CHECK(residual.device() == input.device(), "fastact::", name,
              ": expected residual to be on the device of input, ", input.device(), ", but got ",
              residual.device());
}

bool needs_derivatives(const at::Tensor& tensor) {
  return (at::GradMode::is_enabled() && tensor.requires_grad()) || is_transformed(tensor);
}

// Returns input + residual, rounded once.
at::Tensor sum_of(const at::Tensor& input, const at::Tensor& residual) {
  const DefaultFloatingPoint environment;
  return at::add(input, residual).contiguous();
}

// Returns the norm of input + residual, and this sum. norm_of(tensor) prepares the norm of a
// tensor, and result_of(norm) computes it. `added` is the operator that adds and normalizes, which
// has no derivatives.
template <class NormOf, class ResultOf>
std::tuple<at::Tensor, at::Tensor> norm_of_sum(const at::Tensor& input, const at::Tensor& residual,
                                               bool is_differentiated, const Operator& added,
                                               const NormOf& norm_of, const ResultOf& result_of) {
  if (!is_differentiated && !needs_derivatives(input) && !needs_derivatives(residual)) {
    const NormOfRows norm = norm_of(input);
    if (!norm.converts()) return norm.of_sum(added, residual, input.sym_sizes());
  }
  const at::Tensor sum = sum_of(input, residual);
  return {result_of(norm_of(sum)), sum};
}

bool needs_derivatives(const OptionalTensor& tensor) {
  return is_present(tensor) && needs_derivatives(*tensor);
}

std::tuple<at::Tensor, at::Tensor> add_rms_norm_of(const at::Tensor& input,
                                                   const at::Tensor& residual,
                                                   c10::SymIntArrayRef shape,
                                                   const OptionalTensor& weight,
                                                   std::optional<double> eps) {
  static const Operator& added = operator_named("_add_rms_norm");
  constexpr auto kName = "add_rms_norm";
  check_residual(kName, input, residual);
  return norm_of_sum(
      input, residual, needs_derivatives(weight), added,
      [&](const at::Tensor& rows) { return rms(rows, shape, weight, eps, kName); },
      [&](const NormOfRows& norm) {
        return norm.result(rms_operator(), /*with_statistics=*/nullptr, input.sym_sizes());
      });
}

std::tuple<at::Tensor, at::Tensor> add_layer_norm_of(const at::Tensor& input,
                                                     const at::Tensor& residual,
                                                     c10::SymIntArrayRef shape,
                                                     const OptionalTensor& weight,
                                                     const OptionalTensor& bias, double eps) {
  static const Operator& with_bias = operator_named("_add_layer_norm");
  static const Operator& without = operator_named("_add_layer_norm_without_bias");
  constexpr auto kName = "add_layer_norm";
  check_residual(kName, input, residual);
  return norm_of_sum(
      input, residual, needs_derivatives(weight) || needs_derivatives(bias),
      is_present(bias) ? with_bias : without,
      [&](const at::Tensor& rows) { return layer(rows, shape, weight, bias, eps, kName); },
      [&](const NormOfRows& norm) {
        return norm.result(layer_norm_operator(bias), &layer_norm_operator_with_statistics(bias),
                           input.sym_sizes());
      });
}

void define_norms(torch::Library& library) {
  for (const auto* const arguments :
       {"rms_norm%(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None",
        "layer_norm%(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, "
        "Tensor? bias=None, float eps=1e-05"}) {
    std::string functional = arguments;
    std::string out = arguments;
    functional.replace(functional.find('%'), 1, "").append(") -> Tensor");
    out.replace(out.find('%'), 1, ".out").append(", *, Tensor(a!) out) -> Tensor(a!)");
    library.def(functional.c_str(), {at::Tag::pt2_compliant_tag});
    library.def(out.c_str(), {at::Tag::pt2_compliant_tag});
  }
  for (const auto* const schema :
       {"add_rms_norm(Tensor input, Tensor residual, SymInt[] normalized_shape, "
        "Tensor? weight=None, float? eps=None) -> (Tensor, Tensor)",
        "add_layer_norm(Tensor input, Tensor residual, SymInt[] normalized_shape, "
        "Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> (Tensor, Tensor)"}) {
    library.def(schema, {at::Tag::pt2_compliant_tag});
  }
}

void implement_norms(torch::Library& library) {
  library.impl("rms_norm", [](const at::Tensor& input, c10::SymIntArrayRef shape,
                              const OptionalTensor& weight, std::optional<double> eps) {
    return rms(input, shape, weight, eps)
        .result(rms_operator(), /*with_statistics=*/nullptr, input.sym_sizes());
  });
  library.impl(
      "rms_norm.out",
      [](const at::Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight,
         std::optional<double> eps, at::Tensor& out) -> at::Tensor& {
        return rms(input, shape, weight, eps).write(rms_operator(), input.sym_sizes(), out);
      });
  library.impl("layer_norm",
               [](const at::Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight,
                  const OptionalTensor& bias, double eps) {
                 return layer(input, shape, weight, bias, eps)
                     .result(layer_norm_operator(bias), &layer_norm_operator_with_statistics(bias),
                             input.sym_sizes());
               });
  library.impl("layer_norm.out",
               [](const at::Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight,
                  const OptionalTensor& bias, double eps, at::Tensor& out) -> at::Tensor& {
                 return layer(input, shape, weight, bias, eps)
                     .write(layer_norm_operator(bias), input.sym_sizes(), out);
               });
  library.impl("add_rms_norm", &add_rms_norm_of);
  library.impl("add_layer_norm", &add_layer_norm_of);
}

}  // namespace

const Composites kNormComposites = {.define = &define_norms, .implement = &implement_norms};

at::Tensor checked_sum(const char* name, const at::Tensor& input, const at::Tensor& residual) {
  check_residual(name, input, residual);
  return sum_of(input, residual);
}

void compose_norm_of_sum(const Operator& op, TensorPointers tensors,
                         const CallParameters& parameters, at::Tensor* results) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  results[1] = sum_of(*tensors[0], *tensors[1]);
  const at::Tensor* of_sum[kMaxInputs] = {&results[1]};
  std::copy(tensors + 2, tensors + op.num_inputs(), of_sum + 1);
  results[0] = op.called.front()->call(of_sum, parameters);
}

// ---- The functions of fastact.h

namespace {
using AddRmsNorm = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                      c10::SymIntArrayRef, const OptionalTensor&,
                                                      std::optional<double>);
using AddLayerNorm = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                        c10::SymIntArrayRef, const OptionalTensor&,
                                                        const OptionalTensor&, double);
using RmsNorm = at::Tensor(const at::Tensor&, c10::SymIntArrayRef, const OptionalTensor&,
                           std::optional<double>);
using RmsNormOut = at::Tensor&(const at::Tensor&, c10::SymIntArrayRef, const OptionalTensor&,
                               std::optional<double>, at::Tensor&);
using LayerNorm = at::Tensor(const at::Tensor&, c10::SymIntArrayRef, const OptionalTensor&,
                             const OptionalTensor&, double);
using LayerNormOut = at::Tensor&(const at::Tensor&, c10::SymIntArrayRef, const OptionalTensor&,
                                 const OptionalTensor&, double, at::Tensor&);
}  // namespace

at::Tensor rms_norm_symint(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                           const std::optional<at::Tensor>& weight, std::optional<double> eps) {
  static constinit const LazyOperator<RmsNorm> op("fastact::rms_norm", "");
  return op.dispatch(nullptr, input, normalized_shape, weight, eps);
}
at::Tensor layer_norm_symint(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                             const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias, double eps) {
  static constinit const LazyOperator<LayerNorm> op("fastact::layer_norm", "");
  return op.dispatch(nullptr, input, normalized_shape, weight, bias, eps);
}

std::tuple<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& input, const at::Tensor& residual,
                                                at::IntArrayRef normalized_shape,
                                                const std::optional<at::Tensor>& weight,
                                                std::optional<double> eps) {
  static constinit const LazyOperator<AddRmsNorm> op("fastact::add_rms_norm", "");
  return op.dispatch(nullptr, input, residual, c10::fromIntArrayRefSlow(normalized_shape), weight,
                     eps);
}
std::tuple<at::Tensor, at::Tensor> add_layer_norm(
    const at::Tensor& input, const at::Tensor& residual, at::IntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias, double eps) {
  static constinit const LazyOperator<AddLayerNorm> op("fastact::add_layer_norm", "");
  return op.dispatch(nullptr, input, residual, c10::fromIntArrayRefSlow(normalized_shape), weight,
                     bias, eps);
}
at::Tensor rms_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                    const std::optional<at::Tensor>& weight, std::optional<double> eps) {
  return fastact::rms_norm_symint(input, c10::fromIntArrayRefSlow(normalized_shape), weight, eps);
}
at::Tensor& rms_norm_out(at::Tensor& out, const at::Tensor& input, at::IntArrayRef normalized_shape,
                         const std::optional<at::Tensor>& weight, std::optional<double> eps) {
  static constinit const LazyOperator<RmsNormOut> op("fastact::rms_norm", "out");
  return op.dispatch(nullptr, input, c10::fromIntArrayRefSlow(normalized_shape), weight, eps, out);
}
at::Tensor layer_norm(const at::Tensor& input, at::IntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps) {
  return fastact::layer_norm_symint(input, c10::fromIntArrayRefSlow(normalized_shape), weight, bias,
                                    eps);
}
at::Tensor& layer_norm_out(at::Tensor& out, const at::Tensor& input,
                           at::IntArrayRef normalized_shape,
                           const std::optional<at::Tensor>& weight,
                           const std::optional<at::Tensor>& bias, double eps) {
  static constinit const LazyOperator<LayerNormOut> op("fastact::layer_norm", "out");
  return op.dispatch(nullptr, input, c10::fromIntArrayRefSlow(normalized_shape), weight, bias, eps,
                     out);
}

}  // namespace fastact

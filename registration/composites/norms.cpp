// rms_norm and layer_norm, which shape their arguments.
#include "registration/composites/norms.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "fastact/fastact.h"
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
               std::optional<double> eps) {
  return norm_over("rms_norm", input, shape, weight, std::nullopt, eps_or_default(eps, input));
}
const Operator& rms_operator() {
  static const Operator& op = operator_named("_rms_norm");
  return op;
}

// A bias without a weight is allowed, as in PyTorch.
NormOfRows layer(const at::Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight,
                 const OptionalTensor& bias, double eps) {
  return norm_over("layer_norm", input, shape, weight, bias, eps);
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
}

}  // namespace

const Composites kNormComposites = {.define = &define_norms, .implement = &implement_norms};

// ---- The functions of fastact.h

namespace {
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

// rms_norm and layer_norm, which shape their arguments.
#include "registration/composites/norms.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "fastact/fastact.h"
#include "registration/checks.h"
#include "registration/composites/composites.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

// ---- The public operators

using OptionalTensor = std::optional<at::Tensor>;

// A norm along the last dimension of tensors whose normalized dimensions are merged.
class Norm {
 public:
  Norm(const char* name, const at::Tensor& input, c10::SymIntArrayRef shape,
       const OptionalTensor& weight, const OptionalTensor& bias, double eps)
      : rank_(static_cast<int64_t>(shape.size())) {
    TORCH_CHECK(rank_ > 0, "fastact::", name,
                ": expected normalized_shape to have at least one dimension, but got []");
    TORCH_CHECK(input.dim() >= rank_ && input.sym_sizes().slice(input.dim() - rank_) == shape,
                "fastact::", name, ": expected the last dimensions of input to be ", shape,
                ", but got ", input.sym_sizes());
    for (const auto& [tensor, its_name] :
         {std::pair(&weight, "weight"), std::pair(&bias, "bias")}) {
      TORCH_CHECK(!is_present(*tensor) || (*tensor)->sym_sizes() == shape, "fastact::", name,
                  ": expected ", its_name, " to have the shape ", shape, ", but got ",
                  (*tensor)->sym_sizes());
    }
    // float32 vectors and a 16-bit input: the kernels would compute in float32 anyway.
    const auto is_float = [](const OptionalTensor& tensor) {
      return is_present(tensor) && tensor->scalar_type() == at::kFloat;
    };
    converts_ = (input.scalar_type() == at::kBFloat16 || input.scalar_type() == at::kHalf) &&
                (is_float(weight) || is_float(bias));
    const auto operand = [&](const at::Tensor& tensor) {
      return flat(converts_ ? tensor.to(at::kFloat) : tensor);
    };
    tensors_[0] = operand(input);
    tensors_[1] = is_present(weight) ? operand(*weight)
                                     : tensors_[0].new_ones_symint({tensors_[0].sym_size(-1)});
    if (is_present(bias)) tensors_[2] = operand(*bias);
    parameters_.numbers.values[0] = eps;
    parameters_.dim = -1;
  }

  Norm(const Norm&) = delete;
  Norm& operator=(const Norm&) = delete;
  ~Norm() = default;

  // Returns the norm in input's shape. If a gradient is needed, calls `with_statistics`, unless it
  // is null, so that autograd saves the statistics.
  [[nodiscard]] at::Tensor result(const Operator& op, const Operator* with_statistics,
                                  const at::Tensor& input) const {
    const at::Tensor rows = with_statistics != nullptr && requires_grad_of_any(op, pointers_)
                                ? first_result(*with_statistics)
                                : op.call(pointers_, parameters_);
    at::Tensor computed = rows.view_symint(input.sym_sizes());
    if (!converts_) return computed;
    // Leaky ReLU with a slope of 1 returns its input, with FastAct's NaN instead of PyTorch's.
    static const Operator& identity = operator_named("leaky_relu");
    const at::Tensor rounded = computed.to(input.scalar_type());
    const at::Tensor* const tensors[] = {&rounded};
    CallParameters slope;
    slope.numbers.values[0] = 1.0;
    return identity.call(tensors, slope);
  }

  at::Tensor& write(const Operator& op, const at::Tensor& input, at::Tensor& out) const {
    if (rank_ == 1 && !converts_) return op.write(nullptr, pointers_, parameters_, out);
    if (!converts_ && out.sym_sizes() == input.sym_sizes() && out.is_contiguous()) {
      at::Tensor merged = flat(out);
      op.write(nullptr, pointers_, parameters_, merged);
      return out;
    }
    check_out(op, pointers_, input.scalar_type(), out);
    check_no_gradient(op, pointers_, out);
    const at::Tensor computed = result(op, /*with_statistics=*/nullptr, input);
    at::native::resize_output_symint(out, input.sym_sizes());
    out.copy_(computed);
    return out;
  }

 private:
  static bool is_present(const OptionalTensor& tensor) {
    return tensor.has_value() && tensor->defined();
  }
  [[nodiscard]] at::Tensor flat(const at::Tensor& tensor) const {
    return rank_ == 1 ? tensor : tensor.flatten(-rank_, -1);
  }

  [[nodiscard]] at::Tensor first_result(const Operator& op) const {
    at::Tensor results[kMaxResults];
    op.several(nullptr, pointers_, parameters_, results);
    return results[0];
  }

  int64_t rank_;
  bool converts_ = false;
  at::Tensor tensors_[3];
  const at::Tensor* pointers_[3] = {&tensors_[0], &tensors_[1], &tensors_[2]};
  CallParameters parameters_;
};

// PyTorch's default: the distance from 1 to the next number of the type in which the norm computes.
double eps_or_default(std::optional<double> eps, const at::Tensor& input) {
  return eps.value_or(input.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                         : std::numeric_limits<float>::epsilon());
}

Norm rms(const at::Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight,
         std::optional<double> eps) {
  return Norm("rms_norm", input, shape, weight, std::nullopt, eps_or_default(eps, input));
}
const Operator& rms_operator() {
  static const Operator& op = operator_named("_rms_norm");
  return op;
}

// A bias without a weight is allowed, as in PyTorch.
Norm layer(const at::Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight,
           const OptionalTensor& bias, double eps) {
  return Norm("layer_norm", input, shape, weight, bias, eps);
}
const Operator& layer_operator(const OptionalTensor& bias) {
  static const Operator& with = operator_named("_layer_norm");
  static const Operator& without = operator_named("_layer_norm_without_bias");
  return bias.has_value() && bias->defined() ? with : without;
}
const Operator* layer_operator_with_statistics(const OptionalTensor& bias) {
  static const Operator& with = operator_named("_layer_norm_with_statistics");
  static const Operator& without = operator_named("_layer_norm_without_bias_with_statistics");
  return bias.has_value() && bias->defined() ? &with : &without;
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
        .result(rms_operator(), /*with_statistics=*/nullptr, input);
  });
  library.impl("rms_norm.out",
               [](const at::Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight,
                  std::optional<double> eps, at::Tensor& out) -> at::Tensor& {
                 return rms(input, shape, weight, eps).write(rms_operator(), input, out);
               });
  library.impl("layer_norm",
               [](const at::Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight,
                  const OptionalTensor& bias, double eps) {
                 return layer(input, shape, weight, bias, eps)
                     .result(layer_operator(bias), layer_operator_with_statistics(bias), input);
               });
  library.impl(
      "layer_norm.out",
      [](const at::Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight,
         const OptionalTensor& bias, double eps, at::Tensor& out) -> at::Tensor& {
        return layer(input, shape, weight, bias, eps).write(layer_operator(bias), input, out);
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

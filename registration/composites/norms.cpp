// rms_norm and layer_norm, which shape their arguments, and derivatives of the norms.
#include "registration/composites/norms.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
    const at::Tensor rows = with_statistics != nullptr && requires_grad()
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
    TORCH_CHECK(!requires_grad() && !(out.requires_grad() && at::GradMode::is_enabled()),
                "fastact::", op.public_name(),
                ": expected no tensor that requires a gradient with out=, but got one");
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

  [[nodiscard]] bool requires_grad() const {
    return at::GradMode::is_enabled() &&
           std::ranges::any_of(tensors_, [](const at::Tensor& tensor) {
             return tensor.defined() && tensor.requires_grad();
           });
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

// ---- Derivatives

bool lie_along_last_dimension(const at::Tensor& x, const CallParameters& parameters) {
  return x.dim() > 0 && (parameters.dim == -1 || parameters.dim == x.dim() - 1);
}

// Returns a weight of 1 for a wide operand. Kernels read it fastest if it is a row.
at::Tensor ones_for(const at::Tensor& x, const CallParameters& parameters) {
  c10::SymDimVector shape;
  if (lie_along_last_dimension(x, parameters)) shape.push_back(x.sym_size(-1));
  return x.new_ones_symint(shape);
}

// Returns two undefined tensors, for a norm that has not computed statistics.
const at::Tensor* no_statistics() {
  static const auto& none = *new std::array<at::Tensor, 2>();
  return none.data();
}

// Returns the gradient of a norm by x. `op` is the norm or its backward operator. `statistics` are
// those of x, or undefined.
at::Tensor gradient_of(const Operator& op, const CallParameters& parameters, const at::Tensor& x,
                       const at::Tensor& g, const at::Tensor& weight,
                       const at::Tensor* statistics) {
  const Operator& backward = *op.called[kNormBackward];
  at::Tensor computed[kMaxResults];
  if (backward.num_inputs() > 3 && !statistics->defined()) {
    const at::Tensor ones = ones_for(x, parameters);
    const at::Tensor* const tensors[] = {&x, &ones};
    op.called[kNormWithStatistics]->several(nullptr, tensors, parameters, computed);
    statistics = computed + 1;
  }
  const at::Tensor* const tensors[] = {&x, &g, &weight, statistics, statistics + 1};
  return backward.call(tensors, parameters);
}

// Returns S(u), for wide tensors.
at::Tensor slope(const Operator& op, const CallParameters& parameters, const at::Tensor& x,
                 const at::Tensor& u, const at::Tensor* statistics) {
  return gradient_of(op, parameters, x, u, ones_for(x, parameters), statistics);
}
// Returns z(x), for a wide x.
at::Tensor normalized(const Operator& norm, const CallParameters& parameters, const at::Tensor& x) {
  const at::Tensor ones = ones_for(x, parameters);
  const at::Tensor* const tensors[] = {&x, &ones};
  return norm.called[kNormWithoutBias]->call(tensors, parameters);
}

// Returns true if the kernel of a fused form's gradients can add the rows of g, or of a product
// with it, for a row of weights or biases. It cannot if the sums need derivatives themselves.
bool has_kernel_for_sums(const at::Tensor& g, const at::Tensor& vector,
                         const CallParameters& parameters) {
  return !at::GradMode::is_enabled() && is_plain(g) && is_plain(vector) &&
         lie_along_last_dimension(g, parameters) && vector.dim() == 1 &&
         vector.size(0) == g.size(-1) && g.numel() != 0;
}

// Returns the gradient of a fused form's scale, sum(g z), or of its bias, sum(g).
at::Tensor sums_of_rows(const Operator& op, const at::Tensor& g, const at::Tensor& z,
                        const at::Tensor& vector, FusedInput result) {
  // The kernel takes contiguous rows.
  const at::Tensor g_rows = g.reshape({-1, g.size(-1)}).contiguous();
  const at::Tensor z_rows = z.is_same(g) ? g_rows : z.reshape({-1, z.size(-1)}).contiguous();
  const at::Tensor scale = at::ones_like(vector, g.options());
  const at::Tensor bias = at::zeros_like(scale);
  const at::Tensor* const tensors[] = {&g_rows, &z_rows,          &scale,
                                       &bias,   &absent_tensor(), &absent_tensor()};
  CallParameters parameters;
  parameters.numbers.values[0] = 1.0;  // Leaky ReLU with this slope is the identity
  parameters.output_mask[static_cast<size_t>(result)] = true;
  at::Tensor sums[kFusedInputs];
  op.called[kNormSums]->several(nullptr, tensors, parameters, sums);
  return sums[static_cast<size_t>(result)];
}

}  // namespace

const Composites kNormComposites = {.define = &define_norms, .implement = &implement_norms};

void norm_gradients(const Operator& op, const CallParameters& parameters,
                    const at::Tensor& incoming, const SavedInputs& saved,
                    const std::vector<bool>& needed, at::Tensor* gradients) {
  const at::Tensor& self = saved.tensors[0];
  const at::Tensor& weight = saved.tensors[1];
  if (needed[0]) {
    const at::Tensor* const statistics =
        op.num_statistics() > 0 ? saved.tensors + op.num_inputs() : no_statistics();
    gradients[0] = gradient_of(op, parameters, self, incoming, weight, statistics);
  }
  const bool needs_bias = op.num_inputs() > 2 && needed[2];
  const at::Tensor g = wide(incoming);
  if (needed[1]) {
    const at::Tensor z = normalized(op, parameters, wide(self));
    gradients[1] = has_kernel_for_sums(g, weight, parameters) && is_plain(z)
                       ? sums_of_rows(op, g, z, weight, FusedInput::kScale)
                       : g * z;
  }
  if (needs_bias) {
    const at::Tensor& bias = saved.tensors[2];
    // The kernel multiplies by a derivative, which is NaN for a NaN in its second operand. A NaN in
    // g belongs into the sum.
    gradients[2] = has_kernel_for_sums(g, bias, parameters)
                       ? sums_of_rows(op, g, g, bias, FusedInput::kBias)
                       : g;
  }
}

at::Tensor norm_tangent_of_self(const Operator& op, const CallParameters& parameters,
                                const at::Tensor& incoming, const at::Tensor* inputs) {
  const at::Tensor s = slope(op, parameters, wide(inputs[0]), wide(incoming), no_statistics());
  return (s * wide(inputs[1])).to(inputs[0].scalar_type());
}

at::Tensor norm_tangent_of_weight(const Operator& op, const CallParameters& parameters,
                                  const at::Tensor& incoming, const at::Tensor* inputs) {
  const at::Tensor z = normalized(op, parameters, wide(inputs[0]));
  return (wide(incoming) * z).to(inputs[0].scalar_type());
}

// With x without its mean, for a norm that is centered, u = w g, r as in ops/forms/rms_norm.h,
// means instead of sums over n, and p = r^2:
//
//   -r^3 (mean(h u) x + mean(h x) u + mean(u x) h - 3 p mean(h x) mean(u x) x)
//
// where u and h are also without their means.
template <bool IsCentered>
at::Tensor norm_backward_by_self(const Operator& /*op*/, const CallParameters& parameters,
                                 const at::Tensor& incoming, const at::Tensor* inputs) {
  const auto mean = [&](const at::Tensor& t) {
    return at::mean(t, at::IntArrayRef(parameters.dim), /*keepdim=*/true);
  };
  const auto centered = [&](const at::Tensor& t) { return IsCentered ? t - mean(t) : t; };
  const at::Tensor x = centered(wide(inputs[0]));
  const at::Tensor u = centered(wide(inputs[1]) * wide(inputs[2]));
  const at::Tensor h = centered(wide(incoming));
  const at::Tensor r = at::rsqrt(mean(x * x) + parameters.numbers.values[0]);
  const at::Tensor hx = mean(h * x);
  const at::Tensor ux = mean(u * x);
  const at::Tensor by_x = mean(h * u) - 3 * r * r * hx * ux;
  return (-r * r * r * (by_x * x + hx * u + ux * h)).to(inputs[0].scalar_type());
}
template at::Tensor norm_backward_by_self<true>(const Operator&, const CallParameters&,
                                                const at::Tensor&, const at::Tensor*);
template at::Tensor norm_backward_by_self<false>(const Operator&, const CallParameters&,
                                                 const at::Tensor&, const at::Tensor*);

at::Tensor norm_backward_by_grad(const Operator& op, const CallParameters& parameters,
                                 const at::Tensor& incoming, const at::Tensor* inputs) {
  const at::Tensor s = slope(op, parameters, wide(inputs[0]), wide(incoming), inputs + 3);
  return (s * wide(inputs[2])).to(inputs[1].scalar_type());
}

at::Tensor norm_backward_by_weight(const Operator& op, const CallParameters& parameters,
                                   const at::Tensor& incoming, const at::Tensor* inputs) {
  const at::Tensor s = slope(op, parameters, wide(inputs[0]), wide(incoming), inputs + 3);
  return at::sum_to(s * wide(inputs[1]), inputs[2].sym_sizes()).to(inputs[2].scalar_type());
}

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

// Derivatives of the norms.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <utility>
#include <vector>

#include "registration/checks.h"
#include "registration/composites/composites.h"
#include "registration/composites/norms.h"
#include "registration/operators/signature.h"
#include "registration/row_vectors.h"

namespace fastact {
namespace {

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

// Computes the statistics of x into `computed`, and returns a pointer to them.
const at::Tensor* computed_statistics(const Operator& op, const CallParameters& parameters,
                                      const at::Tensor& x, at::Tensor (&computed)[kMaxResults]) {
  const at::Tensor ones = ones_for(x, parameters);
  const at::Tensor* const tensors[] = {&x, &ones};
  op.called[kNormWithStatistics]->several(nullptr, tensors, parameters, computed);
  return computed + 1;
}

// Returns the gradient of a norm by x. `op` is the norm or its backward operator. `statistics` are
// those of x, or undefined.
at::Tensor gradient_of(const Operator& op, const CallParameters& parameters, const at::Tensor& x,
                       const at::Tensor& g, const at::Tensor& weight,
                       const at::Tensor* statistics) {
  const Operator& backward = *op.called[kNormBackward];
  at::Tensor computed[kMaxResults];
  if (backward.num_inputs() > 3 && !statistics->defined())
    statistics = computed_statistics(op, parameters, x, computed);
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

// Returns true if the operator that computes all gradients takes these vectors, and if the
// gradients need no derivatives themselves.
bool has_operator_for(const at::Tensor& x, const at::Tensor& g, const at::Tensor& weight,
                      const at::Tensor& bias, const CallParameters& parameters) {
  const auto is_taken = [](const at::Tensor& tensor) {
    return !tensor.defined() || !is_transformed(tensor);
  };
  return !at::GradMode::is_enabled() && is_taken(x) && is_taken(g) && is_taken(weight) &&
         is_taken(bias) && lie_along_last_dimension(x, parameters) &&
         is_vector_of_rows(weight, x) &&
         (!bias.defined() || bias.sym_sizes() == weight.sym_sizes());
}

// Returns the gradient of a fused form's scale, sum(g z), or of its bias, sum(g).
at::Tensor sums_of_rows(const Operator& op, const at::Tensor& g, const at::Tensor& z,
                        const at::Tensor& vector, FusedInput result) {
  // The kernel takes contiguous rows, or channels.
  c10::DimVector shape = {-1, g.size(-1)};
  const bool is_row = vector.dim() == 1;
  if (!is_row) shape = {g.size(0), vector.numel(), g.size(-1) / vector.size(-1)};
  const at::Tensor g_rows = g.reshape(shape).contiguous();
  const at::Tensor z_rows = z.is_same(g) ? g_rows : z.reshape(shape).contiguous();
  c10::DimVector of_vector = {vector.numel()};
  if (!is_row) of_vector.push_back(1);
  const at::Tensor scale = at::ones(of_vector, g.options());
  const at::Tensor bias = at::zeros_like(scale);
  const at::Tensor* const tensors[] = {&g_rows, &z_rows,          &scale,
                                       &bias,   &absent_tensor(), &absent_tensor()};
  CallParameters parameters;
  parameters.numbers.values[0] = 1.0;  // Leaky ReLU with this slope is the identity
  parameters.output_mask[static_cast<size_t>(result)] = true;
  at::Tensor sums[kFusedInputs];
  op.called[kNormSums]->several(nullptr, tensors, parameters, sums);
  return sums[static_cast<size_t>(result)].view(vector.sizes());
}

}  // namespace

void compose_norm_gradients(const Operator& op, TensorPointers tensors,
                            const CallParameters& parameters, at::Tensor* results) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor& x = *tensors[kNormSelf];
  const at::Tensor& weight = *tensors[kNormWeight];
  if (parameters.output_mask[kBySelf])
    results[kBySelf] = op.called[kNormBackward]->call(tensors, parameters);
  const at::Tensor g = wide(*tensors[kNormGradOutput]);
  if (parameters.output_mask[kByWeight]) {
    const at::Tensor z = normalized(op, parameters, wide(x));
    results[kByWeight] = sums_of_rows(op, g, z, weight, FusedInput::kScale);
  }
  // The kernel multiplies by a derivative, which is NaN for a NaN in its second operand. A NaN in g
  // must reach the sum.
  if (parameters.output_mask[kByBias])
    results[kByBias] = sums_of_rows(op, g, g, weight, FusedInput::kBias);
}

void norm_gradients(const Operator& op, const CallParameters& parameters,
                    const at::Tensor& incoming, const SavedInputs& saved,
                    const std::vector<bool>& needed, at::Tensor* gradients) {
  const at::Tensor& self = saved.tensors[0];
  const at::Tensor& weight = saved.tensors[1];
  const bool needs_bias = op.num_inputs() > 2 && needed[2];
  const at::Tensor& bias = needs_bias ? saved.tensors[2] : absent_tensor();
  const Operator& all = *op.called[kNormGradients];
  const at::Tensor* statistics =
      op.num_statistics() > 0 ? saved.tensors + op.num_inputs() : no_statistics();
  if ((needed[1] || needs_bias) && has_operator_for(self, incoming, weight, bias, parameters)) {
    at::Tensor computed[kMaxResults];
    if (all.num_inputs() > 3 && !statistics->defined())
      statistics = computed_statistics(op, parameters, self, computed);
    const at::Tensor* const tensors[] = {&self, &incoming, &weight, statistics, statistics + 1};
    CallParameters masked = parameters;
    masked.output_mask[kBySelf] = needed[0];
    masked.output_mask[kByWeight] = needed[1];
    masked.output_mask[kByBias] = needs_bias;
    at::Tensor results[kMaxResults];
    all.several(nullptr, tensors, masked, results);
    // Without a bias, the norm has one input fewer than there are results.
    for (int i = 0; i < op.num_inputs(); ++i) gradients[i] = std::move(results[i]);
    return;
  }
  if (needed[0]) gradients[0] = gradient_of(op, parameters, self, incoming, weight, statistics);
  const at::Tensor g = wide(incoming);
  if (needed[1]) gradients[1] = g * normalized(op, parameters, wide(self));
  if (needs_bias) gradients[2] = g;
}

at::Tensor norm_tangent_of_self(const Operator& op, const CallParameters& parameters,
                                const at::Tensor& incoming, const at::Tensor* inputs) {
  const at::Tensor s = slope(op, parameters, wide(inputs[0]), wide(incoming), no_statistics());
  const at::Tensor weight = repeated_along_rows(wide(inputs[1]), s, parameters.dim);
  return (s * weight).to(inputs[0].scalar_type());
}

at::Tensor norm_tangent_of_weight(const Operator& op, const CallParameters& parameters,
                                  const at::Tensor& incoming, const at::Tensor* inputs) {
  const at::Tensor z = normalized(op, parameters, wide(inputs[0]));
  const at::Tensor tangent = repeated_along_rows(wide(incoming), z, parameters.dim);
  return (tangent * z).to(inputs[0].scalar_type());
}

at::Tensor norm_tangent_of_bias(const Operator& /*op*/, const CallParameters& parameters,
                                const at::Tensor& incoming, const at::Tensor* inputs) {
  return repeated_along_rows(incoming, inputs[0], parameters.dim);
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
  const at::Tensor weight = repeated_along_rows(wide(inputs[2]), x, parameters.dim);
  const at::Tensor u = centered(wide(inputs[1]) * weight);
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
  const at::Tensor weight = repeated_along_rows(wide(inputs[2]), s, parameters.dim);
  return (s * weight).to(inputs[1].scalar_type());
}

at::Tensor norm_backward_by_weight(const Operator& op, const CallParameters& parameters,
                                   const at::Tensor& incoming, const at::Tensor* inputs) {
  const at::Tensor s = slope(op, parameters, wide(inputs[0]), wide(incoming), inputs + 3);
  return sum_to_vector(s * wide(inputs[1]), inputs[2], parameters.dim).to(inputs[2].scalar_type());
}

}  // namespace fastact

// group_norm and instance_norm: layer_norm of each group of channels, with a weight and a bias for
// each channel.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <utility>

#include "fastact/fastact.h"
#include "registration/checks.h"
#include "registration/composites/composites.h"
#include "registration/composites/norm_of_rows.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

// The groups of an input [N, C, ...], as rows [N, groups, elements of a group].
class Groups {
 public:
  Groups(const char* name, const at::Tensor& input, const c10::SymInt& groups,
         const OptionalTensor& weight, const OptionalTensor& bias)
      : input_(input) {
    TORCH_CHECK(input.dim() >= 2, "fastact::", name,
                ": expected input to have at least 2 dimensions, but got ", input.dim());
    const c10::SymInt batch = input.sym_size(0);
    const c10::SymInt channels = input.sym_size(1);
    TORCH_CHECK(groups > 0 && channels % groups == 0, "fastact::", name,
                ": expected num_groups to divide the number of channels, ", channels, ", but got ",
                groups);
    TORCH_CHECK_NOT_IMPLEMENTED(
        engine_type(input.scalar_type()).has_value(), "fastact::", name,
        ": expected input to be float32, float64, bfloat16 or float16, but got ",
        input.scalar_type());
    for (const auto& [tensor, its_name] : {std::pair(&weight, "weight"), std::pair(&bias, "bias")})
      if (is_present(*tensor)) check_vector(name, its_name, **tensor, channels);
    const c10::SymInt of_group = channels / groups;
    c10::SymInt length = of_group;
    for (int64_t d = 2; d < input.dim(); ++d) length *= input.sym_size(d);
    const std::array<c10::SymInt, 3> shape = {batch, groups, length};
    rows_ = input.reshape_symint(shape);
    const auto of_channels = [&](const OptionalTensor& tensor) {
      const std::array<c10::SymInt, 2> split = {groups, of_group};
      return is_present(tensor) ? OptionalTensor(tensor->reshape_symint(split)) : std::nullopt;
    };
    weight_ = of_channels(weight);
    bias_ = of_channels(bias);
  }

  // The result is contiguous.
  [[nodiscard]] at::Tensor norm(double eps) const {
    return NormOfRows(rows_, weight_, bias_, eps)
        .result(layer_norm_operator(bias_), &layer_norm_operator_with_statistics(bias_),
                input_.sym_sizes());
  }

  at::Tensor& write(double eps, at::Tensor& out) const {
    return NormOfRows(rows_, weight_, bias_, eps)
        .write(layer_norm_operator(bias_), input_.sym_sizes(), out);
  }

  [[nodiscard]] const at::Tensor& rows() const { return rows_; }

 private:
  // Weight and bias have a number for each channel, and the type of the input; or float32, if that
  // is a 16-bit type.
  void check_vector(const char* name, const char* its_name, const at::Tensor& vector,
                    const c10::SymInt& channels) const {
    TORCH_CHECK(vector.dim() == 1 && vector.sym_size(0) == channels, "fastact::", name,
                ": expected ", its_name, " to have the shape [", channels, "], but got ",
                vector.sym_sizes());
    const c10::ScalarType type = input_.scalar_type();
    TORCH_CHECK(vector.scalar_type() == type ||
                    (vector.scalar_type() == at::kFloat && c10::elementSize(type) == 2),
                "fastact::", name, ": expected ", its_name, " to have the type of input, ", type,
                c10::elementSize(type) == 2 ? ", or to be Float" : "", ", but got ",
                vector.scalar_type());
    TORCH_CHECK(vector.device() == input_.device(), "fastact::", name, ": expected ", its_name,
                " to be on the device of input, ", input_.device(), ", but got ", vector.device());
  }

  const at::Tensor& input_;
  at::Tensor rows_;
  OptionalTensor weight_;
  OptionalTensor bias_;
};

at::Tensor group_norm_of(const at::Tensor& input, int64_t num_groups, const OptionalTensor& weight,
                         const OptionalTensor& bias, double eps) {
  const at::Tensor result = Groups("group_norm", input, num_groups, weight, bias).norm(eps);
  // As ATen's: on a CPU, the result has the memory format of the input.
  const c10::MemoryFormat format = input.suggest_memory_format();
  return input.is_cpu() && format != c10::MemoryFormat::Contiguous ? result.clone(format) : result;
}

at::Tensor& group_norm_to(const at::Tensor& input, int64_t num_groups, const OptionalTensor& weight,
                          const OptionalTensor& bias, double eps, at::Tensor& out) {
  return Groups("group_norm", input, num_groups, weight, bias).write(eps, out);
}

// A running statistic has one number for each channel, and no gradient.
void check_running(const char* name, const OptionalTensor& running, const at::Tensor& input) {
  if (!is_present(running)) return;
  TORCH_CHECK(running->dim() == 1 && running->sym_size(0) == input.sym_size(1),
              "fastact::instance_norm: expected ", name, " to have the shape [", input.sym_size(1),
              "], but got ", running->sym_sizes());
  TORCH_CHECK(running->device() == input.device(), "fastact::instance_norm: expected ", name,
              " to be on the device of input, ", input.device(), ", but got ", running->device());
  TORCH_CHECK(!running->requires_grad(), "fastact::instance_norm: expected ", name,
              " not to require a gradient, but got one that does");
}

// Returns the running statistic, moved towards the mean over the batch of `of_rows`, [N, C, 1]. The
// multiplications and the addition are separate operators, so that every device rounds each of
// them.
at::Tensor moved(const OptionalTensor& running, const at::Tensor& of_rows, double momentum) {
  if (!is_present(running)) return {};
  const at::Tensor of_batch = fastact::mean(of_rows.squeeze(-1), at::IntArrayRef{0});
  return wide(*running) * (1.0 - momentum) + of_batch * momentum;
}

at::Tensor instance_norm_of(const at::Tensor& input, const OptionalTensor& weight,
                            const OptionalTensor& bias, const OptionalTensor& running_mean,
                            const OptionalTensor& running_var, bool use_input_stats,
                            double momentum, double eps) {
  TORCH_CHECK(input.dim() >= 2,
              "fastact::instance_norm: expected input to have at least 2 dimensions, but got ",
              input.dim());
  TORCH_CHECK(use_input_stats || (is_present(running_mean) && is_present(running_var)),
              "fastact::instance_norm: expected running_mean and running_var with "
              "use_input_stats=False, but got None");
  check_running("running_mean", running_mean, input);
  check_running("running_var", running_var, input);
  if (!use_input_stats) {
    return at::batch_norm(input.contiguous(), weight, bias, running_mean, running_var,
                          /*training=*/false, momentum, eps, /*cudnn_enabled=*/false);
  }
  const Groups instances("instance_norm", input, input.sym_size(1), weight, bias);
  at::Tensor result = instances.norm(eps);
  if ((is_present(running_mean) || is_present(running_var)) && input.sym_numel() != 0) {
    const at::NoGradGuard no_grad;
    const c10::AutoFwGradMode no_tangents(/*enabled=*/false);
    const auto [variance, mean] =
        fastact::var_mean(wide(instances.rows()), at::IntArrayRef{-1}, /*correction=*/1,
                          /*keepdim=*/true);
    // Written last, because they may share memory with each other, the input or the weight.
    const at::Tensor next_mean = moved(running_mean, mean, momentum);
    const at::Tensor next_var = moved(running_var, variance, momentum);
    if (next_mean.defined()) running_mean->copy_(next_mean);
    if (next_var.defined()) running_var->copy_(next_var);
  }
  return result;
}

void define_group_norms(torch::Library& library) {
  for (const auto* const schema :
       {"group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, "
        "float eps=1e-05) -> Tensor",
        "group_norm.out(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, "
        "float eps=1e-05, *, Tensor(a!) out) -> Tensor(a!)",
        "instance_norm(Tensor input, Tensor? weight=None, Tensor? bias=None, "
        "Tensor(a!)? running_mean=None, Tensor(b!)? running_var=None, bool use_input_stats=True, "
        "float momentum=0.1, float eps=1e-05) -> Tensor"}) {
    library.def(schema, {at::Tag::pt2_compliant_tag});
  }
}

void implement_group_norms(torch::Library& library) {
  library.impl("group_norm", &group_norm_of);
  library.impl("group_norm.out", &group_norm_to);
  library.impl("instance_norm", &instance_norm_of);
}

}  // namespace

const Composites kGroupNormComposites = {.define = &define_group_norms,
                                         .implement = &implement_group_norms};

// ---- The functions of fastact.h

namespace {
using GroupNorm = at::Tensor(const at::Tensor&, int64_t, const OptionalTensor&,
                             const OptionalTensor&, double);
using GroupNormOut = at::Tensor&(const at::Tensor&, int64_t, const OptionalTensor&,
                                 const OptionalTensor&, double, at::Tensor&);
using InstanceNorm = at::Tensor(const at::Tensor&, const OptionalTensor&, const OptionalTensor&,
                                const OptionalTensor&, const OptionalTensor&, bool, double, double);
}  // namespace

at::Tensor group_norm(const at::Tensor& input, int64_t num_groups,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps) {
  static constinit const LazyOperator<GroupNorm> op("fastact::group_norm", "");
  return op.dispatch(nullptr, input, num_groups, weight, bias, eps);
}
at::Tensor& group_norm_out(at::Tensor& out, const at::Tensor& input, int64_t num_groups,
                           const std::optional<at::Tensor>& weight,
                           const std::optional<at::Tensor>& bias, double eps) {
  static constinit const LazyOperator<GroupNormOut> op("fastact::group_norm", "out");
  return op.dispatch(nullptr, input, num_groups, weight, bias, eps, out);
}
at::Tensor instance_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                         const std::optional<at::Tensor>& bias,
                         const std::optional<at::Tensor>& running_mean,
                         const std::optional<at::Tensor>& running_var, bool use_input_stats,
                         double momentum, double eps) {
  static constinit const LazyOperator<InstanceNorm> op("fastact::instance_norm", "");
  return op.dispatch(nullptr, input, weight, bias, running_mean, running_var, use_input_stats,
                     momentum, eps);
}

}  // namespace fastact

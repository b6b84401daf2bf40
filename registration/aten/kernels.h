// The table of replaced ATen operators, and the kernels that replace them on any device.
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "registration/aten/call.h"
#include "registration/aten/override.h"
#include "registration/device_kernels.h"

// Each replaced ATen kernel: V(functions, operator) for its functional form, I for the in-place
// form, O for out=, G for out= of a derivative. `functions` is the namespace of ATen's own kernels,
// at::cpu or at::cuda. Operators that only call other ATen operators (relu6, selu, log_sigmoid,
// prelu) are not listed, because the operators they call are replaced.
#define FASTACT_ATEN_OPERATORS(functions, V, I, O, G) \
  V(functions, relu)                                  \
  I(functions, relu)                                  \
  V(functions, elu)                                   \
  I(functions, elu)                                   \
  O(functions, elu)                                   \
  V(functions, elu_backward)                          \
  G(functions, elu_backward)                          \
  V(at::compositeexplicitautograd, celu)              \
  I(at::compositeexplicitautograd, celu)              \
  V(functions, leaky_relu)                            \
  I(functions, leaky_relu)                            \
  O(functions, leaky_relu)                            \
  V(functions, leaky_relu_backward)                   \
  G(functions, leaky_relu_backward)                   \
  V(functions, hardtanh)                              \
  I(functions, hardtanh)                              \
  O(functions, hardtanh)                              \
  V(functions, hardtanh_backward)                     \
  G(functions, hardtanh_backward)                     \
  V(functions, threshold)                             \
  I(functions, threshold)                             \
  O(functions, threshold)                             \
  V(functions, threshold_backward)                    \
  G(functions, threshold_backward)                    \
  V(functions, hardswish)                             \
  I(functions, hardswish)                             \
  O(functions, hardswish)                             \
  V(functions, hardswish_backward)                    \
  V(functions, hardsigmoid)                           \
  I(functions, hardsigmoid)                           \
  O(functions, hardsigmoid)                           \
  V(functions, hardsigmoid_backward)                  \
  G(functions, hardsigmoid_backward)                  \
  V(functions, sigmoid)                               \
  I(functions, sigmoid)                               \
  O(functions, sigmoid)                               \
  V(functions, sigmoid_backward)                      \
  G(functions, sigmoid_backward)                      \
  V(functions, tanh)                                  \
  I(functions, tanh)                                  \
  O(functions, tanh)                                  \
  V(functions, tanh_backward)                         \
  G(functions, tanh_backward)                         \
  V(functions, silu)                                  \
  I(functions, silu)                                  \
  O(functions, silu)                                  \
  V(functions, silu_backward)                         \
  G(functions, silu_backward)                         \
  V(functions, gelu)                                  \
  I(functions, gelu)                                  \
  O(functions, gelu)                                  \
  V(functions, gelu_backward)                         \
  G(functions, gelu_backward)                         \
  V(functions, mish)                                  \
  I(functions, mish)                                  \
  O(functions, mish)                                  \
  V(functions, mish_backward)                         \
  V(functions, softplus)                              \
  O(functions, softplus)                              \
  V(functions, softplus_backward)                     \
  G(functions, softplus_backward)                     \
  V(functions, log_sigmoid_backward)                  \
  G(functions, log_sigmoid_backward)                  \
  V(functions, softshrink)                            \
  O(functions, softshrink)                            \
  V(functions, softshrink_backward)                   \
  G(functions, softshrink_backward)                   \
  V(functions, hardshrink)                            \
  O(functions, hardshrink)                            \
  V(functions, hardshrink_backward)                   \
  G(functions, hardshrink_backward)                   \
  V(functions, _softmax)                              \
  O(functions, _softmax)                              \
  V(functions, _softmax_backward_data)                \
  O(functions, _softmax_backward_data)                \
  V(functions, _log_softmax)                          \
  O(functions, _log_softmax)                          \
  V(functions, _log_softmax_backward_data)            \
  O(functions, _log_softmax_backward_data)

namespace fastact::aten {

// Records FastAct's operator in a profile, below ATen's, like the dispatcher.
class Recorded {
 public:
  explicit Recorded(const Operator& op) {
    if (auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION)) {
      record_.emplace(std::move(*callbacks));
      record_->before(op.qualified_name.c_str());
    }
  }

 private:
  std::optional<at::RecordFunction> record_;
};

// FastAct's kernels for a device, in the forms in which ATen's operators are called.
struct Device {
  const DeviceKernels* kernels;

  [[nodiscard]] at::Tensor functional(const StandIn& stand_in, const Call& call) const {
    if (stand_in.like >= 0) return functional_like(*call.tensors[stand_in.like], call);
    const Recorded recorded(*call.op);
    at::Tensor result = kernels->functional({}, *call.op, call.tensors, call.parameters);
    return call.result_dtype.has_value() ? result.to(*call.result_dtype) : result;
  }

  // Returns a result with the layout of at::empty_like().
  [[nodiscard]] at::Tensor functional_like(const at::Tensor& like, const Call& call) const {
    at::Tensor result = at::empty_like(like);
    return out(call, result);
  }

  at::Tensor& in_place(const Call& call, at::Tensor& self) const {
    const Recorded recorded(*call.op);
    return kernels->in_place({}, *call.op, self, call.parameters);
  }

  at::Tensor& out(const Call& call, at::Tensor& out) const {
    const Recorded recorded(*call.op);
    return kernels->out({}, *call.op, call.tensors, call.parameters, out);
  }
};

enum class Form { kFunctional, kInPlace, kOut };

// The data common to all kernels here.
struct KernelBase {
  Device device;
  StandIn stand_in;
};

// A kernel for the dispatcher with the signature of `Aten`, a function that calls ATen's own kernel
// without the dispatcher. Calls that FastAct does not take go there.
template <Form TheForm, auto Aten>
struct Kernel;

template <class... Arguments, at::Tensor (*Aten)(Arguments...)>
struct Kernel<Form::kFunctional, Aten> : KernelBase {
  at::Tensor operator()(Arguments... arguments) const {
    const Call call(stand_in, arguments...);
    return call.is_taken() ? device.functional(stand_in, call) : Aten(arguments...);
  }
};

template <class... Arguments, at::Tensor& (*Aten)(at::Tensor&, Arguments...)>
struct Kernel<Form::kInPlace, Aten> : KernelBase {
  at::Tensor& operator()(at::Tensor& self, Arguments... arguments) const {
    const Call call(stand_in, self, arguments...);
    return call.is_taken(self) ? device.in_place(call, self) : Aten(self, arguments...);
  }
};

// The tensor that is written to follows all other arguments, as in the schemas.
template <class... Arguments, at::Tensor& (*Aten)(Arguments...)>
struct Kernel<Form::kOut, Aten> : KernelBase {
  at::Tensor& operator()(Arguments... arguments) const {
    const auto all = std::tie(arguments...);
    return [&]<size_t... I>(std::index_sequence<I...>) -> at::Tensor& {
      const Call call(stand_in, std::get<I>(all)...);
      at::Tensor& out = std::get<sizeof...(I)>(all);
      return call.is_taken(out) ? device.out(call, out) : Aten(arguments...);
    }(std::make_index_sequence<sizeof...(Arguments) - 1>{});
  }
};

// The kernel of prelu. at::prelu() gives the weight a shape that broadcasts with self.
template <auto Aten>
struct PreluKernel : KernelBase {
  at::Tensor operator()(const at::Tensor& self, const at::Tensor& weight) const {
    const Call call(stand_in, weight, self);
    return call.is_taken() && at::is_expandable_to(weight.sizes(), self.sizes())
               ? device.functional(stand_in, call)
               : Aten(self, weight);
  }
};

// The gradients of prelu by self and by the weight, both in self's shape.
template <auto Aten>
struct PreluBackwardKernel : KernelBase {
  StandIn by_weight;

  std::tuple<at::Tensor, at::Tensor> operator()(const at::Tensor& grad_output,
                                                const at::Tensor& self,
                                                const at::Tensor& weight) const {
    const Call call(stand_in, grad_output, weight, self);
    const Call call_by_weight(by_weight, grad_output, self);
    if (!call.is_taken() || !at::is_expandable_to(weight.sizes(), self.sizes()))
      return Aten(grad_output, self, weight);
    at::Tensor by_self = device.functional(stand_in, call);
    at::Tensor for_weight = device.functional_like(by_self, call_by_weight);
    return {std::move(by_self), std::move(for_weight)};
  }
};

// Shared by the kernels of ATen's norms. They also return the mean and 1 / sqrt(variance + eps) of
// each row, which ATen's backward passes read.
struct NormKernel : KernelBase {
  const Operator* without_bias;

  using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

  // Normalizes along the last dimension. Returns results in these shapes, and the statistics in the
  // type `wanted` or, without it, the kernel's.
  [[nodiscard]] Results normalize(const at::Tensor& rows, const at::Tensor& weight,
                                  const at::Tensor& bias, double eps, at::IntArrayRef shape,
                                  at::IntArrayRef of_statistics,
                                  std::optional<c10::ScalarType> wanted) const {
    at::Tensor ones;
    if (!weight.defined())
      ones = bias.defined() ? at::ones_like(bias) : at::ones({rows.size(-1)}, rows.options());
    const at::Tensor* const tensors[] = {&rows, weight.defined() ? &weight : &ones, &bias};
    const Operator& op = *(bias.defined() ? stand_in.op : without_bias);
    CallParameters parameters;
    parameters.numbers.values[0] = eps;
    parameters.dim = rows.dim() - 1;
    at::Tensor results[3];
    {
      const Recorded recorded(op);
      device.kernels->several({}, op, tensors, parameters, results);
    }
    const c10::ScalarType type = wanted.value_or(results[1].scalar_type());
    return {results[0].view(shape), results[1].to(type).view(of_statistics),
            results[2].to(type).view(of_statistics)};
  }

  // Returns the vector in this shape, or an undefined tensor if there is none.
  static at::Tensor shaped(const std::optional<at::Tensor>& vector, at::IntArrayRef shape) {
    return vector.has_value() && vector->defined() ? vector->reshape(shape) : at::Tensor();
  }
};

// The kernel of native_layer_norm, which layer_norm calls.
template <auto Aten>
struct LayerNormKernel : NormKernel {
  Results operator()(const at::Tensor& input, c10::SymIntArrayRef normalized_shape,
                     const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                     double eps) const {
    const auto shape = C10_AS_INTARRAYREF_SLOW(normalized_shape);
    if (!is_layer_norm_taken(input, shape, weight, bias, eps))
      return Aten(input, normalized_shape, weight, bias, eps);
    c10::DimVector statistics(input.sizes());
    std::fill_n(statistics.end() - static_cast<std::ptrdiff_t>(shape.size()), shape.size(), 1);
    // On a CPU, ATen's statistics have the type of the input.
    const auto type = input.is_cpu() ? std::optional(input.scalar_type()) : std::nullopt;
    return normalize(input.reshape({-1, c10::multiply_integers(shape)}), shaped(weight, {-1}),
                     shaped(bias, {-1}), eps, input.sizes(), statistics, type);
  }
};

// The kernel of native_group_norm, which group_norm calls. The statistics have the type of the
// input.
template <auto Aten>
struct GroupNormKernel : NormKernel {
  Results operator()(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                     const std::optional<at::Tensor>& bias, c10::SymInt batch, c10::SymInt channels,
                     c10::SymInt pixels, int64_t groups, double eps) const {
    const int64_t shape[] = {batch.expect_int(), channels.expect_int(), pixels.expect_int()};
    if (!is_group_norm_taken(input, shape, weight, bias, groups, eps)) {
      return Aten(input, weight, bias, std::move(batch), std::move(channels), std::move(pixels),
                  groups, eps);
    }
    const int64_t rows[] = {shape[0], groups, shape[1] / groups * shape[2]};
    const int64_t vector[] = {groups, shape[1] / groups};
    auto [y, mean, rstd] =
        normalize(input.contiguous().view(rows), shaped(weight, vector), shaped(bias, vector), eps,
                  input.sizes(), {shape[0], groups}, input.scalar_type());
    const c10::MemoryFormat format = input.suggest_memory_format();
    if (input.is_cpu() && format != c10::MemoryFormat::Contiguous) y = y.clone(format);
    return {y, mean, rstd};
  }
};

// Registers kernels for one device. Skips operators for which this build has no stand-in.
class Registrar {
 public:
  Registrar(torch::Library& library, c10::DispatchKey key, const DeviceKernels& kernels)
      : library_(library), key_(key), device_{&kernels} {}

  // `name` is the name of ATen's operator. `suffix` is that of the form: "", "_" or ".out".
  template <Form TheForm, auto Aten>
  void add(const char* name, const char* suffix) {
    const StandIn stand_in = stand_in_for(name);
    if (stand_in.op != nullptr)
      add(std::string(name) + suffix, Kernel<TheForm, Aten>{{device_, stand_in}});
  }

  template <auto Forward, auto Backward>
  void add_prelu() {
    add("_prelu_kernel", PreluKernel<Forward>{{device_, stand_in_for("_prelu_kernel")}});
    add("_prelu_kernel_backward",
        PreluBackwardKernel<Backward>{{device_, stand_in_for("_prelu_backward")},
                                      stand_in_for("_prelu_weight_backward")});
  }

  template <auto LayerNorm, auto GroupNorm>
  void add_norms() {
    if (find_operator("_layer_norm") == nullptr) return;
    const NormKernel norm = {{device_, {find_operator("_layer_norm_with_statistics")}},
                             find_operator("_layer_norm_without_bias_with_statistics")};
    add("native_layer_norm", LayerNormKernel<LayerNorm>{norm});
    add("native_group_norm", GroupNormKernel<GroupNorm>{norm});
  }

  // The tensor that ATen saves in the forward pass depends on the device.
  template <class LogSigmoid, class LogSigmoidOut>
  void add_log_sigmoid() {
    const StandIn stand_in = stand_in_for("log_sigmoid_forward");
    if (stand_in.op == nullptr) return;
    add("log_sigmoid_forward", LogSigmoid{{device_, stand_in}});
    add("log_sigmoid_forward.output", LogSigmoidOut{{device_, stand_in}});
  }

 private:
  template <class Function>
  void add(const std::string& name, Function kernel) {
    library_.impl(name.c_str(), torch::dispatch(key_, std::move(kernel)));
    list_kernel(name, key_);
  }

  torch::Library& library_;
  c10::DispatchKey key_;
  Device device_;
};

#define FASTACT_ATEN_FUNCTIONAL(functions, name) \
  registrar.add<Form::kFunctional, &functions::name>(#name, "");
#define FASTACT_ATEN_IN_PLACE(functions, name) \
  registrar.add<Form::kInPlace, &functions::name##_>(#name, "_");
#define FASTACT_ATEN_OUT(functions, name) \
  registrar.add<Form::kOut, &functions::name##_outf>(#name, ".out");
#define FASTACT_ATEN_GRAD_INPUT(functions, name) \
  registrar.add<Form::kOut, &functions::name##_outf>(#name, ".grad_input");
// Registers the whole table with `registrar`.
#define FASTACT_REGISTER_ATEN_OPERATORS(functions)                                  \
  FASTACT_ATEN_OPERATORS(functions, FASTACT_ATEN_FUNCTIONAL, FASTACT_ATEN_IN_PLACE, \
                         FASTACT_ATEN_OUT, FASTACT_ATEN_GRAD_INPUT)

}  // namespace fastact::aten

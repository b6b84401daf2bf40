// The fused operators (ops/forms/fused.h): the elementwise _fused_<activation>, its gradients, and
// its callers. fused_<activation> gives scale and bias a shape that broadcasts.
// <activation>_and_mul takes the two halves of one tensor.
#include "registration/operators/fused.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/split_with_sizes.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "registration/build_info.h"
#include "registration/checks.h"
#include "registration/operators/operator.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

using Optional = const std::optional<at::Tensor>&;

// ---- Derivatives in differentiable operators, all in float32 for 16-bit types

// The rules name the activation's operators; gradients() uses them.
const Operator& value_of(const Operator& op) { return *op.derivatives[kGate].op; }
const Operator& backward_of(const Operator& op) { return *op.derivatives[kSelf].op; }

// Returns the derivative by one input, for forward mode.
template <int Input>
at::Tensor derivative_by(const Operator& op, const CallParameters& parameters,
                         const at::Tensor& incoming, const at::Tensor* inputs) {
  std::vector<bool> needed(kFusedInputs);
  needed[Input] = true;
  at::Tensor result[kFusedInputs];
  compose_fused_gradients(op, parameters, incoming, inputs, /*self_is_preactivation=*/false, needed,
                          result);
  return result[Input];
}

template <int Input>
DerivativeRule rule(std::string op, std::vector<int> arguments) {
  DerivativeRule result = DerivativeRule::call(std::move(op), std::move(arguments));
  result.composition = &derivative_by<Input>;
  return result;
}

// ---- All gradients at once

// The function for Descriptor::saves_preactivation. A scale's gradient needs self.
bool saves_preactivation(const Operator& /*op*/, TensorPointers tensors) {
  const auto numel = [&](int i) {
    return tensors[i]->defined() ? tensors[i]->sym_numel() : c10::SymInt(0);
  };
  if (tensors[kScale]->defined() && tensors[kScale]->requires_grad()) return false;
  const c10::SymInt largest = std::max({numel(kSelf), numel(kBias), numel(kResidual)});
  return numel(kSelf) + numel(kBias) + numel(kResidual) >= largest * 2;
}

// The function for Descriptor::preactivation. Rounds after each operation, like PyTorch's
// operators.
at::Tensor preactivation_of(TensorPointers tensors) {
  at::Tensor z = *tensors[kSelf];
  const c10::ScalarType type = z.scalar_type();
  if (tensors[kScale]->defined()) z = at::mul(z, tensors[kScale]->to(type));
  for (const int i : {kBias, kResidual})
    if (tensors[i]->defined()) z = at::add(z, tensors[i]->to(type));
  return z;
}

// Returns the operators fastact::_fused_<activation> followed by `end`, by the index of the
// activation. Their names must stay alive.
template <class Function>
std::deque<LazyOperator<Function>>& operators_with(const char* end) {
  auto& list = *new std::deque<LazyOperator<Function>>();
  for (const Activation& activation : activations()) {
    auto* const name = new std::string("fastact::_fused_" + std::string(activation.name));
    list.emplace_back(name->append(end).c_str(), "");
  }
  return list;
}
const LazyOperator<FusedBackward>& backward_operator(const Operator& op) {
  static const auto& all = operators_with<FusedBackward>("_backward");
  return all[op.family];
}
const LazyOperator<FusedWithArgument>& operator_with_argument(const Operator& op) {
  static const auto& all = operators_with<FusedWithArgument>("_with_argument");
  return all[op.family];
}

// Returns true if a key has a kernel for the gradients, which need no derivative themselves.
bool has_kernel(const at::Tensor& incoming, const at::Tensor* inputs) {
  return !at::GradMode::is_enabled() && is_plain(incoming) &&
         std::all_of(inputs, inputs + kFusedInputs, is_plain);
}

at::ArrayRef<double> numbers_of(const Operator& op, const CallParameters& parameters) {
  return {parameters.numbers.values, op.parameters().size()};
}

// The function for Descriptor::with_argument.
std::pair<at::Tensor, at::Tensor> with_argument(const Operator& op, TensorPointers tensors,
                                                const CallParameters& parameters,
                                                const c10::DispatchKeySet* keys) {
  if (!std::all_of(tensors, tensors + kFusedInputs,
                   [](const at::Tensor* tensor) { return is_plain(*tensor); })) {
    return {};
  }
  const auto optional = [&](int i) { return argument_of<1, 1>(*tensors[i]); };
  auto [result, z] = operator_with_argument(op).dispatch(
      keys, *tensors[kSelf], optional(kScale), optional(kBias), optional(kResidual),
      optional(kGate), numbers_of(op, parameters));
  return {std::move(result), std::move(z)};
}

// True if the node has saved z, or the result that serves as z, instead of self.
bool keeps_preactivation(const SavedInputs& saved) {
  return saved.kinds[kSelf] == Saved::kPreactivation || saved.kinds[kSelf] == Saved::kResult;
}

// True if the gradient of self and residual is plain `<activation>_backward(grad, z)`: z is saved,
// the call had neither scale nor gate, and bias needs no gradient. False if the backward operator
// takes the activation's result, because computing f(z) first would take a second pass.
bool is_own_gradient(const Operator& op, const SavedInputs& saved,
                     const std::vector<bool>& needed) {
  return keeps_preactivation(saved) && op.activation->traits.saves != Saves::kOutput &&
         saved.was_absent(kScale) && saved.was_absent(kGate) && !needed[kBias];
}

// The function for Descriptor::gradients.
void gradients(const Operator& op, const CallParameters& parameters, const at::Tensor& incoming,
               const SavedInputs& saved, const std::vector<bool>& needed, at::Tensor* gradients) {
  const at::Tensor* const inputs = saved.tensors;
  if (is_own_gradient(op, saved, needed)) {
    const at::Tensor* const arguments[] = {&incoming, &inputs[kSelf]};
    const at::Tensor slope = backward_of(op).call(arguments, parameters);
    for (const int i : {kSelf, kResidual})
      if (needed[i]) gradients[i] = slope;
    return;
  }
  const bool is_preactivation = keeps_preactivation(saved);
  if (!has_kernel(incoming, inputs)) {
    compose_fused_gradients(op, parameters, incoming, inputs, is_preactivation, needed, gradients);
    return;
  }
  FusedMask mask;
  std::ranges::copy(needed, mask.begin());
  // Without a scale, residual has the same gradient as self.
  const bool is_shared = !is_preactivation && needed[kSelf] && needed[kResidual] &&
                         saved.was_absent(kScale) &&
                         inputs[kSelf].sizes() == inputs[kResidual].sizes();
  if (is_shared) mask[kResidual] = false;
  // The kernel receives z as the self of a call without scale and residual. If the gradient of bias
  // is a sum, a bias of -0.0 gives the sum its shape and leaves z unchanged.
  const bool sums_bias = is_preactivation && needed[kBias] && saved.kinds[kBias] == Saved::kInput;
  at::Tensor no_bias;
  if (is_preactivation) {
    mask = {needed[kSelf] || needed[kBias] || needed[kResidual], false, sums_bias, false,
            needed[kGate]};
    if (sums_bias) no_bias = at::full_like(inputs[kBias], -0.0);
  }
  const auto optional = [&](int i) {
    if (!is_preactivation || i == kGate) return argument_of<1, 1>(inputs[i]);
    return i == kBias && sums_bias ? std::optional(no_bias) : std::nullopt;
  };
  FusedTensors result = backward_operator(op).dispatch(
      nullptr, incoming, inputs[kSelf], optional(kScale), optional(kBias), optional(kResidual),
      optional(kGate), numbers_of(op, parameters), mask);
  std::apply(
      [&](auto&... tensors) {
        int i = 0;
        ((gradients[i++] = std::move(tensors)), ...);
      },
      result);
  if (is_shared) gradients[kResidual] = gradients[kSelf];
  if (!is_preactivation) return;
  const at::Tensor slope = std::move(gradients[kSelf]);
  gradients[kSelf] = at::Tensor();
  for (const int i : {kSelf, kBias, kResidual})
    if (needed[i] && !gradients[i].defined()) gradients[i] = slope;
  if (needed[kSelf] && inputs[kScale].defined()) gradients[kSelf] = at::mul(slope, inputs[kScale]);
}

// The kernel for tensors that have no other.
struct ComposedBackward {
  const Operator* op;

  FusedTensors operator()(const at::Tensor& grad_output, const at::Tensor& self, Optional scale,
                          Optional bias, Optional residual, Optional gate,
                          at::ArrayRef<double> numbers, FusedMask mask) const {
    const FusedArguments call(*op, fused_backward_name(*op), self, scale, bias, residual, gate,
                              numbers);
    at::Tensor inputs[kFusedInputs];
    for (int i = 0; i < kFusedInputs; ++i) inputs[i] = *call.tensors[i];
    return composed_fused_backward(*op, call.parameters, grad_output, inputs, mask);
  }
};

struct ComposedWithArgument {
  const Operator* op;

  std::tuple<at::Tensor, at::Tensor> operator()(const at::Tensor& self, Optional scale,
                                                Optional bias, Optional residual, Optional gate,
                                                at::ArrayRef<double> numbers) const {
    const FusedArguments call(*op, fused_with_argument_name(*op), self, scale, bias, residual, gate,
                              numbers);
    return {op->call(call.tensors, call.parameters), fused_preactivation_of(call.tensors)};
  }
};

// ---- fused_<activation> and <activation>_and_mul

std::string fused_name(const Operator& op) { return op.name.substr(1); }
std::string packed_name(const Operator& op) {
  return std::string(op.activation->name) + "_and_mul";
}

// Gives scale or bias a shape in which a 1-D vector varies along dimension `dim` of self.
at::Tensor along(const Operator& op, int input, const at::Tensor& vector, const at::Tensor& self,
                 int64_t dim) {
  const int64_t rank = self.dim();
  const int64_t last = std::max<int64_t>(rank, 1) - 1;
  TORCH_CHECK_INDEX(-last - 1 <= dim && dim <= last, "fastact::", fused_name(op),
                    ": expected dim to be from ", -last - 1, " to ", last, ", but got ", dim);
  const int64_t position = dim < 0 ? dim + last + 1 : dim;
  if (!vector.defined() || vector.dim() != 1 || position == last) return vector;
  const c10::SymInt size = vector.sym_numel();
  TORCH_CHECK(size == 1 || self.sym_size(position) == 1 || size == self.sym_size(position),
              "fastact::", fused_name(op), ": expected ", op.inputs[input],
              " to have 1 element or ", self.sym_size(position),
              ", as many as self has along dimension ", position, ", but got ", size);
  c10::SymDimVector shape(rank - position, 1);
  shape[0] = size;
  return vector.reshape_symint(shape);
}

// The arguments of the elementwise operator.
struct ElementwiseCall {
  ElementwiseCall(const Operator& op, const at::Tensor& self,
                  const std::optional<at::Tensor>& scale, const std::optional<at::Tensor>& bias,
                  const std::optional<at::Tensor>& residual, const std::optional<at::Tensor>& gate,
                  int64_t dim)
      : scale_along(along(op, kScale, tensor_of(scale), self, dim)),
        bias_along(along(op, kBias, tensor_of(bias), self, dim)),
        tensors{&self, &scale_along, &bias_along, &tensor_of(residual), &tensor_of(gate)} {}

  at::Tensor scale_along;
  at::Tensor bias_along;
  const at::Tensor* tensors[kFusedInputs];
};

// The same for the halves of self's last dimension. The first or the second half is the gate of a
// gated unit, which is the operand of the activation. The halves are views; their backward pass is
// one concatenation.
struct HalvesCall {
  HalvesCall(const Operator& op, const at::Tensor& self, bool gate_first) {
    TORCH_CHECK(self.dim() > 0, "fastact::", packed_name(op),
                ": expected self to have a last dimension, of two halves, but got a 0-D tensor");
    const c10::SymInt size = self.sym_size(-1);
    TORCH_CHECK(size % 2 == 0, "fastact::", packed_name(op),
                ": expected self's last dimension to have an even size, but got ", size);
    halves = at::split_with_sizes_symint(self, {size / 2, size / 2}, -1);
    tensors[kSelf] = &halves[gate_first ? 0 : 1];
    tensors[kGate] = &halves[gate_first ? 1 : 0];
  }

  std::vector<at::Tensor> halves;
  const at::Tensor* tensors[kFusedInputs] = {nullptr, &tensor_of(std::nullopt),
                                             &tensor_of(std::nullopt), &tensor_of(std::nullopt),
                                             nullptr};
};

// Checks an in-place call. It does not resize self, and it overwrites self, from which a backward
// pass would recompute z.
void check_in_place(const Operator& op, TensorPointers tensors) {
  const c10::SymIntArrayRef shape = tensors[kSelf]->sym_sizes();
  for (int i = 0; i < kFusedInputs; ++i) {
    if (!tensors[i]->defined()) continue;
    TORCH_CHECK(at::is_expandable_to(tensors[i]->sym_sizes(), shape), "fastact::", fused_name(op),
                "_: expected ", op.inputs[i], " to broadcast to self's shape ", shape,
                ", but got the shape ", tensors[i]->sym_sizes());
    const bool requires_grad = at::GradMode::is_enabled() && tensors[i]->requires_grad();
    TORCH_CHECK(!requires_grad && !tensors[i]->_fw_grad(/*level=*/0).defined(),
                "fastact::", fused_name(op),
                "_: expected no derivative to be wanted, as it needs self, which is "
                "overwritten, but got ",
                op.inputs[i], requires_grad ? " that requires grad" : " with a tangent");
  }
}

template <class Numbers>
struct Composite;
template <class... P>
struct Composite<Types<P...>> {
  struct Functional {
    const Operator* op;
    at::Tensor operator()(const at::Tensor& self, Optional scale, Optional bias, Optional residual,
                          Optional gate, P... parameters, int64_t dim) const {
      const ElementwiseCall call(*op, self, scale, bias, residual, gate, dim);
      return op->call(call.tensors, collect(parameters...));
    }
  };
  struct InPlace {
    const Operator* op;
    at::Tensor& operator()(at::Tensor& self, Optional scale, Optional bias, Optional residual,
                           Optional gate, P... parameters, int64_t dim) const {
      const ElementwiseCall call(*op, self, scale, bias, residual, gate, dim);
      check_in_place(*op, call.tensors);
      return op->write(nullptr, call.tensors, collect(parameters...), self);
    }
  };
  struct Out {
    const Operator* op;
    at::Tensor& operator()(const at::Tensor& self, Optional scale, Optional bias, Optional residual,
                           Optional gate, P... parameters, int64_t dim, at::Tensor& out) const {
      const ElementwiseCall call(*op, self, scale, bias, residual, gate, dim);
      return op->write(nullptr, call.tensors, collect(parameters...), out);
    }
  };
  struct Packed {
    const Operator* op;
    at::Tensor operator()(const at::Tensor& self, P... parameters, bool gate_first) const {
      const HalvesCall call(*op, self, gate_first);
      return op->call(call.tensors, collect(parameters...));
    }
  };
  struct PackedOut {
    const Operator* op;
    at::Tensor& operator()(const at::Tensor& self, P... parameters, bool gate_first,
                           at::Tensor& out) const {
      const HalvesCall call(*op, self, gate_first);
      return op->write(nullptr, call.tensors, collect(parameters...), out);
    }
  };
};

// Calls visit(name, Composite's functor) for each form of every fused operator.
template <class Visit>
void for_each_composite(const Visit& visit) {
  for (const Operator* op : operators()) {
    if (!op->is_fused) continue;
    with_fused_signature(static_cast<int>(op->parameters().size()),
                         [&]<int Tensors, int Numbers, bool HasFlag, int Absent>(
                             Signature<Tensors, Numbers, HasFlag, Absent>) {
                           using Typed = Composite<typename ParameterTypes<Numbers, HasFlag>::type>;
                           const std::string name = fused_name(*op);
                           visit(name, typename Typed::Functional{op});
                           visit(name + "_", typename Typed::InPlace{op});
                           visit(name + ".out", typename Typed::Out{op});
                           visit(packed_name(*op), typename Typed::Packed{op});
                           visit(packed_name(*op) + ".out", typename Typed::PackedOut{op});
                         });
  }
}

// Returns text such as ", Tensor? scale=None, ..., float alpha=1.0, *, int dim=-1". A parameter
// without a default is keyword-only, because it cannot follow arguments with a default.
std::string fused_arguments(const Operator& op) {
  std::string text;
  for (int i = 1; i < kFusedInputs; ++i)
    text.append(", Tensor? ").append(op.inputs[i]).append("=None");
  std::string keywords = ", *";
  for (const Parameter& parameter : op.parameters()) {
    if (parameter.default_value.has_value()) {
      text.append(", float ").append(op.argument_name(parameter));
      text.append("=").append(literal(*parameter.default_value));
    } else {
      keywords.append(", float ").append(op.argument_name(parameter));
    }
  }
  return text + keywords + ", int dim=-1";
}

}  // namespace

std::string fused_backward_name(const Operator& op) { return op.name + "_backward"; }
std::string fused_with_argument_name(const Operator& op) { return op.name + "_with_argument"; }

at::Tensor fused_preactivation_of(TensorPointers tensors) {
  static const Operator& identity = operator_named("_fused_leaky_relu");
  CallParameters parameters;
  parameters.numbers.values[0] = 1.0;
  const at::Tensor* operands[kFusedInputs];
  std::copy_n(tensors, kFusedInputs, operands);
  operands[kGate] = &tensor_of(std::nullopt);
  return identity.call(operands, parameters);
}

FusedArguments::FusedArguments(const Operator& op, const std::string& name, const at::Tensor& self,
                               Optional scale, Optional bias, Optional residual, Optional gate,
                               at::ArrayRef<double> numbers)
    : tensors{&self, &tensor_of(scale), &tensor_of(bias), &tensor_of(residual), &tensor_of(gate)} {
  TORCH_CHECK_VALUE(numbers.size() == op.parameters().size(), "fastact::", name, ": expected ",
                    op.parameters().size(), " parameters, but got ", numbers.size());
  std::ranges::copy(numbers, parameters.numbers.values);
}

FusedTensors composed_fused_backward(const Operator& op, const CallParameters& parameters,
                                     const at::Tensor& grad_output, const at::Tensor* inputs,
                                     const FusedMask& mask) {
  std::array<at::Tensor, kFusedInputs> gradients;
  compose_fused_gradients(op, parameters, grad_output, inputs, /*self_is_preactivation=*/false,
                          std::vector<bool>(mask.begin(), mask.end()), gradients.data());
  for (int i = 0; i < kFusedInputs; ++i) {
    if (!mask[i]) continue;
    TORCH_CHECK_VALUE(!is_fused_vector(i) || inputs[i].defined(),
                      "fastact::", fused_backward_name(op), ": expected ", op.inputs[i],
                      ", whose gradient is asked for, but got None");
    // Sums before rounding.
    if (inputs[i].defined()) gradients[i] = at::sum_to(gradients[i], inputs[i].sym_sizes());
    gradients[i] = gradients[i].to((inputs[i].defined() ? inputs[i] : inputs[kSelf]).scalar_type());
    // The results of an operator must not share memory.
    const auto own = gradients.begin() + i;
    if (std::any_of(gradients.begin(), own,
                    [&](const at::Tensor& other) { return other.is_same(*own); })) {
      *own = own->clone();
    }
  }
  return std::apply([](const auto&... each) { return FusedTensors(each...); }, gradients);
}

void compose_fused_gradients(const Operator& op, const CallParameters& parameters,
                             const at::Tensor& incoming, const at::Tensor* inputs,
                             bool self_is_preactivation, const std::vector<bool>& needed,
                             at::Tensor* gradients) {
  const c10::ScalarType element = inputs[kSelf].scalar_type();
  const c10::ScalarType type = element == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor numbers[kFusedInputs];
  for (int i = 0; i < kFusedInputs; ++i) {
    if (inputs[i].defined()) numbers[i] = inputs[i].to(type);
  }
  const auto& [self, scale, bias, residual, gate] = numbers;
  at::Tensor z = self;
  if (!self_is_preactivation) {
    if (scale.defined()) {
      z = bias.defined() ? at::addcmul(bias, z, scale) : at::mul(z, scale);
    } else if (bias.defined()) {
      z = at::add(z, bias);
    }
    if (residual.defined()) z = at::add(z, residual);
  }

  const bool takes_output = op.activation->traits.saves == Saves::kOutput;
  const bool needs_slope = needed[kSelf] || needed[kScale] || needed[kBias] || needed[kResidual];
  const at::Tensor* const argument[] = {&z};
  at::Tensor value;
  if (needed[kGate] || (needs_slope && takes_output))
    value = value_of(op).call(argument, parameters);
  at::Tensor g = incoming.to(type);
  if (needed[kGate]) gradients[kGate] = at::mul(g, value);
  if (!needs_slope) return;
  if (gate.defined()) g = at::mul(g, gate);
  const at::Tensor* const arguments[] = {&g, takes_output ? &value : &z};
  const at::Tensor slope = backward_of(op).call(arguments, parameters);
  if (needed[kSelf]) gradients[kSelf] = scale.defined() ? at::mul(slope, scale) : slope;
  if (needed[kScale]) gradients[kScale] = at::mul(slope, self);
  if (needed[kBias]) gradients[kBias] = slope;
  if (needed[kResidual]) gradients[kResidual] = slope;
}

Descriptor fused_operator(const Activation& activation, int family) {
  const std::string name(activation.name);
  Descriptor result;
  result.name = "_fused_" + name;
  result.inputs = {"self", "scale", "bias", "residual", "gate"};
  result.family = family;
  result.activation = &activation;
  result.out = "out";
  result.is_fused = true;
  result.gradients = &gradients;
  result.saves_preactivation = &saves_preactivation;
  result.preactivation = &preactivation_of;
  result.with_argument = &with_argument;
  const std::vector<int> of_backward = {DerivativeRule::kIncoming, kSelf};
  result.derivatives = {
      rule<kSelf>(name + "_backward", of_backward), rule<kScale>(name + "_backward", of_backward),
      rule<kBias>(name + "_backward", of_backward),
      rule<kResidual>(name + "_backward", of_backward), rule<kGate>(name, {kSelf})};
  return result;
}

TORCH_LIBRARY_FRAGMENT(fastact, library) {
  const auto define = [&](const std::string& schema) {
    library.def(schema.c_str(), {at::Tag::pt2_compliant_tag});
  };
  for (const Operator* op : operators()) {
    if (!op->is_fused) continue;
    for (const auto& [name, arguments] :
         {std::pair(fused_name(*op), fused_arguments(*op)),
          std::pair(packed_name(*op), parameter_arguments(*op) + ", *, bool gate_first=True")}) {
      define(c10::str(name, "(Tensor self", arguments, ") -> Tensor"));
      define(c10::str(name, ".out(Tensor self", arguments, ", Tensor(a!) out) -> Tensor(a!)"));
    }
    define(fused_backward_name(*op) +
           "(Tensor grad_output, Tensor self, Tensor? scale, Tensor? bias, Tensor? residual, "
           "Tensor? gate, float[] parameters, bool[5] output_mask) -> "
           "(Tensor, Tensor, Tensor, Tensor, Tensor)");
    define(fused_with_argument_name(*op) +
           "(Tensor self, Tensor? scale, Tensor? bias, Tensor? residual, Tensor? gate, "
           "float[] parameters) -> (Tensor, Tensor)");
    define(fused_name(*op) + "_(Tensor(a!) self" + fused_arguments(*op) + ") -> Tensor(a!)");
  }
}

// Not CompositeImplicitAutograd: a FakeTensor would then have the strides of the composition.
TORCH_LIBRARY_IMPL(fastact, CompositeExplicitAutograd, library) {
  for (const Operator* op : operators()) {
    if (!op->is_fused) continue;
    library.impl(fused_backward_name(*op).c_str(), ComposedBackward{op});
    library.impl(fused_with_argument_name(*op).c_str(), ComposedWithArgument{op});
  }
}

TORCH_LIBRARY_IMPL(fastact, CompositeImplicitAutograd, library) {
  for_each_composite(
      [&](const std::string& name, auto functor) { library.impl(name.c_str(), functor); });
}

TORCH_LIBRARY_IMPL(fastact, Functionalize, library) {
  for_each_composite(
      [&](const std::string& name, auto functor) { library.impl(name.c_str(), functor); });
}

TORCH_LIBRARY_IMPL(fastact, FuncTorchBatched, library) {
  for_each_composite(
      [&](const std::string& name, auto functor) { library.impl(name.c_str(), functor); });
}

}  // namespace fastact

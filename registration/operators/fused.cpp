// The fused operators (ops/forms/fused.h): fused_<activation>, which brings scale and bias into a
// shape that broadcasts, and the elementwise _fused_<activation>, which it calls.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/mul.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string>

#include "registration/build_info.h"
#include "registration/operators/operator.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

constexpr int kSelf = static_cast<int>(FusedInput::kSelf);
constexpr int kScale = static_cast<int>(FusedInput::kScale);
constexpr int kBias = static_cast<int>(FusedInput::kBias);
constexpr int kResidual = static_cast<int>(FusedInput::kResidual);
constexpr int kGate = static_cast<int>(FusedInput::kGate);

// ---- Derivatives, in operators that have derivatives: of 16 bits all of it in float32

// The rules name the activation's operators, for gradients().
const Operator& value_of(const Operator& op) { return *op.derivatives[kGate].op; }
const Operator& backward_of(const Operator& op) { return *op.derivatives[kSelf].op; }

// Operator::gradients; not summed where an input broadcasts.
void gradients(const Operator& op, const CallParameters& parameters, const at::Tensor& incoming,
               const at::Tensor* inputs, const std::vector<bool>& needed, at::Tensor* gradients) {
  const c10::ScalarType element = inputs[kSelf].scalar_type();
  const c10::ScalarType type = element == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor numbers[kFusedInputs];
  for (int i = 0; i < kFusedInputs; ++i) {
    if (inputs[i].defined()) numbers[i] = inputs[i].to(type);
  }
  const auto& [self, scale, bias, residual, gate] = numbers;
  at::Tensor z = self;
  if (scale.defined()) {
    z = bias.defined() ? at::addcmul(bias, z, scale) : at::mul(z, scale);
  } else if (bias.defined()) {
    z = at::add(z, bias);
  }
  if (residual.defined()) z = at::add(z, residual);

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

// By one input, for forward mode.
template <int Input>
at::Tensor derivative_by(const Operator& op, const CallParameters& parameters,
                         const at::Tensor& incoming, const at::Tensor* inputs) {
  std::vector<bool> needed(kFusedInputs);
  needed[Input] = true;
  at::Tensor result[kFusedInputs];
  gradients(op, parameters, incoming, inputs, needed, result);
  return result[Input];
}

template <int Input>
DerivativeRule rule(std::string op, std::vector<int> arguments) {
  DerivativeRule result = DerivativeRule::call(std::move(op), std::move(arguments));
  result.composition = &derivative_by<Input>;
  return result;
}

// ---- fused_<activation>

// scale or bias: one in one dimension lies along self's dimension `dim`.
at::Tensor along(const Operator& op, int input, const at::Tensor& vector, const at::Tensor& self,
                 int64_t dim) {
  const int64_t rank = self.dim();
  const int64_t last = std::max<int64_t>(rank, 1) - 1;
  TORCH_CHECK_INDEX(-last - 1 <= dim && dim <= last, "fastact::", op.name.substr(1),
                    ": expected dim to be from ", -last - 1, " to ", last, ", but got ", dim);
  const int64_t position = dim < 0 ? dim + last + 1 : dim;
  if (!vector.defined() || vector.dim() != 1 || position == last) return vector;
  const c10::SymInt size = vector.sym_numel();
  TORCH_CHECK(size == 1 || self.sym_size(position) == 1 || size == self.sym_size(position),
              "fastact::", op.name.substr(1), ": expected ", op.inputs[input],
              " to have 1 element or ", self.sym_size(position),
              ", as many as self has along dimension ", position, ", but got ", size);
  c10::SymDimVector shape(rank - position, 1);
  shape[0] = size;
  return vector.reshape_symint(shape);
}

// The call of the elementwise operator.
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

using Optional = const std::optional<at::Tensor>&;

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
  struct Out {
    const Operator* op;
    at::Tensor& operator()(const at::Tensor& self, Optional scale, Optional bias, Optional residual,
                           Optional gate, P... parameters, int64_t dim, at::Tensor& out) const {
      const ElementwiseCall call(*op, self, scale, bias, residual, gate, dim);
      return op->write(nullptr, call.tensors, collect(parameters...), out);
    }
  };
};

// visit(name, Composite's functor) for both forms of every fused operator.
template <class Visit>
void for_each_composite(const Visit& visit) {
  for (const Operator* op : operators()) {
    if (!op->is_fused) continue;
    with_fused_signature(static_cast<int>(op->parameters().size()),
                         [&]<int Tensors, int Numbers, bool HasFlag, int Absent>(
                             Signature<Tensors, Numbers, HasFlag, Absent>) {
                           using Typed = Composite<typename ParameterTypes<Numbers, HasFlag>::type>;
                           const std::string name = op->name.substr(1);
                           visit(name, typename Typed::Functional{op});
                           visit(name + ".out", typename Typed::Out{op});
                         });
  }
}

// "(Tensor self, Tensor? scale=None, ..., float alpha=1.0, *, int dim=-1". A parameter
// without a default cannot stand behind arguments with one but as a keyword.
std::string composite_arguments(const Operator& op) {
  std::string text = "(Tensor self";
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
  const std::vector<int> of_backward = {DerivativeRule::kIncoming, kSelf};
  result.derivatives = {
      rule<kSelf>(name + "_backward", of_backward), rule<kScale>(name + "_backward", of_backward),
      rule<kBias>(name + "_backward", of_backward),
      rule<kResidual>(name + "_backward", of_backward), rule<kGate>(name, {kSelf})};
  return result;
}

TORCH_LIBRARY_FRAGMENT(fastact, library) {
  for (const Operator* op : operators()) {
    if (!op->is_fused) continue;
    const std::string name = op->name.substr(1);
    library.def((name + composite_arguments(*op) + ") -> Tensor").c_str(),
                {at::Tag::pt2_compliant_tag});
    library.def(
        (name + ".out" + composite_arguments(*op) + ", Tensor(a!) out) -> Tensor(a!)").c_str(),
        {at::Tag::pt2_compliant_tag});
  }
}

TORCH_LIBRARY_IMPL(fastact, CompositeImplicitAutograd, library) {
  for_each_composite(
      [&](const std::string& name, auto functor) { library.impl(name.c_str(), functor); });
}

TORCH_LIBRARY_IMPL(fastact, FuncTorchBatched, library) {
  for_each_composite(
      [&](const std::string& name, auto functor) { library.impl(name.c_str(), functor); });
}

}  // namespace fastact

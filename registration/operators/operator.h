// An operator as a descriptor: what it is called, which kernel computes it, how its result lies in
// memory, and what its derivatives are. The files of keys/ serve every descriptor alike.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/catalogue.h"

namespace fastact {

// What a call carries beside its tensors.
struct CallParameters {
  Parameters numbers;
  // The argument is_result of a derivative operator.
  bool from_result = false;
};

// A call's tensors, in the schema's order.
using TensorPointers = const at::Tensor* const*;

// What an autograd node has saved for one input of its operator.
enum class Saved : uint8_t {
  kAbsent,         // the call had no such tensor
  kNotNeeded,      // the call had one, but no needed derivative uses it
  kInput,          // the input
  kPreactivation,  // instead of a fused form's self: z = self * scale + bias + residual
  kResult,         // instead of self: the result, from which the derivatives are computed
};

// The inputs as a node has saved them. A tensor is undefined if it was absent, and also if it was
// not saved. Only `kinds` distinguishes the two cases.
struct SavedInputs {
  [[nodiscard]] bool was_absent(int input) const { return kinds[input] == Saved::kAbsent; }

  const at::Tensor* tensors;
  const Saved* kinds;
};

class Operator;

// The derivative of an operator by one of its inputs, times the incoming gradient. It is linear in
// that, so the same rule serves backward and forward mode.
struct DerivativeRule {
  // In PyTorch's own operators. `inputs` are the operator's; undefined for zero.
  using Composition = at::Tensor (*)(const Operator& op, const CallParameters& parameters,
                                     const at::Tensor& incoming, const at::Tensor* inputs);
  static constexpr int kIncoming = -1;

  static DerivativeRule zero() { return {}; }
  // The incoming gradient as it is.
  static DerivativeRule identity() { return call("", {kIncoming}); }
  // Another operator, of these: kIncoming, or the positions of inputs.
  static DerivativeRule call(std::string op, std::vector<int> arguments) {
    DerivativeRule rule;
    rule.op_name = std::move(op);
    rule.arguments = std::move(arguments);
    return rule;
  }
  static DerivativeRule compose(Composition composition) {
    DerivativeRule rule;
    rule.composition = composition;
    return rule;
  }

  [[nodiscard]] bool uses(int input) const;

  std::string op_name;
  std::vector<int> arguments;
  Composition composition = nullptr;
  const Operator* op = nullptr;  // the one of that name, once all are known
};

struct Descriptor {
  std::string name;
  std::vector<const char*> inputs;  // what the schema calls them

  // The kernel: a family and one of its forms. With from_result another form, if there is one.
  int family = 0;
  int form = 0;
  int form_from_result = -1;

  // The activation whose parameters it takes, behind its tensors; null for none.
  const Activation* activation = nullptr;

  // Beside the functional form: self is overwritten; the result is written to a tensor, which is
  // the name of the overload.
  bool has_in_place = false;
  const char* out = nullptr;

  // Where inputs differ in layout, a result lies as the last one does; else as the first.
  // PyTorch's operators differ in this.
  bool last_input_leads = false;

  // Whether it is a fused form (ops/forms/fused.h): the inputs beside self may be absent, which are
  // undefined tensors then. `family` is the activation's index, and there is no form.
  bool is_fused = false;

  // Whether it is an activation's value, whose backward pass may keep the result (Saves).
  bool is_value = false;

  std::vector<DerivativeRule> derivatives;  // by each input

  // All derivatives that are needed at once, in place of one rule after the other: where they share
  // most of their work.
  using Gradients = void (*)(const Operator& op, const CallParameters& parameters,
                             const at::Tensor& incoming, const SavedInputs& inputs,
                             const std::vector<bool>& needed, at::Tensor* gradients);
  Gradients gradients = nullptr;

  // For a fused form, whose backward pass would save several tensors of the result's size where z
  // does: whether it is so, and z, with its history.
  bool (*saves_argument)(const Operator& op, TensorPointers tensors) = nullptr;
  at::Tensor (*argument)(TensorPointers tensors) = nullptr;
  // The result and z, without a history, at once, by the operator that has a kernel for it; two
  // undefined tensors where there is none.
  std::pair<at::Tensor, at::Tensor> (*with_argument)(const Operator& op, TensorPointers tensors,
                                                     const CallParameters& parameters,
                                                     const c10::DispatchKeySet* keys) = nullptr;
};

class Operator : public Descriptor {
 public:
  explicit Operator(Descriptor descriptor)
      : Descriptor(std::move(descriptor)),
        qualified_name("fastact::" + name),
        qualified_in_place_name(qualified_name + "_") {}
  virtual ~Operator() = default;
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  [[nodiscard]] int num_inputs() const { return static_cast<int>(inputs.size()); }
  // That of the input whose layout and device speak for all: an activation's x.
  [[nodiscard]] int last_input() const { return num_inputs() - 1; }
  [[nodiscard]] bool takes_is_result() const { return form_from_result >= 0; }
  [[nodiscard]] std::span<const Parameter> parameters() const {
    return activation == nullptr ? std::span<const Parameter>() : activation->parameters;
  }
  // What the schema calls it. elu's `scale` multiplies its result, a fused form's multiplies self.
  [[nodiscard]] std::string argument_name(const Parameter& parameter) const {
    const bool taken = std::ranges::find(inputs, parameter.name) != inputs.end();
    return (taken ? "output_" : "") + std::string(parameter.name);
  }

  [[nodiscard]] KernelId kernel_id(DType dtype, const CallParameters& parameters) const {
    return {parameters.from_result ? form_from_result : form, dtype};
  }

  // Whether the functional form keeps its result for backward.
  [[nodiscard]] bool saves_result(const CallParameters& parameters) const {
    return is_value && activation->traits.saves != Saves::kInput &&
           activation->result_suffices(parameters.numbers.values);
  }
  // Whether a fused form's result serves its derivatives in z's place: that of its activation does,
  // and it is that.
  [[nodiscard]] bool result_stands_for_argument(TensorPointers tensors) const {
    constexpr int kScale = static_cast<int>(FusedInput::kScale);
    constexpr int kGate = static_cast<int>(FusedInput::kGate);
    return activation->traits.saves == Saves::kResultAsInput && !tensors[kScale]->defined() &&
           !tensors[kGate]->defined();
  }
  // Whether the in-place form, which has no more than its result, can do with that.
  [[nodiscard]] bool in_place_saves_result(const CallParameters& parameters) const {
    return (activation->traits.saves != Saves::kInput || activation->traits.gradient_from_result) &&
           activation->result_suffices(parameters.numbers.values);
  }

  const std::string qualified_name;
  const std::string qualified_in_place_name;

  // Calls through the dispatcher: from the top, or, with keys, from the highest of those on.
  at::Tensor call(TensorPointers tensors, const CallParameters& parameters) const {
    return functional(nullptr, tensors, parameters);
  }
  virtual at::Tensor functional(const c10::DispatchKeySet* keys, TensorPointers tensors,
                                const CallParameters& parameters) const = 0;
  virtual at::Tensor& in_place(const c10::DispatchKeySet* keys, at::Tensor& self,
                               const CallParameters& parameters) const = 0;
  virtual at::Tensor& write(const c10::DispatchKeySet* keys, TensorPointers tensors,
                            const CallParameters& parameters, at::Tensor& out) const = 0;
};

// All operators that have kernels. None in a torch of another version than the library was built
// for, so that nothing calls into what may have changed.
std::span<const Operator* const> operators();

// One of them by its name; an error that names both versions in another torch.
const Operator& operator_named(std::string_view name);

// ---- What operators() is made of, beside each <name>_operators() of a family in ops/forms/

// An activation's: its value and the derivatives D_k(g1..gk, x) = g1 * ... * gk * f^(k)(x).
//
// The derivative of D_k by one of its gradients is D_k with that gradient replaced by the incoming
// one; by x it is D_(k+1). So backward, double backward and every forward-mode tangent are
// operators of the family again, which is what makes any mixture of orders and modes work. From
// D_3's derivative by x on, PyTorch's operators take over (autograd/higher_orders.h).
std::vector<Descriptor> activation_operators(const Activation& activation, int family);

// Its fused form, elementwise: _fused_<activation>. fused_<activation> brings scale and bias into
// shape, and calls it.
Descriptor fused_operator(const Activation& activation, int family);

}  // namespace fastact

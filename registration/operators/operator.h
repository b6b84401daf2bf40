// The descriptor of an operator: its name, its kernel, the layout of its result, and its
// derivatives. The files of keys/ serve all descriptors in the same way.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/catalogue.h"

namespace fastact {

// The most results of an operator: the gradients of a fused form's inputs.
inline constexpr int kMaxResults = kFusedInputs;
using OutputMask = std::array<bool, kMaxResults>;

// The arguments of a call other than tensors.
struct CallParameters {
  Parameters numbers;
  // The argument is_result of a derivative operator.
  bool from_result = false;
  // The argument output_mask: the results that are wanted. The others are undefined tensors.
  OutputMask output_mask = {};
  // The argument dim of a row operator.
  int64_t dim = 0;
};

// The tensors of a call, in the schema's order.
using TensorPointers = const at::Tensor* const*;

// What an autograd node has saved for one input of its operator.
enum class Saved : uint8_t {
  kAbsent,         // the call had no such tensor
  kNotNeeded,      // the call had one, but no needed derivative uses it
  kInput,          // the input
  kPreactivation,  // instead of a fused form's self: z = self * scale + bias + residual
  kResult,         // instead of self: the result, from which the derivatives are computed
  kStatistic,      // a result other than the first; saved after the inputs
};

// A result, and what its autograd node saves instead of the first input.
struct Computed {
  at::Tensor result;  // without a history
  Saved first = Saved::kInput;
  at::Tensor preactivation;  // z with its history, if `first` is kPreactivation
};

// The inputs whose gradients a node will return.
using NeededGradients = std::array<bool, kMaxInputs>;

// How a node saves an input.
enum class Saving : uint8_t {
  kNothing,
  kInput,
  kCopyOfInference,  // a tensor made in inference mode, which autograd cannot save, is copied
};

// The inputs as a node has saved them, followed by the statistics. A tensor is undefined if it was
// absent, and also if it was not saved. Only `kinds` distinguishes the two cases.
struct SavedInputs {
  [[nodiscard]] bool was_absent(int input) const { return kinds[input] == Saved::kAbsent; }

  const at::Tensor* tensors;
  const Saved* kinds;
};

class Operator;

// The derivative of an operator by one of its inputs, times the incoming gradient. It is linear in
// the incoming gradient, so one rule serves backward and forward mode if the derivative is its own
// transpose, as that of every elementwise operator is.
struct DerivativeRule {
  // Composed of PyTorch's operators. `inputs` are those of the operator. Returns an undefined
  // tensor for zero.
  using Composition = at::Tensor (*)(const Operator& op, const CallParameters& parameters,
                                     const at::Tensor& incoming, const at::Tensor* inputs);
  static constexpr int kIncoming = -1;

  static DerivativeRule zero() { return {}; }
  // The incoming gradient itself.
  static DerivativeRule identity() { return call("", {kIncoming}); }
  // A call of another operator with these arguments: kIncoming, or positions of inputs.
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
  const Operator* op = nullptr;  // the operator with this name; set once all are known
};

// What a row operator returns for each row.
enum class RowResult : uint8_t {
  kRow,
  kNumber,      // in the type of the inputs
  kWideNumber,  // in float32 or float64, as InputKind::kPerRow
};

enum class InputKind : uint8_t {
  kRequired,
  kOptional,    // after the required ones; an absent one is an undefined tensor
  kSeed,        // the last one: one int64, from which the random bits of each element are computed
  kBroadcast,   // after the required ones, of a row operator: broadcasts (row_vectors.h)
  kPerRow,      // of a row operator, after all others: one value for each row, float32 or float64
  kIndexInRow,  // of a row operator: for each row, the int64 index of an element of self
};

// A tensor argument.
struct Input {
  // NOLINTNEXTLINE(google-explicit-constructor): a list of names is a list of required inputs
  Input(const char* its_name, InputKind its_kind = InputKind::kRequired)
      : name(its_name), kind(its_kind) {}

  // True if the input contains one value for each row.
  [[nodiscard]] bool is_per_row() const {
    return kind == InputKind::kPerRow || kind == InputKind::kIndexInRow;
  }

  const char* name;  // in the schema
  InputKind kind;
};

struct Descriptor {
  std::string name;
  std::vector<Input> inputs;

  // An operator with several results has only a functional form. It may take an output_mask with
  // one bool for each result. Its derivatives, if any, are those of the first result. The other
  // results are then statistics: a node saves them for the backward pass, and they have no
  // gradients. Those of a row operator have the type and shape of InputKind::kPerRow if the first
  // result is a row, and otherwise those of the first result.
  int results = 1;
  bool takes_output_mask = false;

  // The kernel: a family and one of its forms. With from_result, another form if there is one. The
  // forms of a row operator are row forms. Such an operator has required inputs of one shape and
  // inputs that broadcast to this shape, all of one type. It may also have inputs with one value
  // for each row. Its argument `dim` is the dimension of the rows. If it has an index and returns
  // rows, it stores the form's row output at the index.
  bool has_rows = false;
  RowResult row_result = RowResult::kRow;
  // The results for a row without elements, unless they are rows.
  double of_empty_row = std::numeric_limits<double>::quiet_NaN();
  int family = 0;  // an index into families(), or into row_families()
  int form = 0;
  int form_from_result = -1;

  // The activation whose parameters follow the tensors; null if there are none.
  const Activation* activation = nullptr;

  // Forms besides the functional one. In-place: self is overwritten. Out: the result is written to
  // a tensor, whose name is the name of the overload.
  bool has_in_place = false;
  const char* out = nullptr;

  // If inputs differ in layout, the result has the layout of the last one if true, else that of the
  // first. PyTorch's operators differ in this.
  bool last_input_leads = false;

  // True for the value of an activation, whose backward pass may save the result (Saves).
  bool is_value = false;
  // True if the derivatives are always computed from the result instead of the first input.
  bool derives_from_result = false;
  // True if the derivatives use only the shape of the first input, which is then not saved.
  bool derives_from_shape = false;

  std::vector<DerivativeRule> derivatives;  // of the first result; one rule for each input
  // The rules of forward mode, if they differ from the derivatives.
  std::vector<DerivativeRule> tangents;

  // Computes all needed derivatives together instead of one rule after the other. Used if they
  // share most of their work.
  using Gradients = void (*)(const Operator& op, const CallParameters& parameters,
                             const at::Tensor& incoming, const SavedInputs& inputs,
                             const std::vector<bool>& needed, at::Tensor* gradients);
  Gradients gradients = nullptr;

  // For an operator whose node may save another tensor instead of the first input. Computes the
  // result and that tensor.
  using Compute = Computed (*)(const Operator& op, TensorPointers tensors,
                               const CallParameters& parameters, const c10::DispatchKeySet* keys);
  Compute compute = nullptr;
  // Says how such a node saves an input that `computed` does not replace.
  using SavingOf = Saving (*)(int input, TensorPointers tensors, const Computed& computed,
                              const NeededGradients& needed);
  SavingOf saving = nullptr;

  // Composes the results of PyTorch's operators for tensors without a kernel. May be null.
  using Composition = void (*)(const Operator& op, TensorPointers tensors,
                               const CallParameters& parameters, at::Tensor* results);
  Composition composition = nullptr;

  // True for a norm of self + residual, which also returns the sum. Its row form has no residual.
  bool adds_residual = false;

  // The operator that calls this row operator, if that is not its name without an underscore.
  const char* caller = nullptr;

  // Other operators that these functions call: their names, and the operators in the same order,
  // which are set once all are known.
  std::vector<std::string> called_names;
  std::vector<const Operator*> called;
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
  [[nodiscard]] bool is_differentiable() const { return !derivatives.empty(); }
  // The results that are statistics.
  [[nodiscard]] int num_statistics() const { return is_differentiable() ? results - 1 : 0; }
  // The last required input. It determines the result's layout and device: an activation's x.
  [[nodiscard]] int last_input() const {
    int last = num_inputs() - 1;
    while (inputs[last].kind != InputKind::kRequired) --last;
    return last;
  }
  [[nodiscard]] bool has_optional_inputs() const {
    return inputs.back().kind == InputKind::kOptional;
  }
  [[nodiscard]] bool takes_seed() const { return inputs.back().kind == InputKind::kSeed; }
  // True if a result's element depends on the inputs' elements at the same index alone.
  [[nodiscard]] bool is_elementwise() const { return results == 1 && !takes_seed() && !has_rows; }
  [[nodiscard]] bool takes_is_result() const { return form_from_result >= 0; }
  [[nodiscard]] std::span<const Parameter> parameters() const {
    return activation == nullptr ? std::span<const Parameter>() : activation->parameters;
  }
  // Returns the name for messages about a row operator's arguments: users call softmax, which calls
  // _softmax.
  [[nodiscard]] std::string_view public_name() const {
    if (caller != nullptr) return caller;
    return std::string_view(name).substr(has_rows && name.starts_with('_') ? 1 : 0);
  }
  // Returns the parameter's name in the schema. elu's `scale` multiplies its result, whereas a
  // fused form's `scale` multiplies self.
  [[nodiscard]] std::string argument_name(const Parameter& parameter) const {
    const bool taken = std::ranges::any_of(
        inputs, [&](const Input& input) { return input.name == parameter.name; });
    return (taken ? "output_" : "") + std::string(parameter.name);
  }

  [[nodiscard]] KernelId kernel_id(DType dtype, const CallParameters& parameters) const {
    return {parameters.from_result ? form_from_result : form, dtype};
  }

  // Returns true if the functional form saves its result for backward.
  [[nodiscard]] bool saves_result(const CallParameters& parameters) const {
    if (derives_from_result) return true;
    const Saves saves = is_value ? activation->traits.saves : Saves::kInput;
    return (saves == Saves::kResultAsInput || saves == Saves::kOutput) &&
           activation->result_suffices(parameters.numbers.values);
  }
  // Returns true if the in-place form, which has only its result, can compute its gradient from it.
  [[nodiscard]] bool in_place_saves_result(const CallParameters& parameters) const {
    return (activation->traits.saves != Saves::kInput || activation->traits.gradient_from_result) &&
           activation->result_suffices(parameters.numbers.values);
  }

  const std::string qualified_name;
  const std::string qualified_in_place_name;

  // Calls through the dispatcher: from the top, or, if `keys` is given, from the highest of these
  // keys on.
  at::Tensor call(TensorPointers tensors, const CallParameters& parameters) const {
    return functional(nullptr, tensors, parameters);
  }
  virtual at::Tensor functional(const c10::DispatchKeySet* keys, TensorPointers tensors,
                                const CallParameters& parameters) const = 0;
  // The functional form of an operator with several results.
  virtual void several(const c10::DispatchKeySet* keys, TensorPointers tensors,
                       const CallParameters& parameters, at::Tensor* to) const = 0;
  virtual at::Tensor& in_place(const c10::DispatchKeySet* keys, at::Tensor& self,
                               const CallParameters& parameters) const = 0;
  virtual at::Tensor& write(const c10::DispatchKeySet* keys, TensorPointers tensors,
                            const CallParameters& parameters, at::Tensor& out) const = 0;
};

// Returns all operators that have kernels. Returns none if torch is not the version that the
// library was built for, so that no incompatible function is called.
std::span<const Operator* const> operators();

// Returns an operator by its name. In another version of torch, throws an error that names both
// versions.
const Operator& operator_named(std::string_view name);

// ---- The parts of operators(), besides <name>_operators() of each family in ops/forms/

// Returns an activation's operators: its value and the derivatives D_k(g1..gk, x) = g1 * ... * gk *
// f^(k)(x).
//
// The derivative of D_k by one of its gradients is D_k with that gradient replaced by the incoming
// one. The derivative by x is D_(k+1). So backward, double backward and every forward-mode tangent
// are operators of the same family, and any mixture of orders and modes works. For the derivative
// of D_3 by x, PyTorch's operators take over (composites/higher_orders.h).
std::vector<Descriptor> activation_operators(const Activation& activation, int family);

// Returns a row operator without derivatives, with a form of this family of row forms.
Descriptor row_operator(std::string name, std::vector<Input> inputs, const char* family, int form);

// Returns the numbers that a row operator takes, as parameters.
constexpr Activation row_parameters(std::span<const Parameter> parameters) {
  return {.name = {},
          .parameters = parameters,
          .traits = {},
          .requirements = {},
          .result_suffices = nullptr};
}

// Return the row operators: softmax and what is computed from its exponentials
// (operators/rows.cpp), sums and other reductions, and the norms.
std::vector<Descriptor> row_operators();
std::vector<Descriptor> reduction_operators();  // operators/reductions.cpp
std::vector<Descriptor> norm_operators();       // operators/norms.cpp

// Returns the operators of the activation's fused form (operators/fused.h).
std::vector<Descriptor> fused_operators_of(const Activation& activation, int family);

}  // namespace fastact

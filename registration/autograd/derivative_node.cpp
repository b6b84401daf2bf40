#include "registration/autograd/derivative_node.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#if FASTACT_NODE_HOOKS
#include <torch/csrc/autograd/node_creation_hook.h>
#endif

#include <cctype>
#include <utility>

#include "registration/row_vectors.h"

namespace fastact {
namespace {

namespace autograd = torch::autograd;

// Returns the derivative by this rule, or an undefined tensor if it is zero.
at::Tensor apply_rule(const DerivativeRule& rule, const Operator& op,
                      const CallParameters& parameters, const at::Tensor& incoming,
                      const at::Tensor* inputs) {
  if (rule.composition != nullptr) return rule.composition(op, parameters, incoming, inputs);
  if (rule.arguments.empty()) return {};
  if (rule.op == nullptr) return incoming;
  const at::Tensor* arguments[kMaxInputs];
  for (size_t i = 0; i < rule.arguments.size(); ++i) {
    const int argument = rule.arguments[i];
    arguments[i] = argument == DerivativeRule::kIncoming ? &incoming : &inputs[argument];
  }
  return rule.op->call(arguments, parameters);
}

}  // namespace

autograd::variable_list vjp(const Operator& op, const CallParameters& parameters,
                            const at::Tensor& incoming, const SavedInputs& inputs,
                            const std::vector<bool>& needed) {
  autograd::variable_list gradients(op.num_inputs());
  if (!incoming.defined()) return gradients;
  if (op.gradients != nullptr) {
    op.gradients(op, parameters, incoming, inputs, needed, gradients.data());
    for (int i = 0; i < op.num_inputs(); ++i) {
      // For an input that was not saved, torch's engine does this from the input's metadata.
      if (!gradients[i].defined() || inputs.kinds[i] != Saved::kInput) continue;
      // Sums before rounding to the input's type.
      const at::Tensor& input = inputs.tensors[i];
      const at::Tensor sum = op.has_rows ? sum_to_vector(gradients[i], input, parameters.dim)
                                         : at::sum_to(gradients[i], input.sym_sizes());
      gradients[i] = sum.to(input.scalar_type());
    }
    return gradients;
  }
  for (int i = 0; i < op.num_inputs(); ++i) {
    if (!needed[i]) continue;
    gradients[i] = apply_rule(op.derivatives[i], op, parameters, incoming, inputs.tensors);
    // A value for each row has another shape. For it, torch's engine takes an undefined gradient as
    // 0.
    if (!gradients[i].defined() && !op.inputs[i].is_per_row())
      gradients[i] = at::zeros_like(incoming);
  }
  return gradients;
}

at::Tensor jvp(const Operator& op, const CallParameters& parameters, const at::Tensor& result,
               const at::Tensor* inputs, const at::Tensor* tangents) {
  const std::vector<DerivativeRule>& rules = op.tangents.empty() ? op.derivatives : op.tangents;
  at::Tensor sum;
  bool is_passed_on = false;
  for (int i = 0; i < op.num_inputs(); ++i) {
    if (!tangents[i].defined()) continue;
    const at::Tensor term = apply_rule(rules[i], op, parameters, tangents[i], inputs);
    if (!term.defined()) continue;
    is_passed_on = !sum.defined() && term.is_same(tangents[i]);
    sum = sum.defined() ? at::add(sum, term) : term;
  }
  if (!sum.defined()) return sum;
  // A rule that does not use every input may give another type, or a shape that still has to
  // broadcast.
  if (op.num_inputs() > 1) sum = sum.to(result.scalar_type()).expand_symint(result.sym_sizes());
  // In-place operators on the result write to its tangent, which must not be the input's.
  return is_passed_on ? sum.clone() : sum;
}

DerivativeNode::DerivativeNode(const Operator& op, const CallParameters& parameters,
                               TensorPointers tensors)
    : op_(op), parameters_(parameters) {
  for (int i = 0; i < op.num_inputs(); ++i)
    kinds_[i] = tensors[i]->defined() ? Saved::kNotNeeded : Saved::kAbsent;
}

void DerivativeNode::save_input(int position, const at::Tensor& input) {
  if (input.defined()) save(position, Saved::kInput, input);
}

void DerivativeNode::save_preactivation(const at::Tensor& preactivation) {
  save(/*position=*/0, Saved::kPreactivation, preactivation);
}

void DerivativeNode::save_result(const at::Tensor& result, bool is_view) {
  save(/*position=*/0, Saved::kResult, result, is_view);
}

void DerivativeNode::save_statistics(const at::Tensor* statistics) {
  for (int i = 0; i < op_.num_statistics(); ++i)
    save(op_.num_inputs() + i, Saved::kStatistic, statistics[i]);
}

void DerivativeNode::save(int position, Saved kind, const at::Tensor& tensor, bool is_view) {
  kinds_[position] = kind;
  saved_[position] = autograd::SavedVariable(tensor, is_output(position), is_view);
}

std::string DerivativeNode::name() const {
  // Returns the name that torch would choose, such as "FastActSeluBackward0" or
  // "FastActSeluDoubleBackwardBackward0".
  std::string result = "FastAct";
  bool start_of_word = true;
  for (const char c : op_.name) {
    if (c != '_')
      result += start_of_word ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    start_of_word = c == '_';
  }
  return result + "Backward0";
}

void DerivativeNode::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& variable : saved_) variable.reset_data();
}

std::vector<bool> DerivativeNode::needed_gradients() const {
  std::vector<bool> needed(op_.num_inputs());
  for (int i = 0; i < op_.num_inputs(); ++i) needed[i] = task_should_compute_output(i);
  return needed;
}

void DerivativeNode::unpack(at::Tensor (&tensors)[kMaxInputs]) {
  // After release_variables() this raises torch's "backward through the graph a second time".
  for (int i = 0; i < num_saved(); ++i) tensors[i] = saved_[i].unpack(getptr());
}

autograd::variable_list DerivativeNode::apply(autograd::variable_list&& gradients) {
  at::Tensor tensors[kMaxInputs];
  {
    // The lock is released before the next operators are called. They take locks of torch under
    // which nodes may be released, so holding this one would invert the lock order.
    const std::lock_guard<std::mutex> lock(mutex_);
    unpack(tensors);
  }
  return vjp(op_, parameters_, gradients[0], {tensors, kinds_.data()}, needed_gradients());
}

autograd::variable_list call_compiled(const autograd::Node& node,
                                      const autograd::variable_list& gradients,
                                      const autograd::SwapSavedVariables& saved,
                                      autograd::PackedArgs&& packed, CompiledBackward backward) {
  const std::vector<c10::IValue> values = std::move(packed).vec();
  std::vector<at::TypePtr> types;
  types.reserve(values.size());
  for (const c10::IValue& value : values) {
    types.push_back(value.isTensor() ? at::TypePtr(at::TensorType::get()) : value.type());
  }
  namespace compiled = torch::dynamo::autograd;
  const auto metadata =
      compiled::IValuePacker<std::vector<std::optional<autograd::InputMetadata>>>::pack(
          compiled::get_input_metadata(node.next_edges()));
  const auto& interface = compiled::getPyCompilerInterface();
  const auto function =
      interface->bind_function(saved.get_py_compiler(), node.name(), std::move(backward), types,
                               /*is_custom_function=*/true, /*is_traceable=*/true);
  return interface->call_function(saved.get_py_compiler(), "apply_functional", function, gradients,
                                  values, metadata);
}

void DerivativeNode::compiled_args(autograd::CompiledNodeArgs& args) const {
  // The key for reusing a compiled graph: the same operator with the same parameters.
  args.collect(op_.name);
  args.collect(parameters_.from_result);
  args.collect(parameters_.dim);
  for (const double number : parameters_.numbers.values) args.collect(number);
  for (int i = 0; i < num_saved(); ++i) {
    args.collect(static_cast<int64_t>(kinds_[i]));
    args.collect(saved_[i], is_output(i));
  }
}

autograd::variable_list DerivativeNode::apply_with_saved(const autograd::variable_list& gradients,
                                                         autograd::SwapSavedVariables& saved) {
  for (int i = 0; i < num_saved(); ++i) saved.before(saved_[i]);
  autograd::PackedArgs packed;
  packed.pack(needed_gradients());
  at::Tensor saved_tensors[kMaxInputs];
  unpack(saved_tensors);
  for (int i = 0; i < num_saved(); ++i) packed.pack(saved_tensors[i]);
  const auto backward = [&op = op_, parameters = parameters_, kinds = kinds_](
                            const autograd::variable_list& incoming,
                            const std::vector<c10::IValue>& arguments) {
    autograd::PackedArgs unpacked(arguments);
    const auto needed = unpacked.unpack<std::vector<bool>>();
    at::Tensor tensors[kMaxInputs];
    for (int i = 0; i < op.num_inputs() + op.num_statistics(); ++i)
      tensors[i] = unpacked.unpack<at::Tensor>();
    return vjp(op, parameters, incoming[0], {tensors, kinds.data()}, needed);
  };
  auto result = call_compiled(*this, gradients, saved, std::move(packed), backward);
  for (int i = 0; i < num_saved(); ++i) saved.after(saved_[i]);
  return result;
}

DerivativeNodePointer make_derivative_node(const Operator& op, const CallParameters& parameters,
                                           TensorPointers tensors) {
#if FASTACT_INTRUSIVE_NODES
  auto node = c10::make_intrusive<DerivativeNode>(op, parameters, tensors);
#else
  auto node =
      DerivativeNodePointer(new DerivativeNode(op, parameters, tensors), autograd::deleteNode);
#endif
  autograd::edge_list edges;
  edges.reserve(op.num_inputs());
  for (int i = 0; i < op.num_inputs(); ++i) {
    edges.push_back(tensors[i]->defined() ? autograd::impl::gradient_edge(*tensors[i])
                                          : autograd::Edge());
  }
  node->set_next_edges(std::move(edges));
  return node;
}

void set_derivative_history(const at::Tensor& out, const DerivativeNodePointer& node) {
  autograd::set_history(out, node);
#if FASTACT_NODE_HOOKS
  autograd::fire_node_creation_hooks(node);
#endif
}

void rebase_derivative_history(const at::Tensor& self, const DerivativeNodePointer& node) {
#if FASTACT_NODE_HOOKS
  autograd::fire_node_creation_hooks(autograd::rebase_history(self, node));
#else
  autograd::rebase_history(self, node);
#endif
}

}  // namespace fastact

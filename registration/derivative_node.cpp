#include "registration/derivative_node.h"

#include <ATen/ops/add.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#if FASTACT_NODE_HOOKS
#include <torch/csrc/autograd/node_creation_hook.h>
#endif

#include <cctype>
#include <utility>

#include "registration/higher_orders.h"

namespace fastact {
namespace {

namespace autograd = torch::autograd;

// D_(k+1)(incoming, tensors...); undefined if it is zero.
at::Tensor next_order(const Family& family, int order, const CallParameters& parameters,
                      const at::Tensor& incoming, const at::Tensor* tensors) {
  if (order == kTopOrder) return fourth_order(family, parameters, incoming, tensors);
  if (order == family.traits().last_order) return {};
  const at::Tensor* arguments[kTopOrder + 1] = {&incoming};
  for (int i = 0; i <= order; ++i) arguments[i + 1] = &tensors[i];
  return family.call(order + 1, arguments, parameters);
}

// The derivative of D_k by the gradient at `position`: D_k with it replaced, or, if it is a weight,
// in which D_k is affine, the same of the next family.
at::Tensor same_order(const Family& family, int order, const CallParameters& parameters,
                      const at::Tensor& incoming, const at::Tensor* tensors, int position) {
  const bool is_weight = family.traits().weighted && position == order - 1;
  const Family& linear = is_weight ? family_at(family.index() + 1) : family;
  const at::Tensor* arguments[kTopOrder + 1];
  for (int i = 0; i <= order; ++i) arguments[i] = i == position ? &incoming : &tensors[i];
  return linear.call(order, arguments, parameters);
}

}  // namespace

autograd::variable_list ladder_backward(const Family& family, int order,
                                        const CallParameters& parameters,
                                        const at::Tensor& incoming, const at::Tensor* tensors,
                                        const std::vector<bool>& needed) {
  autograd::variable_list gradients(order + 1);
  if (!incoming.defined()) return gradients;
  for (int i = 0; i < order; ++i) {
    if (needed[i]) gradients[i] = same_order(family, order, parameters, incoming, tensors, i);
  }
  if (needed[order]) {
    const at::Tensor gradient = next_order(family, order, parameters, incoming, tensors);
    gradients[order] = gradient.defined() ? gradient : at::zeros_like(incoming);
  }
  return gradients;
}

at::Tensor ladder_forward(const Family& family, int order, const CallParameters& parameters,
                          const at::Tensor* primals, const at::Tensor* tangents) {
  at::Tensor sum;
  for (int i = 0; i <= order; ++i) {
    if (!tangents[i].defined()) continue;
    const at::Tensor term = i < order
                                ? same_order(family, order, parameters, tangents[i], primals, i)
                                : next_order(family, order, parameters, tangents[i], primals);
    if (term.defined()) sum = sum.defined() ? at::add(sum, term) : term;
  }
  return sum;
}

void DerivativeNode::save(int position, const at::Tensor& tensor, bool is_output, bool is_view) {
  saved_[position] = autograd::SavedVariable(tensor, is_output, is_view);
  saved_is_output_ = is_output;
}

std::string DerivativeNode::name() const {
  // "FastActSeluBackward0", "FastActSeluDoubleBackwardBackward0": what torch would call them.
  std::string result = "FastAct";
  bool start_of_word = true;
  for (const char c : operator_name(family_.activation(), order_)) {
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
  std::vector<bool> needed(order_ + 1);
  for (int i = 0; i <= order_; ++i) needed[i] = task_should_compute_output(i);
  return needed;
}

void DerivativeNode::unpack(at::Tensor (&tensors)[kTopOrder + 1]) {
  // After release_variables() this raises torch's "backward through the graph a second time".
  for (int i = 0; i <= order_; ++i) tensors[i] = saved_[i].unpack(getptr());
}

autograd::variable_list DerivativeNode::apply(autograd::variable_list&& gradients) {
  at::Tensor tensors[kTopOrder + 1];
  {
    // Not longer: the operators that are called next take locks of torch's, under which nodes may
    // be released, in the opposite order.
    const std::lock_guard<std::mutex> lock(mutex_);
    unpack(tensors);
  }
  return ladder_backward(family_, order_, parameters_, gradients[0], tensors, needed_gradients());
}

void DerivativeNode::compiled_args(autograd::CompiledNodeArgs& args) const {
  // What a compiled graph may be reused for: the same operator with the same parameters.
  args.collect(std::string(family_.activation().name));
  args.collect(static_cast<int64_t>(order_));
  args.collect(parameters_.from_result);
  for (const double number : parameters_.numbers.values) args.collect(number);
  for (int i = 0; i <= order_; ++i) args.collect(saved_[i], saved_is_output_);
}

autograd::variable_list DerivativeNode::apply_with_saved(const autograd::variable_list& gradients,
                                                         autograd::SwapSavedVariables& saved) {
  for (int i = 0; i <= order_; ++i) saved.before(saved_[i]);
  autograd::PackedArgs packed;
  packed.pack(needed_gradients());
  at::Tensor saved_tensors[kTopOrder + 1];
  unpack(saved_tensors);
  for (int i = 0; i <= order_; ++i) packed.pack(saved_tensors[i]);
  const std::vector<c10::IValue> values = std::move(packed).vec();
  std::vector<at::TypePtr> types;
  types.reserve(values.size());
  for (const c10::IValue& value : values) {
    types.push_back(value.isTensor() ? at::TypePtr(at::TensorType::get()) : value.type());
  }
  namespace compiled = torch::dynamo::autograd;
  const auto metadata =
      compiled::IValuePacker<std::vector<std::optional<autograd::InputMetadata>>>::pack(
          compiled::get_input_metadata(next_edges()));
  const auto backward = [&family = family_, order = order_, parameters = parameters_](
                            const autograd::variable_list& incoming,
                            const std::vector<c10::IValue>& arguments) {
    autograd::PackedArgs unpacked(arguments);
    const auto needed = unpacked.unpack<std::vector<bool>>();
    at::Tensor tensors[kTopOrder + 1];
    for (int i = 0; i <= order; ++i) tensors[i] = unpacked.unpack<at::Tensor>();
    return ladder_backward(family, order, parameters, incoming[0], tensors, needed);
  };
  const auto& interface = compiled::getPyCompilerInterface();
  const auto function =
      interface->bind_function(saved.get_py_compiler(), name(), backward, types,
                               /*is_custom_function=*/true, /*is_traceable=*/true);
  auto result = interface->call_function(saved.get_py_compiler(), "apply_functional", function,
                                         gradients, values, metadata);
  for (int i = 0; i <= order_; ++i) saved.after(saved_[i]);
  return result;
}

DerivativeNodePointer make_derivative_node(const Family& family, int order,
                                           const CallParameters& parameters,
                                           TensorPointers tensors) {
#if FASTACT_INTRUSIVE_NODES
  auto node = c10::make_intrusive<DerivativeNode>(family, order, parameters);
#else
  auto node =
      DerivativeNodePointer(new DerivativeNode(family, order, parameters), autograd::deleteNode);
#endif
  autograd::edge_list edges;
  edges.reserve(order + 1);
  for (int i = 0; i <= order; ++i) edges.push_back(autograd::impl::gradient_edge(*tensors[i]));
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

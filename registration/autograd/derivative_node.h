// The single autograd Node class of all operators: backward and forward mode by the rules of the
// operator's descriptor.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/version.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "registration/operators/operator.h"

// Since torch 2.13, nodes are reference-counted intrusively.
#define FASTACT_INTRUSIVE_NODES (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13)
// Since torch 2.14, creating a node fires hooks.
#define FASTACT_NODE_HOOKS (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14)

namespace fastact {

// Returns the vector-Jacobian product: the gradient of each input that is `needed`. `incoming` may
// be undefined.
torch::autograd::variable_list vjp(const Operator& op, const CallParameters& parameters,
                                   const at::Tensor& incoming, const SavedInputs& inputs,
                                   const std::vector<bool>& needed);

// Returns the Jacobian-vector product in the layout of `result`: the tangent at `inputs` along
// `tangents`, some of which may be undefined. Returns an undefined tensor if it is zero.
at::Tensor jvp(const Operator& op, const CallParameters& parameters, const at::Tensor& result,
               const at::Tensor* inputs, const at::Tensor* tangents);

// For a Node's apply_with_saved(): calls `backward` in the graph that torch compiles, with the
// contents of `packed`. Its tensors are those of the graph.
using CompiledBackward = std::function<torch::autograd::variable_list(
    const torch::autograd::variable_list&, const std::vector<c10::IValue>&)>;
torch::autograd::variable_list call_compiled(const torch::autograd::Node& node,
                                             const torch::autograd::variable_list& gradients,
                                             const torch::autograd::SwapSavedVariables& saved,
                                             torch::autograd::PackedArgs&& packed,
                                             CompiledBackward backward);

class DerivativeNode : public torch::autograd::TraceableFunction {
 public:
  // Makes a node that has saved none of the call's inputs yet.
  DerivativeNode(const Operator& op, const CallParameters& parameters, TensorPointers tensors);

  // Saves an input for backward.
  void save_input(int position, const at::Tensor& input);
  // Saves z for a fused form's backward pass, instead of self.
  void save_preactivation(const at::Tensor& preactivation);
  // Saves the result of the node's own operator instead of the first input. `is_view` is true if
  // the operator wrote the result in place through a view.
  void save_result(const at::Tensor& result, bool is_view = false);
  // Saves the results after the first one.
  void save_statistics(const at::Tensor* statistics);

  std::string name() const override;
  void release_variables() override;
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  void compiled_args(torch::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(
      const torch::autograd::variable_list& gradients,
      torch::autograd::SwapSavedVariables& saved) override;

 private:
  void save(int position, Saved kind, const at::Tensor& tensor, bool is_view = false);
  // The inputs and the statistics.
  [[nodiscard]] int num_saved() const { return op_.num_inputs() + op_.num_statistics(); }
  [[nodiscard]] bool is_output(int position) const { return kinds_[position] == Saved::kResult; }
  std::vector<bool> needed_gradients() const;
  void unpack(at::Tensor (&tensors)[kMaxInputs]);

  const Operator& op_;
  const CallParameters parameters_;
  torch::autograd::SavedVariable saved_[kMaxInputs];
  std::array<Saved, kMaxInputs> kinds_ = {};
};

#if FASTACT_INTRUSIVE_NODES
using DerivativeNodePointer = c10::intrusive_ptr<DerivativeNode>;
#else
using DerivativeNodePointer = std::shared_ptr<DerivativeNode>;
#endif

// Returns the tensor, or a copy if the tensor was made in inference mode: autograd refuses to save
// such a tensor.
inline at::Tensor savable(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_inference() ? tensor.clone() : tensor;
}

// Returns a node of the operator with an edge to each tensor's own node.
DerivativeNodePointer make_derivative_node(const Operator& op, const CallParameters& parameters,
                                           TensorPointers tensors);

// Makes the node the history of a fresh `out`.
void set_derivative_history(const at::Tensor& out, const DerivativeNodePointer& node);

// Makes the node the history of `self`, which has been overwritten in place.
void rebase_derivative_history(const at::Tensor& self, const DerivativeNodePointer& node);

}  // namespace fastact

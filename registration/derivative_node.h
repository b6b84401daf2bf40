// The one autograd Node of all operators: it knows the derivative ladder.
//
//   D_0(x) = f(x),  D_k(g1..gk, x) = g1 * ... * gk * f^(k)(x)
//
// The derivative of D_k by one of its gradients is D_k with that gradient replaced by the incoming
// one; by x it is D_(k+1). So backward, double backward and every forward-mode tangent are
// operators of the family again, which is what makes any mixture of orders and modes work. From
// D_3's derivative by x on, ATen's operators take over (higher_orders.h).
//
// Where the last gradient is a weight (Traits::weighted), the derivative by it is D_k of the next
// family with the weight replaced.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/version.h>

#include <string>
#include <vector>

#include "registration/family.h"

// Since torch 2.13 nodes are counted intrusively.
#define FASTACT_INTRUSIVE_NODES (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13)
// Since torch 2.14 creating one fires hooks.
#define FASTACT_NODE_HOOKS (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14)

namespace fastact {

// g by which of D_k's tensors the gradient is wanted: needed[i] for the i-th gradient,
// needed[order] for self.
torch::autograd::variable_list ladder_backward(const Family& family, int order,
                                               const CallParameters& parameters,
                                               const at::Tensor& incoming,
                                               const at::Tensor* tensors,
                                               const std::vector<bool>& needed);

// The tangent of D_k at `primals` along `tangents`, of which some may be undefined; undefined if it
// is zero.
at::Tensor ladder_forward(const Family& family, int order, const CallParameters& parameters,
                          const at::Tensor* primals, const at::Tensor* tangents);

class DerivativeNode : public torch::autograd::TraceableFunction {
 public:
  DerivativeNode(const Family& family, int order, const CallParameters& parameters)
      : family_(family), order_(order), parameters_(parameters) {}

  // Keeps the tensor at `position` for backward. `is_output`: it is the result of the node's own
  // operator, and then `is_view` says whether it was written in place through a view.
  void save(int position, const at::Tensor& tensor, bool is_output = false, bool is_view = false);

  std::string name() const override;
  void release_variables() override;
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  void compiled_args(torch::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(
      const torch::autograd::variable_list& gradients,
      torch::autograd::SwapSavedVariables& saved) override;

 private:
  std::vector<bool> needed_gradients() const;
  void unpack(at::Tensor (&tensors)[kTopOrder + 1]);

  const Family& family_;
  const int order_;
  const CallParameters parameters_;
  torch::autograd::SavedVariable saved_[kTopOrder + 1];
  bool saved_is_output_ = false;
};

#if FASTACT_INTRUSIVE_NODES
using DerivativeNodePointer = c10::intrusive_ptr<DerivativeNode>;
#else
using DerivativeNodePointer = std::shared_ptr<DerivativeNode>;
#endif

// A node of D_order, with an edge to each tensor's own node.
DerivativeNodePointer make_derivative_node(const Family& family, int order,
                                           const CallParameters& parameters,
                                           TensorPointers tensors);

// Makes the node the history of a fresh `out`.
void set_derivative_history(const at::Tensor& out, const DerivativeNodePointer& node);

// Makes the node the history of `self`, which has been overwritten in place.
void rebase_derivative_history(const at::Tensor& self, const DerivativeNodePointer& node);

}  // namespace fastact

#include "registration/autograd/argument_node.h"

#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "registration/autograd/derivative_node.h"

namespace fastact {
namespace {

namespace autograd = torch::autograd;

constexpr FusedInput kOperands[] = {FusedInput::kSelf, FusedInput::kBias, FusedInput::kResidual};

// Receives only gradients of gradients. torch's engine sums them for operands that broadcast.
class PreactivationNode : public autograd::Node {
 public:
  explicit PreactivationNode(const at::Tensor& scale)
      : has_scale_(scale.defined()), scale_(scale, /*is_output=*/false) {}

  std::string name() const override { return "FastActFusedArgumentBackward0"; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    scale_.reset_data();
  }

  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    at::Tensor scale;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (has_scale_) scale = scale_.unpack();
    }
    return gradients_of(gradients[0], scale, needed_gradients());
  }

  void compiled_args(autograd::CompiledNodeArgs& args) const override {
    args.collect(has_scale_);
    args.collect(scale_, /*is_output=*/false);
  }

  autograd::variable_list apply_with_saved(const autograd::variable_list& gradients,
                                           autograd::SwapSavedVariables& saved) override {
    saved.before(scale_);
    autograd::PackedArgs packed;
    packed.pack(needed_gradients());
    packed.pack(has_scale_ ? scale_.unpack() : at::Tensor());
    const auto backward = [](const autograd::variable_list& incoming,
                             const std::vector<c10::IValue>& arguments) {
      autograd::PackedArgs unpacked(arguments);
      const auto needed = unpacked.unpack<std::vector<bool>>();
      return gradients_of(incoming[0], unpacked.unpack<at::Tensor>(), needed);
    };
    auto result = call_compiled(*this, gradients, saved, std::move(packed), backward);
    saved.after(scale_);
    return result;
  }

 private:
  static autograd::variable_list gradients_of(const at::Tensor& g, const at::Tensor& scale,
                                              const std::vector<bool>& needed) {
    autograd::variable_list result(std::size(kOperands));
    if (!g.defined()) return result;
    for (size_t i = 0; i < result.size(); ++i) {
      if (!needed[i]) continue;
      const bool is_scaled = scale.defined() && kOperands[i] == FusedInput::kSelf;
      result[i] = is_scaled ? at::mul(g, scale.to(g.scalar_type())) : g;
    }
    return result;
  }

  std::vector<bool> needed_gradients() const {
    std::vector<bool> needed;
    needed.reserve(std::size(kOperands));
    for (size_t i = 0; i < std::size(kOperands); ++i)
      needed.push_back(task_should_compute_output(i));
    return needed;
  }

  bool has_scale_;
  autograd::SavedVariable scale_;
};

}  // namespace

void set_preactivation_history(const at::Tensor& preactivation, TensorPointers tensors) {
  autograd::edge_list edges;
  bool requires_grad = false;
  for (const FusedInput operand : kOperands) {
    const at::Tensor& tensor = *tensors[static_cast<int>(operand)];
    requires_grad |= tensor.requires_grad();
    edges.push_back(tensor.defined() ? autograd::impl::gradient_edge(tensor) : autograd::Edge());
  }
  if (!requires_grad) return;
  const at::Tensor scale = savable(*tensors[static_cast<int>(FusedInput::kScale)]);
#if FASTACT_INTRUSIVE_NODES
  auto node = c10::make_intrusive<PreactivationNode>(scale);
#else
  auto node =
      std::shared_ptr<PreactivationNode>(new PreactivationNode(scale), autograd::deleteNode);
#endif
  node->set_next_edges(std::move(edges));
  autograd::set_history(preactivation, node);
#if FASTACT_NODE_HOOKS
  autograd::fire_node_creation_hooks(node);
#endif
}

}  // namespace fastact

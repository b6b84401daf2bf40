// The dispatch key FuncTorchBatched: one boxed vmap rule for all operators, which are all
// elementwise.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/native/TypeProperties.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <vector>

#include "registration/operators/signature.h"

namespace fastact {
namespace {

namespace functorch = at::functorch;

struct BatchedArgument {
  size_t position = 0;
  at::Tensor tensor;
  std::optional<int64_t> batch_dimension;

  int64_t logical_rank() const { return tensor.dim() - (batch_dimension.has_value() ? 1 : 0); }
};

void batch(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const bool is_out = !op.operator_name().overload_name.empty();
  TORCH_CHECK(!is_out, op.schema().name(),
              ": expected a functional or an in-place call under vmap, but got out=, ",
              "which has no batching rule");
  const bool is_in_place = op.schema().is_mutable();
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  const auto layer = functorch::maybeCurrentDynamicLayer();
  TORCH_CHECK(layer.has_value(), op.schema().name(),
              ": expected to be called inside vmap, but got a batched tensor ",
              "that escaped from it");
  const int64_t level = layer->layerId();

  std::vector<BatchedArgument> arguments;
  int64_t rank = 0;
  bool any_batched = false;
  at::native::ResultTypeState types = {};
  for (size_t i = stack->size() - op.schema().arguments().size(); i < stack->size(); ++i) {
    if (!(*stack)[i].isTensor()) continue;
    // Of the wrapper, whose dimensions are those of one slice.
    types = at::native::update_result_type_state((*stack)[i].toTensor(), types);
    auto [tensor, dimension] = functorch::unwrapTensorAtLevel((*stack)[i].toTensor(), level);
    arguments.push_back({i, std::move(tensor), dimension});
    rank = std::max(rank, arguments.back().logical_rank());
    any_batched |= dimension.has_value();
  }
  if (!any_batched) {
    op.callBoxed(stack);
    return;
  }
  if (is_in_place) {
    // Its only tensor is batched: write through, and give the wrapper back.
    c10::IValue& self = (*stack)[arguments.front().position];
    c10::IValue wrapper = std::move(self);
    self = arguments.front().tensor;
    op.callBoxed(stack);
    stack->back() = std::move(wrapper);
    return;
  }
  // The batch dimension first, then as many of size 1 as let the rest broadcast among the
  // arguments. A batch of 0-dimensional tensors has a dimension, but promotes as they do.
  const c10::ScalarType type = at::native::result_type(types);
  for (BatchedArgument& argument : arguments) {
    if (argument.batch_dimension.has_value()) {
      if (argument.logical_rank() == 0) argument.tensor = argument.tensor.to(type);
      argument.tensor = argument.tensor.movedim(*argument.batch_dimension, 0);
      while (argument.tensor.dim() - 1 < rank) argument.tensor = argument.tensor.unsqueeze(1);
    }
    (*stack)[argument.position] = argument.tensor;
  }
  op.callBoxed(stack);
  stack->back() = functorch::makeBatched(stack->back().toTensor(), 0, level);
}

}  // namespace

TORCH_LIBRARY_IMPL(fastact, FuncTorchBatched, library) {
  for_each_name([&](const std::string& name, bool /*is_mutable*/) {
    library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&batch>());
  });
}

}  // namespace fastact

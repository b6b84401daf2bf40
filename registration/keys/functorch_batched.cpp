// The dispatch key FuncTorchBatched: one boxed vmap rule for all elementwise operators and row
// operators.
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/native/TypeProperties.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "registration/checks.h"
#include "registration/composites/composites.h"
#include "registration/operators/implement.h"

namespace fastact {
namespace {

namespace functorch = at::functorch;

struct BatchedArgument {
  [[nodiscard]] int64_t logical_rank() const {
    return tensor.dim() - (batch_dimension.has_value() ? 1 : 0);
  }

  // Moves the batch dimension to the front, and inserts dimensions of size 1 after it until the
  // logical rank is `rank`.
  void align(int64_t rank) {
    if (!batch_dimension.has_value()) return;
    tensor = tensor.movedim(*batch_dimension, 0);
    while (tensor.dim() - 1 < rank) tensor = tensor.unsqueeze(1);
  }

  size_t position = 0;
  at::Tensor tensor;
  std::optional<int64_t> batch_dimension;
};

class Batch : public c10::OperatorKernel {
 public:
  explicit Batch(const Operator& op) : op_(op) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) const {
    const c10::FunctionSchema& schema = op.schema();
    const bool is_out = !op.operator_name().overload_name.empty();
    const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
    const auto layer = functorch::maybeCurrentDynamicLayer();
    TORCH_CHECK(layer.has_value(), schema.name(),
                ": expected to be called inside vmap, but got a batched tensor ",
                "that escaped from it");
    const int64_t level = layer->layerId();

    std::vector<BatchedArgument> arguments;
    for (size_t i = stack->size() - schema.arguments().size(); i < stack->size(); ++i) {
      if (!(*stack)[i].isTensor()) continue;
      auto [tensor, dimension] = functorch::unwrapTensorAtLevel((*stack)[i].toTensor(), level);
      arguments.push_back({i, std::move(tensor), dimension});
    }
    if (std::ranges::none_of(arguments, [](const BatchedArgument& argument) {
          return argument.batch_dimension.has_value();
        })) {
      op.callBoxed(stack);
      return;
    }
    if (op_.has_rows) {
      prepare_rows(*stack, arguments, is_out);
    } else if (is_out) {
      prepare_out(schema, *stack, arguments);
    } else if (!schema.is_mutable()) {
      align_inputs(*stack, arguments);
    }  // otherwise self is the only tensor
    // A mutable form writes to the unwrapped tensor, and returns its wrapper.
    const at::Tensor written =
        schema.is_mutable()
            ? (*stack)[(is_out ? arguments.back() : arguments.front()).position].toTensor()
            : at::Tensor();
    const bool are_scalars = op_.has_rows && arguments.front().tensor.dim() == 1;
    for (BatchedArgument& argument : arguments) {
      (*stack)[argument.position] =
          are_scalars ? argument.tensor.unsqueeze(-1) : std::move(argument.tensor);
    }
    op.callBoxed(stack);
    if (written.defined()) {
      stack->back() = written;
      return;
    }
    for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
      const at::Tensor result = (*stack)[i].toTensor();
      (*stack)[i] = functorch::makeBatched(are_scalars ? result.squeeze(-1) : result, 0, level);
    }
  }

 private:
  // Aligns the inputs so that they broadcast with the batch dimension first.
  void align_inputs(const torch::jit::Stack& stack, std::span<BatchedArgument> inputs) const {
    int64_t rank = 0;
    at::native::ResultTypeState types = {};
    for (const BatchedArgument& input : inputs) {
      // The wrapper's dimensions are those of one example.
      types = at::native::update_result_type_state(stack[input.position].toTensor(), types);
      rank = std::max(rank, input.logical_rank());
    }
    const c10::ScalarType type = at::native::result_type(types);
    for (BatchedArgument& input : inputs) {
      // A batch of 0-dimensional tensors has one dimension, but must promote like 0-dimensional
      // tensors. Operators with optional inputs do not promote.
      if (input.batch_dimension.has_value() && input.logical_rank() == 0 &&
          !op_.has_optional_inputs())
        input.tensor = input.tensor.to(type);
      input.align(rank);
    }
  }

  // Aligns the inputs and out, which is the last argument. No example may resize out.
  void prepare_out(const c10::FunctionSchema& schema, const torch::jit::Stack& stack,
                   std::vector<BatchedArgument>& arguments) const {
    BatchedArgument& out = arguments.back();
    TORCH_CHECK(
        out.batch_dimension.has_value(), schema.name(),
        ": expected the output tensor to be batched by vmap, like its operands, but got one "
        "that is not");
    const std::span<BatchedArgument> inputs(arguments.data(), arguments.size() - 1);
    c10::SymDimVector shape;
    for (const BatchedArgument& input : inputs) {
      shape = at::infer_size_symdimvector(shape, stack[input.position].toTensor().sym_sizes());
    }
    const c10::SymIntArrayRef out_shape = stack[out.position].toTensor().sym_sizes();
    TORCH_CHECK(out_shape == c10::SymIntArrayRef(shape), schema.name(),
                ": expected the output tensor to have the result's shape ",
                c10::SymIntArrayRef(shape), " under vmap, but got ", out_shape);
    align_inputs(stack, inputs);
    out.align(out.logical_rank());
    // If no input is batched, all examples get the same result.
    if (std::ranges::none_of(inputs, [](const BatchedArgument& input) {
          return input.batch_dimension.has_value();
        })) {
      at::Tensor& first = inputs.front().tensor;
      first = first.expand_symint(out.tensor.sym_sizes());
    }
  }

  // Gives every tensor of a row operator the batch dimension in front, except one that broadcasts
  // and is not batched, and counts dim from there.
  void prepare_rows(torch::jit::Stack& stack, std::vector<BatchedArgument>& arguments,
                    bool is_out) const {
    TORCH_CHECK(
        !is_out || arguments.back().batch_dimension.has_value(), op_.qualified_name,
        ": expected the output tensor to be batched by vmap, like its operands, but got one "
        "that is not");
    const auto batched = std::ranges::find_if(arguments, [](const BatchedArgument& argument) {
      return argument.batch_dimension.has_value();
    });
    const c10::SymInt size = batched->tensor.sym_size(*batched->batch_dimension);
    const int64_t rank = arguments.front().logical_rank();
    for (size_t i = 0; i < arguments.size(); ++i) {
      BatchedArgument& argument = arguments[i];
      const bool broadcasts = i < op_.inputs.size() && op_.inputs[i].kind == InputKind::kBroadcast;
      TORCH_CHECK(!broadcasts || argument.logical_rank() <= rank, "fastact::", op_.public_name(),
                  ": expected ", op_.inputs[i].name, " to have at most ", rank,
                  " dimensions, but got ", argument.logical_rank());
      if (argument.batch_dimension.has_value()) {
        argument.align(broadcasts ? rank : argument.logical_rank());
      } else if (!broadcasts) {
        c10::SymDimVector shape(argument.tensor.sym_sizes());
        shape.insert(shape.begin(), size);
        argument.tensor = argument.tensor.unsqueeze(0).expand_symint(shape);
      }
    }
    // The last argument besides an output tensor.
    c10::IValue& dim = stack[stack.size() - (is_out ? 2 : 1)];
    dim = 1 + row_dimension(op_, dim.toInt(), rank);
    if (!is_out) return;
    // A scalar has no dimension that could be reduced.
    const c10::SymIntArrayRef shape = arguments.front().tensor.sym_sizes();
    const c10::SymDimVector wanted =
        rank == 0 ? c10::SymDimVector(shape) : row_result_shape(op_, shape, dim.toInt());
    TORCH_CHECK(arguments.back().tensor.sym_sizes() == c10::SymIntArrayRef(wanted),
                op_.qualified_name, ": expected the output tensor to have the result's shape ",
                c10::SymIntArrayRef(wanted), " under vmap, but got ",
                arguments.back().tensor.sym_sizes());
  }

  const Operator& op_;
};

}  // namespace

TORCH_LIBRARY_IMPL(fastact, FuncTorchBatched, library) {
  for_each_name([&](const Operator& op, const std::string& name, bool /*is_mutable*/) {
    library.impl(name.c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Batch>(op)));
  });
  for (const Composites& composites : all_composites()) composites.implement(library);
}

}  // namespace fastact

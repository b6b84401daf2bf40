// The dispatch key Functionalize: replaces in-place and out operators by their functional form and
// an update of the tensor they write to. One boxed kernel serves all operators. It is needed
// because these operators return the tensor they write to.
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "registration/composites/composites.h"
#include "registration/operators/implement.h"

namespace fastact {
namespace {

namespace functionalization = at::functionalization::impl;

at::Tensor unwrap(const at::Tensor& tensor) {
  if (!functionalization::isFunctionalTensor(tensor)) return tensor;
  functionalization::sync(tensor);
  return functionalization::from_functional_tensor(tensor);
}

// Returns the functional operator of, for example, fastact::selu_, fastact::selu.out or
// fastact::selu_backward.grad_input.
c10::OperatorHandle functional_operator(const c10::OperatorHandle& op) {
  std::string name = op.operator_name().name;
  if (op.operator_name().overload_name.empty()) name.pop_back();
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
}

void functionalize(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema_arguments = op.schema().arguments();
  const size_t count = schema_arguments.size();
  const size_t first = stack->size() - count;
  const bool is_out = !op.operator_name().overload_name.empty();
  // An out operator writes to its last argument, an in-place operator to its first.
  at::Tensor written = (*stack)[is_out ? stack->size() - 1 : first].toTensor();
  const bool written_is_functional = functionalization::isFunctionalTensor(written);
  for (size_t i = first; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (!value.isTensor()) continue;
    TORCH_CHECK(written_is_functional || !functionalization::isFunctionalTensor(value.toTensor()),
                op.schema().name(),
                ": expected all tensors to be functional, but got a functional input and a mutated "
                "tensor that is not");
    value = unwrap(value.toTensor());
  }
  const at::AutoDispatchSkipFunctionalize guard;
  if (!written_is_functional) {
    op.callBoxed(stack);
    return;
  }
  if (is_out) stack->pop_back();
  functional_operator(op).callBoxed(stack);
  const at::Tensor result = stack->back().toTensor();
  functionalization::replace_(written, result);
  functionalization::commit_update(written);
  functionalization::sync(written);
  stack->back() = written;
}

}  // namespace

TORCH_LIBRARY_IMPL(fastact, Functionalize, library) {
  for_each_name([&](const Operator& /*op*/, const std::string& name, bool is_mutable) {
    if (is_mutable)
      library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&functionalize>());
  });
  for (const Composites& composites : all_composites()) composites.implement(library);
}

}  // namespace fastact

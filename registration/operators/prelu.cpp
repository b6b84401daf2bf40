// prelu, which broadcasts its weight, and the elementwise operators that compose it.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>

#include "fastact/fastact.h"
#include "registration/build_info.h"
#include "registration/checks.h"
#include "registration/operators/operator.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

// The checks of at::prelu, in its order.
void check(const at::Tensor& self, const at::Tensor& weight) {
  TORCH_CHECK(self.scalar_type() == weight.scalar_type(),
              "fastact::prelu: expected weight to have self's type ", self.scalar_type(),
              ", but got ", weight.scalar_type());
  if (weight.sym_numel() != 1) {
    TORCH_CHECK(self.dim() > 0,
                "fastact::prelu: expected weight to have 1 element for a 0-dimensional self, ",
                "but got ", weight.sym_numel());
    const c10::SymInt channels = self.dim() > 1 ? self.sym_size(1) : c10::SymInt(1);
    TORCH_CHECK(channels == weight.sym_numel(), "fastact::prelu: expected weight to have 1 or ",
                channels, " elements, as many as self has channels, but got ", weight.sym_numel());
  }
  TORCH_CHECK(weight.dim() <= 1,
              "fastact::prelu: expected weight to be a scalar or 1-dimensional, but got ",
              weight.dim(), " dimensions");
  TORCH_CHECK_NOT_IMPLEMENTED(
      engine_type(self.scalar_type()).has_value(),
      "fastact::prelu: expected self to be float32, float64, bfloat16 or float16, but got ",
      self.scalar_type());
  TORCH_CHECK(weight.device() == self.device(),
              "fastact::prelu: expected all tensors to be on the same device, but got weight on ",
              weight.device(), " and self on ", self.device());
}

// Returns an input in a shape that broadcasts to self's, as its form specifies.
at::Tensor broadcastable(Broadcast broadcast, const at::Tensor& input, const at::Tensor& self) {
  if (broadcast == Broadcast::kElementwise) return input;
  c10::SymDimVector shape(self.dim(), 1);
  if (self.dim() > 1) shape[1] = input.sym_numel();
  return input.reshape_symint(shape);
}

at::Tensor composite(const at::Tensor& self, const at::Tensor& weight) {
  check(self, weight);
  static const Operator& elementwise = operator_named("_prelu");
  const FormInfo& form = families()[elementwise.family].forms[elementwise.form];
  const at::Tensor weights = broadcastable(form.broadcasts[0], weight, self);
  const at::Tensor* tensors[] = {&weights, &self};
  return elementwise.call(tensors, {});
}

}  // namespace

// Returns PReLU's elementwise operators: the value for a weight of self's shape, and the
// derivatives. prelu itself broadcasts its weight and calls them.
std::vector<Descriptor> prelu_operators(int family) {
  using Rule = DerivativeRule;
  constexpr int kIncoming = Rule::kIncoming;
  const auto op = [&](const char* name, std::vector<const char*> inputs, int form,
                      std::vector<Rule> derivatives) {
    Descriptor descriptor;
    descriptor.name = name;
    descriptor.inputs = std::move(inputs);
    descriptor.family = family;
    descriptor.form = form;
    descriptor.last_input_leads = true;
    descriptor.derivatives = std::move(derivatives);
    return descriptor;
  };
  return {
      op("_prelu", {"weight", "self"}, 0,
         {Rule::call("_prelu_weight_backward", {kIncoming, 1}),
          Rule::call("_prelu_backward", {kIncoming, 0, 1})}),
      op("_prelu_backward", {"grad_output", "weight", "self"}, 1,
         {Rule::call("_prelu_backward", {kIncoming, 1, 2}),
          Rule::call("_prelu_weight_double_backward", {0, kIncoming, 2}), Rule::zero()}),
      op("_prelu_weight_backward", {"grad_output", "self"}, 2,
         {Rule::call("_prelu_weight_backward", {kIncoming, 1}),
          Rule::call("_prelu_weight_double_backward", {kIncoming, 0, 1})}),
      op("_prelu_weight_double_backward", {"grad_grad_input", "grad_output", "self"}, 3,
         {Rule::call("_prelu_weight_double_backward", {kIncoming, 1, 2}),
          Rule::call("_prelu_weight_double_backward", {0, kIncoming, 2}), Rule::zero()}),
  };
}

at::Tensor prelu(const at::Tensor& self, const at::Tensor& weight) {
  static constinit const LazyOperator<at::Tensor(const at::Tensor&, const at::Tensor&)> op(
      "fastact::prelu", "");
  return op.dispatch(nullptr, self, weight);
}

TORCH_LIBRARY_FRAGMENT(fastact, library) {
  if (!operators().empty())
    library.def("prelu(Tensor self, Tensor weight) -> Tensor", {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(fastact, CompositeImplicitAutograd, library) {
  if (!operators().empty()) library.impl("prelu", &composite);
}

TORCH_LIBRARY_IMPL(fastact, FuncTorchBatched, library) {
  if (!operators().empty()) library.impl("prelu", &composite);
}

}  // namespace fastact

// prelu, which broadcasts its weight.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "fastact/fastact.h"
#include "registration/checks.h"
#include "registration/composites/composites.h"
#include "registration/operators/operator.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

// The checks of at::prelu, in its order.
void check_prelu(const at::Tensor& self, const at::Tensor& weight) {
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

at::Tensor broadcast_prelu(const at::Tensor& self, const at::Tensor& weight) {
  check_prelu(self, weight);
  static const Operator& elementwise = operator_named("_prelu");
  const FormInfo& form = families()[elementwise.family].forms[elementwise.form];
  const at::Tensor weights = broadcastable(form.broadcasts[0], weight, self);
  const at::Tensor* tensors[] = {&weights, &self};
  return elementwise.call(tensors, {});
}

void define_prelu(torch::Library& library) {
  library.def("prelu(Tensor self, Tensor weight) -> Tensor", {at::Tag::pt2_compliant_tag});
}

void implement_prelu(torch::Library& library) { library.impl("prelu", &broadcast_prelu); }

}  // namespace

const Composites kPreluComposites = {.define = &define_prelu, .implement = &implement_prelu};

at::Tensor prelu(const at::Tensor& self, const at::Tensor& weight) {
  static constinit const LazyOperator<at::Tensor(const at::Tensor&, const at::Tensor&)> op(
      "fastact::prelu", "");
  return op.dispatch(nullptr, self, weight);
}

}  // namespace fastact

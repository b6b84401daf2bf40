// prelu: broadcasts its weight, and leaves the rest to the elementwise _prelu of the catalogue.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>

#include "fastact/fastact.h"
#include "registration/build_info.h"
#include "registration/checks.h"
#include "registration/signatures.h"

namespace fastact {
namespace {

const Family& elementwise() {
  static const Family& family = **std::ranges::find(
      families(), "_prelu", [](const Family* f) { return f->activation().name; });
  return family;
}

// at::prelu's checks, in its order.
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

at::Tensor composite(const at::Tensor& self, const at::Tensor& weight) {
  check(self, weight);
  c10::SymDimVector shape(self.dim(), 1);
  if (self.dim() > 1) shape[1] = weight.sym_numel();
  const at::Tensor channels = weight.reshape_symint(shape);
  const at::Tensor* tensors[] = {&channels, &self};
  return elementwise().call(1, tensors, {});
}

}  // namespace

at::Tensor prelu(const at::Tensor& self, const at::Tensor& weight) {
  TORCH_CHECK(!families().empty(), torch_mismatch());
  static const LazyOperator<at::Tensor(const at::Tensor&, const at::Tensor&)> op(
      QualifiedName{"fastact::prelu", ""});
  return op.dispatch(nullptr, self, weight);
}

TORCH_LIBRARY_IMPL(fastact, CompositeImplicitAutograd, library) {
  if (!families().empty()) library.impl("prelu", &composite);
}

TORCH_LIBRARY_IMPL(fastact, FuncTorchBatched, library) {
  if (!families().empty()) library.impl("prelu", &composite);
}

}  // namespace fastact

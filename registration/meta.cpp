// The dispatch key Meta: shapes, strides and types without data. Also serves FakeTensor, hence
// symbolic shapes.
#include <ATen/Functions.h>

#include "registration/checks.h"
#include "registration/signatures.h"

namespace fastact {
namespace {

struct Meta {
  static at::Tensor functional(c10::DispatchKeySet /*keys*/, const Family& family, int order,
                               TensorPointers tensors, const CallParameters& parameters) {
    check_inputs(family, order, tensors, parameters);
    if (order == 0) return at::empty_like(*tensors[0]);
    // A product broadcasts, promotes and lays out its result as D_k does.
    at::Tensor product = at::mul(*tensors[0], *tensors[1]);
    for (int i = 2; i <= order; ++i) product = at::mul(product, *tensors[i]);
    return product;
  }

  static at::Tensor& in_place(c10::DispatchKeySet /*keys*/, const Family& family, at::Tensor& self,
                              const CallParameters& parameters) {
    const at::Tensor* tensors[] = {&self};
    check_inputs(family, 0, tensors, parameters);
    return self;
  }

  static at::Tensor& out(c10::DispatchKeySet keys, const Family& family, int order,
                         TensorPointers tensors, const CallParameters& parameters,
                         at::Tensor& out) {
    const at::Tensor result = functional(keys, family, order, tensors, parameters);
    check_out(family, order, tensors, result.scalar_type(), out);
    if (!out.sym_sizes().equals(result.sym_sizes())) out.resize__symint(result.sym_sizes());
    return out;
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(fastact, Meta, library) { implement<Meta>(library, c10::DispatchKey::Meta); }

}  // namespace fastact

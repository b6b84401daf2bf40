// selu_alpha_dropout, which draws a seed.
#include <ATen/core/Tensor.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "registration/composites/composites.h"
#include "registration/composites/seed.h"
#include "registration/device_kernels.h"

namespace fastact {
namespace {

at::Tensor selu_with_dropout(const at::Tensor& self, double p, bool train) {
  TORCH_CHECK_VALUE(p >= 0 && p <= 1,
                    "fastact::selu_alpha_dropout: expected p to be from 0 to 1, but got ", p);
  static const Operator& selu = operator_named("selu");
  const at::Tensor* const tensors[] = {&self};
  if (!train || p == 0) return selu.call(tensors, {});
  // As in at::alpha_dropout.
  if (p == 1) return at::mul(selu.call(tensors, {}), at::zeros({}, self.options()));
  const at::Tensor seed = draw_seed(self);
  const at::Tensor* const with_seed[] = {&self, &seed};
  static const Operator& dropout = operator_named("_selu_alpha_dropout");
  return dropout.call(with_seed, {.numbers = {{p}}});
}

bool has_alpha_dropout() { return find_operator("_selu_alpha_dropout") != nullptr; }

void define_alpha_dropout(torch::Library& library) {
  if (!has_alpha_dropout()) return;
  library.def("selu_alpha_dropout(Tensor self, float p, bool train) -> Tensor",
              {at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded});
}

void implement_alpha_dropout(torch::Library& library) {
  if (has_alpha_dropout()) library.impl("selu_alpha_dropout", &selu_with_dropout);
}

}  // namespace

const Composites kAlphaDropoutComposites = {.define = &define_alpha_dropout,
                                            .implement = &implement_alpha_dropout,
                                            .draws_random_numbers = true};

}  // namespace fastact

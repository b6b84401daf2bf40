// rrelu, which draws a seed in training and is leaky ReLU with the mean slope otherwise.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <cmath>
#include <vector>

#include "ops/floating_point.h"
#include "registration/composites/composites.h"
#include "registration/composites/seed.h"
#include "registration/device_kernels.h"

namespace fastact {
namespace {

// Returns the mean, independently of the caller's floating-point environment.
double mean_of(double lower, double upper) {
  // Volatile, so that the compiler moves no arithmetic out of the environment's scope.
  const volatile double bounds[] = {lower, upper};
  volatile double mean = 0;
  {
    const DefaultFloatingPoint environment;
    mean = (bounds[0] + bounds[1]) / 2;
  }
  return mean;
}

const Operator& leaky_relu() {
  static const Operator& op = operator_named("leaky_relu");
  return op;
}

void check_bounds(double lower, double upper) {
  TORCH_CHECK_VALUE(lower <= upper && std::isfinite(upper - lower),
                    "fastact::rrelu: expected lower <= upper, both finite, but got lower=", lower,
                    " and upper=", upper);
}

at::Tensor rrelu(const at::Tensor& self, double lower, double upper, bool training) {
  check_bounds(lower, upper);
  const at::Tensor* const tensors[] = {&self};
  if (!training) return leaky_relu().call(tensors, {.numbers = {{mean_of(lower, upper)}}});
  const at::Tensor seed = draw_seed(self);
  const at::Tensor* const with_seed[] = {&self, &seed};
  static const Operator& random = operator_named("_rrelu");
  return random.call(with_seed, {.numbers = {{lower, upper}}});
}

at::Tensor& rrelu_(at::Tensor& self, double lower, double upper, bool training) {
  check_bounds(lower, upper);
  const at::Tensor* const tensors[] = {&self};
  if (!training)
    return leaky_relu().write(nullptr, tensors, {.numbers = {{mean_of(lower, upper)}}}, self);
  // The backward pass needs the values of self. Under vmap, self does not say whether there is one.
  const bool is_differentiated = (at::GradMode::is_enabled() && self.requires_grad()) ||
                                 self._fw_grad(/*level=*/0).defined() ||
                                 self.key_set().has(c10::DispatchKey::FuncTorchBatched);
  return self.copy_(rrelu(is_differentiated ? self.clone() : self, lower, upper, training));
}

void define_rrelu(torch::Library& library) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded};
  constexpr auto kArguments =
      "float lower=0.125, float upper=0.3333333333333333, bool training=False";
  library.def(c10::str("rrelu(Tensor self, ", kArguments, ") -> Tensor").c_str(), tags);
  library.def(c10::str("rrelu_(Tensor(a!) self, ", kArguments, ") -> Tensor(a!)").c_str(), tags);
}

void implement_rrelu(torch::Library& library) {
  library.impl("rrelu", &rrelu);
  library.impl("rrelu_", &rrelu_);
}

}  // namespace

const Composites kRreluComposites = {
    .define = &define_rrelu, .implement = &implement_rrelu, .draws_random_numbers = true};

}  // namespace fastact

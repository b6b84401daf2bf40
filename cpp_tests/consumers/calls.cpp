// An application that calls FastAct through its C++ header.

#include <ATen/ATen.h>
#include <fastact/fastact.h>

#include <cstdio>
#include <string>

namespace {

int failures = 0;

void expect(bool condition, const char* what) {
  if (!condition) {
    std::printf("failed: %s\n", what);
    ++failures;
  }
}

}  // namespace

int main() {
  const at::Tensor input = at::linspace(-4, 4, 1001);
  const at::Tensor gradient = at::ones_like(input);

  const at::Tensor selu = fastact::selu(input);
  expect(selu.allclose(at::selu(input)), "selu agrees with aten");
  at::Tensor in_place = input.clone();
  fastact::selu_(in_place);
  expect(at::equal(in_place, selu), "selu_ agrees with selu");
  at::Tensor out = at::empty_like(input);
  fastact::selu_out(out, input);
  expect(at::equal(out, selu), "selu_out agrees with selu");

  at::Tensor leaf = input.clone().requires_grad_();
  fastact::selu(leaf).backward(gradient);
  expect(at::equal(leaf.grad(), fastact::selu_backward(gradient, input)), "selu_backward");

  const at::Tensor relu = fastact::relu(input);
  expect(at::equal(relu, at::relu(input)), "relu agrees with aten");
  at::Tensor relu_in_place = input.clone();
  fastact::relu_(relu_in_place);
  expect(at::equal(relu_in_place, relu), "relu_ agrees with relu");
  fastact::relu_out(out, input);
  expect(at::equal(out, relu), "relu_out agrees with relu");
  expect(at::equal(fastact::relu_backward(gradient, input), (input > 0).to(at::kFloat)),
         "relu_backward");

  // Saves z for the backward pass. This must work in every build, whatever activations it contains.
  at::Tensor trained = input.clone().requires_grad_();
  fastact::fused_selu(trained, {.residual = input}).backward(gradient);
  expect(at::equal(trained.grad(), fastact::selu_backward(gradient, input + input)),
         "the gradient of fused_selu with a residual");

  const std::string info = fastact::build_info();
  std::printf("%s\n", info.c_str());
  expect(!info.empty(), "build_info says something");
  return failures == 0 ? 0 : 1;
}

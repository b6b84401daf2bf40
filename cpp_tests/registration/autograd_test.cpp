// Autograd from C++: derivatives of all orders, in place, on views; saved tensors and refused
// calls.
#include <ATen/ATen.h>
#include <fastact/fastact.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <string>

#include "cpp_tests/registration/support.h"

namespace fastact::testing {
namespace {

at::Tensor gradient_of(const at::Tensor& y, const at::Tensor& x, bool create_graph = false) {
  return torch::autograd::grad({y}, {x}, {}, std::nullopt, create_graph)[0];
}

at::Tensor leaf(at::ScalarType type = at::kDouble) {
  return at::linspace(-3, 3, 61, at::kDouble).to(type).requires_grad_();
}

// Returns lambda alpha e^x below zero and `beyond` above: every derivative of SELU.
at::Tensor selu_derivative(const at::Tensor& x, double beyond) {
  const at::Tensor value = x.detach();
  return at::where(value > 0, at::full_like(value, beyond),
                   at::exp(value) * 1.7580993408473768599402175208123);
}

constexpr double kLambda = 1.0507009873554804934193349852946;

TEST(AutogradTest, GradientIsTheBackwardOperators) {
  for (const at::ScalarType type : kTypes) {
    const at::Tensor x = leaf(type);
    const at::Tensor gradient = at::linspace(-1, 2, 61, at::kDouble).to(type);
    fastact::selu(x).backward(gradient);
    EXPECT_TRUE(same_bits(x.grad(), fastact::selu_backward(gradient, x.detach())));
    const at::Tensor z = leaf(type);
    fastact::relu(z).backward(gradient);
    EXPECT_TRUE(same_bits(z.grad(), fastact::relu_backward(gradient, z.detach())));
  }
}

TEST(AutogradTest, SeluToTheSixthOrder) {
  const at::Tensor x = leaf();
  const at::Tensor weights = at::linspace(0.5, 2, 61, at::kDouble);
  at::Tensor y = fastact::selu(x);
  for (int order = 1; order <= 6; ++order) {
    y = gradient_of((y * weights).sum(), x, true);
    const at::Tensor exact = weights.pow(order) * selu_derivative(x, order == 1 ? kLambda : 0);
    EXPECT_TRUE(at::allclose(y, exact, 1e-14)) << "order " << order;
  }
}

TEST(AutogradTest, DoubleBackwardByTheGradient) {
  const at::Tensor x = leaf();
  const at::Tensor gradient = at::ones({61}, at::kDouble).requires_grad_();
  const at::Tensor result = fastact::selu_backward(gradient, x);
  EXPECT_TRUE(
      at::allclose(gradient_of(result.sum(), gradient), selu_derivative(x, kLambda), 1e-14));
}

TEST(AutogradTest, ReluHasNoSecondDerivative) {
  const at::Tensor x = leaf();
  const at::Tensor first = gradient_of(fastact::relu(x).sum(), x, true);
  EXPECT_TRUE(at::equal(first.detach(), (x.detach() > 0).to(at::kDouble)));
  const at::Tensor second = gradient_of(first.sum(), x);
  EXPECT_TRUE(same_bits(second, at::zeros({61}, at::kDouble)));
}

TEST(AutogradTest, InPlaceTakesItsGradientFromTheResult) {
  const at::Tensor x = leaf();
  at::Tensor y = x * 1;
  const void* const memory = y.data_ptr();
  fastact::selu_(y);
  EXPECT_EQ(y.data_ptr(), memory);
  const at::Tensor first = gradient_of(y.sum(), x, true);
  EXPECT_TRUE(at::allclose(first, selu_derivative(x, kLambda), 1e-12));
  const at::Tensor second = gradient_of(first.sum(), x, true);
  EXPECT_TRUE(at::allclose(second, selu_derivative(x, 0), 1e-12));
  const at::Tensor third = gradient_of(second.sum(), x);
  EXPECT_TRUE(at::allclose(third, selu_derivative(x, 0), 1e-12));
}

TEST(AutogradTest, InPlaceOnAView) {
  const at::Tensor x = leaf();
  at::Tensor base = x * 1;
  at::Tensor view = base.slice(0, 10, 40, 2);
  fastact::selu_(view);
  at::Tensor expected = at::ones({61}, at::kDouble);
  at::Tensor changed = expected.slice(0, 10, 40, 2);
  changed.copy_(selu_derivative(x.detach().slice(0, 10, 40, 2), kLambda));
  EXPECT_TRUE(at::allclose(gradient_of(base.sum(), x), expected, 1e-12));
}

TEST(AutogradTest, InPlaceOnALeafIsRefused) {
  at::Tensor x = leaf();
  EXPECT_NE(message_of<c10::Error>([&] { fastact::selu_(x); }).find("in-place operation"),
            std::string::npos);
  EXPECT_TRUE(at::equal(x.detach(), leaf().detach()));
}

TEST(AutogradTest, InPlaceAndOutCountVersions) {
  at::Tensor x = at::ones({3});
  const int64_t before = x._version();
  fastact::selu_(x);
  fastact::relu_(x);
  EXPECT_EQ(x._version(), before + 2);
  fastact::relu_out(x, at::ones({3}));
  EXPECT_EQ(x._version(), before + 3);
}

TEST(AutogradTest, WhatIsSavedMustNotChange) {
  const at::Tensor x = leaf();
  at::Tensor input = x * 1;
  const at::Tensor y = fastact::selu(input);
  input.add_(1);
  EXPECT_THROW(gradient_of(y.sum(), x), c10::Error) << "SELU keeps its input";

  at::Tensor free = x * 1;
  const at::Tensor z = fastact::relu(free);
  free.add_(1);
  EXPECT_NO_THROW(gradient_of(z.sum(), x)) << "ReLU keeps its result";
}

TEST(AutogradTest, BackwardTwiceNeedsRetainGraph) {
  const at::Tensor x = leaf();
  const at::Tensor y = fastact::selu(x);
  y.sum().backward({}, /*retain_graph=*/true);
  const at::Tensor sum = y.sum();
  sum.backward();
  EXPECT_THROW(y.sum().backward(), c10::Error);
}

TEST(AutogradTest, NodesAreNamedAfterTheirOperators) {
  const at::Tensor x = leaf();
  EXPECT_EQ(fastact::selu(x).grad_fn()->name(), "FastActSeluBackward0");
  EXPECT_EQ(fastact::relu(x).grad_fn()->name(), "FastActReluBackward0");
  EXPECT_EQ(fastact::selu_backward(x, x).grad_fn()->name(), "FastActSeluBackwardBackward0");
}

TEST(AutogradTest, NoGraphWithoutNeed) {
  EXPECT_EQ(fastact::selu(at::ones({3})).grad_fn(), nullptr);
  const at::NoGradGuard guard;
  EXPECT_EQ(fastact::selu(leaf()).grad_fn(), nullptr);
  EXPECT_FALSE(fastact::selu(leaf()).requires_grad());
}

TEST(AutogradTest, NanInputHasANanGradient) {
  for (const at::ScalarType type : kTypes) {
    const at::Tensor x = at::full({5}, std::nan(""), type).requires_grad_();
    fastact::relu(x).sum().backward();
    EXPECT_TRUE(at::isnan(x.grad()).all().item<bool>()) << type;
    const at::Tensor z = at::full({5}, std::nan(""), type).requires_grad_();
    fastact::selu(z).sum().backward();
    EXPECT_TRUE(at::isnan(z.grad()).all().item<bool>()) << type;
  }
}

// Central differences, on both sides of zero.
TEST(AutogradTest, GradientAgreesWithDifferences) {
  const double step = 1e-6;
  const at::Tensor x = leaf();
  const at::Tensor away = x.detach().abs() > 1e-3;
  for (auto* const f : {&fastact::selu, &fastact::relu}) {
    const at::Tensor value = x.detach();
    const at::Tensor slope = (f(value + step) - f(value - step)) / (2 * step);
    const at::Tensor gradient = gradient_of(f(x).sum(), x);
    EXPECT_TRUE(at::allclose(gradient.masked_select(away), slope.masked_select(away), 1e-7, 1e-8));
  }
}

}  // namespace
}  // namespace fastact::testing

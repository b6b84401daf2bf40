// The public header: compares each function with the operator of the same name and with ATen's
// values.
#include <fastact/fastact.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>

#include "cpp_tests/registration/support.h"

namespace fastact::testing {
namespace {

// The functions of one activation, and their counterparts in ATen.
struct Functions {
  const char* name;
  at::Tensor (*functional)(const at::Tensor&);
  at::Tensor& (*in_place)(at::Tensor&);
  at::Tensor& (*out)(at::Tensor&, const at::Tensor&);
  at::Tensor (*backward)(const at::Tensor&, const at::Tensor&);
  at::Tensor (*reference)(const at::Tensor&);
  double (*slope)(double);
};

void PrintTo(const Functions& functions, std::ostream* stream) { *stream << functions.name; }

at::Tensor selu_backward_of_input(const at::Tensor& gradient, const at::Tensor& self) {
  return fastact::selu_backward(gradient, self);
}

double selu_slope(double x) {
  const double lambda = 1.0507009873554805;
  return x > 0 ? lambda : 1.7580993408473769 * std::exp(x);
}

double relu_slope(double x) {
  if (std::isnan(x)) return x;
  return x > 0 ? 1 : 0;
}

const Functions kFunctions[] = {
    {"relu", &relu, &relu_, &relu_out, &relu_backward, &at::relu, &relu_slope},
    {"selu", &selu, &selu_, &selu_out, &selu_backward_of_input, &at::selu, &selu_slope},
};

class ApiTest : public ::testing::TestWithParam<std::tuple<Functions, at::ScalarType>> {
 protected:
  const Functions& f_ = std::get<0>(GetParam());
  const at::ScalarType type_ = std::get<1>(GetParam());
  const std::string in_place_name_ = std::string(f_.name) + "_";
  const std::string backward_name_ = std::string(f_.name) + "_backward";

  [[nodiscard]] at::Tensor operator_backward(const at::Tensor& gradient,
                                             const at::Tensor& self) const {
    if (std::string(f_.name) == "relu") return call<Backward>("relu_backward", "", gradient, self);
    return call<BackwardFlag>(backward_name_.c_str(), "", gradient, self, false);
  }
};

TEST_P(ApiTest, FunctionAndOperatorGiveAtensValues) {
  const at::Tensor x = inputs(type_);
  const at::Tensor y = f_.functional(x);
  EXPECT_TRUE(same_bits(y, call<Unary>(f_.name, "", x)));
  const at::Tensor expected = f_.reference(x.to(at::kDouble)).to(type_);
  EXPECT_TRUE(at::allclose(y.to(at::kDouble), expected.to(at::kDouble), 1e-15, 0, true));
  EXPECT_TRUE(same_bits(x, inputs(type_))) << "the input has changed";
}

TEST_P(ApiTest, InPlaceWritesToItsArgumentAndReturnsIt) {
  const at::Tensor x = inputs(type_);
  at::Tensor self = x.clone();
  const void* const memory = self.data_ptr();
  EXPECT_EQ(&f_.in_place(self), &self);
  EXPECT_EQ(self.data_ptr(), memory);
  EXPECT_TRUE(same_bits(self, f_.functional(x)));
  at::Tensor other = x.clone();
  EXPECT_TRUE(call<InPlace>(in_place_name_.c_str(), "", other).is_same(other));
  EXPECT_TRUE(same_bits(other, self));
}

TEST_P(ApiTest, OutWritesToItsArgumentAndReturnsIt) {
  const at::Tensor x = inputs(type_);
  at::Tensor out = at::empty_like(x);
  const void* const memory = out.data_ptr();
  EXPECT_EQ(&f_.out(out, x), &out);
  EXPECT_EQ(out.data_ptr(), memory);
  EXPECT_TRUE(same_bits(out, f_.functional(x)));
  at::Tensor other = at::empty({0}, x.options());
  EXPECT_TRUE(call<UnaryOut>(f_.name, "out", x, other).is_same(other));
  EXPECT_TRUE(same_bits(other, out)) << "an empty out is resized";
  at::Tensor same = x.clone();
  f_.out(same, same);
  EXPECT_TRUE(same_bits(same, out)) << "out may be the input";
}

TEST_P(ApiTest, OutOfAnotherTypeIsCastTo) {
  const at::Tensor x = inputs(type_);
  for (const at::ScalarType type : kTypes) {
    at::Tensor out = at::empty(x.sizes(), type);
    f_.out(out, x);
    // The cast's NaNs are torch's.
    EXPECT_TRUE(at::allclose(out, f_.functional(x).to(type), 0, 0, true)) << type;
  }
}

TEST_P(ApiTest, BackwardIsGradientTimesSlope) {
  const at::Tensor x = inputs(type_);
  const at::Tensor gradient = at::linspace(-2, 3, x.numel(), at::kDouble).to(type_);
  const at::Tensor result = f_.backward(gradient, x);
  EXPECT_TRUE(same_bits(result, operator_backward(gradient, x)));
  const at::Tensor wide = x.to(at::kDouble);
  at::Tensor expected = at::empty_like(wide);
  for (int64_t i = 0; i < wide.numel(); ++i) {
    expected.data_ptr<double>()[i] = f_.slope(wide.data_ptr<double>()[i]);
  }
  expected = (expected * gradient.to(at::kDouble)).to(type_);
  const double ulps = type_ == at::kDouble ? 2e-15 : 1.01 * epsilon_of(type_);
  EXPECT_TRUE(at::allclose(result.to(at::kDouble), expected.to(at::kDouble), ulps, 1e-30, true));
}

TEST_P(ApiTest, EveryLayoutGivesTheSameBits) {
  const at::Tensor x = inputs(type_, 1680).reshape({2, 6, 10, 14});
  const at::Tensor y = f_.functional(x);
  const at::Tensor gradient = at::linspace(-2, 3, x.numel(), at::kDouble).to(type_).view_as(x);
  const at::Tensor slope = f_.backward(gradient, x);
  const auto check = [&](const char* layout, const auto& view) {
    SCOPED_TRACE(layout);
    const at::Tensor input = view(x);
    const at::Tensor result = f_.functional(input);
    EXPECT_TRUE(same_bits(result, view(y)));
    EXPECT_EQ(result.strides(), f_.reference(input).strides()) << "ATen's strides";
    EXPECT_TRUE(same_bits(f_.backward(view(gradient), input), view(slope)));
    EXPECT_TRUE(same_bits(f_.backward(view(gradient).contiguous(), input), view(slope)));
    at::Tensor storage = x.clone();
    at::Tensor self = view(storage);
    f_.in_place(self);
    EXPECT_TRUE(same_bits(self, view(y)));
    at::Tensor out = at::empty_like(storage);
    at::Tensor out_view = view(out);
    f_.out(out_view, view(x));
    EXPECT_TRUE(same_bits(out_view, view(y)));
  };
  check("contiguous", [](const at::Tensor& t) { return t; });
  check("transposed", [](const at::Tensor& t) { return t.transpose(1, 3); });
  check("sliced", [](const at::Tensor& t) { return t.slice(3, 1, 14, 3); });
  check("half", [](const at::Tensor& t) { return t.chunk(2, 1)[1]; });
  check("selected", [](const at::Tensor& t) { return t.select(3, 5); });
  check("odd offset", [](const at::Tensor& t) { return t.flatten().slice(0, 3); });
  check("one element", [](const at::Tensor& t) { return t.flatten().select(0, 7); });
  check("empty", [](const at::Tensor& t) { return t.slice(0, 1, 1); });
  const at::Tensor last = x.contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(f_.functional(last).is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(same_bits(f_.functional(last), y));
}

TEST_P(ApiTest, BackwardBroadcasts) {
  const at::Tensor x = inputs(type_, 60).view({3, 4, 5});
  const at::Tensor gradient = at::linspace(-2, 3, 4, at::kDouble).to(type_).view({4, 1});
  EXPECT_TRUE(
      same_bits(f_.backward(gradient, x), f_.backward(gradient.expand({3, 4, 5}).contiguous(), x)));
  EXPECT_EQ(f_.backward(x, gradient).sizes(), x.sizes());
}

TEST_P(ApiTest, LargeTensorsUseSeveralThreadsAndGiveTheSameBits) {
  const at::Tensor x = inputs(type_, 300'007);
  const at::Tensor y = f_.functional(x);
  for (const int64_t start : {0, 32'767, 65'000, 150'003, 299'990}) {
    const at::Tensor part = x.slice(0, start, start + 1000).clone();
    EXPECT_TRUE(same_bits(f_.functional(part), y.slice(0, start, start + 1000))) << start;
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, ApiTest,
                         ::testing::Combine(::testing::ValuesIn(kFunctions),
                                            ::testing::ValuesIn(kTypes)),
                         [](const auto& parameters) {
                           return std::string(std::get<0>(parameters.param).name) + "_" +
                                  c10::toString(std::get<1>(parameters.param));
                         });

TEST(ApiTypesTest, BackwardPromotesMixedTypes) {
  const at::Tensor x = at::linspace(-3, 3, 13);
  for (const at::ScalarType type : kTypes) {
    const at::Tensor gradient = at::ones({13}, type);
    EXPECT_EQ(fastact::selu_backward(gradient, x).scalar_type(),
              at::promote_types(type, at::kFloat));
    // A 0-dimensional tensor does not determine the type.
    EXPECT_EQ(fastact::selu_backward(gradient.select(0, 0), x).scalar_type(), at::kFloat);
  }
}

TEST(ApiResultTest, SeluBackwardFromTheResult) {
  const at::Tensor x = at::linspace(-6, 3, 1001, at::kDouble);
  const at::Tensor gradient = at::linspace(-1, 1, 1001, at::kDouble);
  const at::Tensor y = fastact::selu(x);
  EXPECT_TRUE(at::allclose(fastact::selu_backward(gradient, y, /*is_result=*/true),
                           fastact::selu_backward(gradient, x), 1e-12, 1e-15));
}

TEST(PreluTest, FunctionGivesAtensValuesAndGradients) {
  const at::Tensor x = at::randn({2, 3, 5}, at::kDouble).requires_grad_();
  for (const int64_t count : {1, 3}) {
    const at::Tensor weight = at::rand({count}, at::kDouble).requires_grad_();
    const at::Tensor y = fastact::prelu(x, weight);
    const at::Tensor expected = at::prelu(x, weight);
    EXPECT_TRUE(at::equal(y, expected));
    const auto gradients = torch::autograd::grad({y.sum()}, {x, weight});
    const auto wanted = torch::autograd::grad({expected.sum()}, {x, weight});
    EXPECT_TRUE(at::allclose(gradients[0], wanted[0]));
    EXPECT_TRUE(at::allclose(gradients[1], wanted[1]));
  }
  EXPECT_THROW(fastact::prelu(x, at::ones({2}, at::kDouble)), c10::Error);
}

at::Tensor page_input() { return at::linspace(-4, 4, 18).view({2, 3, 3}); }

// Checks a documentation page after its calls: its in-place call has changed x, which was
// page_input().
void expect_called(const at::Tensor& x, const at::Tensor& y, const std::string& name) {
  EXPECT_FALSE(same_bits(y, page_input()));
  if (name == "prelu") {  // prelu has no in-place form
    EXPECT_TRUE(same_bits(x, page_input()));
  } else {
    EXPECT_TRUE(same_bits(x, y));
  }
}

TEST(PagesTest, CallsOfTheOperatorsPagesRun) {
#include "cpp_tests/page_calls.inc"
}

TEST(BuildInfoTest, SaysWhatTheLibraryWasBuiltFor) {
  const std::string info = fastact::build_info();
  EXPECT_EQ(call<std::string()>("build_info", ""), info);
  for (const char* line : {"version: ", "\nrevision: ", "\ntorch: ", "\ncuda: ",
                           "\ncpu instruction sets: baseline", "\ncpu instruction set in use: "}) {
    EXPECT_NE(info.find(line), std::string::npos) << line << " is not in\n" << info;
  }
#if FASTACT_HAS_CUDA
  EXPECT_NE(info.find("\ncuda architectures: "), std::string::npos) << info;
#else
  EXPECT_NE(info.find("\ncuda: none"), std::string::npos) << info;
#endif
}

// ---- Fused operators, each compared with its separate operations

TEST(FusedApi, OperandsAndParametersReachTheOperator) {
  const at::Tensor x = inputs(at::kDouble, 24).reshape({2, 3, 4}).nan_to_num(1, 2, -2).clamp(-9, 9);
  const at::Tensor residual = x.flip(0);
  const at::Tensor gate = x.flip(1) + 0.25;
  const at::Tensor channels = at::linspace(0.5, 2, 3, at::kDouble);
  FusedOperands operands;
  operands.scale = channels;
  operands.bias = channels - 1;
  operands.residual = residual;
  operands.gate = gate;
  operands.dim = 1;
  const at::Tensor column = channels.view({3, 1});
  const at::Tensor z = x * column + (column - 1) + residual;
  const auto close = [&](const at::Tensor& result, const at::Tensor& value) {
    return at::allclose(result, value * gate, 1e-13, 1e-13);
  };
  EXPECT_TRUE(close(fused_gelu(x, operands), at::gelu(z)));
  EXPECT_TRUE(close(fused_elu(x, operands, 0.5, 2.0, 0.75), at::elu(z, 0.5, 2.0, 0.75)));
  at::Tensor out = at::empty({0}, x.options());
  EXPECT_EQ(&fused_gelu_out(out, x, operands), &out);
  EXPECT_TRUE(same_bits(out, fused_gelu(x, operands)));
  at::Tensor self = x.clone();
  EXPECT_EQ(&fused_gelu_(self, operands), &self);
  EXPECT_TRUE(same_bits(self, out));
}

TEST(FusedApi, NoOperandsGiveTheActivation) {
  const at::Tensor x = inputs(at::kFloat);
  EXPECT_TRUE(same_bits(fused_selu(x, {}), fastact::selu(x)));
}

TEST(FusedApi, HalvesAreMultiplied) {
  const at::Tensor x = at::linspace(-4, 4, 48, at::kFloat).reshape({4, 12});
  const at::Tensor first = x.narrow(-1, 0, 6);
  const at::Tensor second = x.narrow(-1, 6, 6);
  EXPECT_TRUE(same_bits(gelu_and_mul(x), fastact::gelu(first) * second));
  EXPECT_TRUE(same_bits(gelu_and_mul(x, false), first * fastact::gelu(second)));
  at::Tensor out = at::empty({0}, x.options());
  EXPECT_EQ(&elu_and_mul_out(out, x, 2.0), &out);
  EXPECT_TRUE(same_bits(out, fastact::elu(first, 2.0) * second));
}

TEST(FusedApi, ClampedSwiglu) {
  const at::Tensor x = at::linspace(-9, 9, 48, at::kDouble).reshape({4, 12});
  const auto expected = [](const at::Tensor& gate, const at::Tensor& linear) {
    const at::Tensor c = gate.clamp_max(3);
    return c * at::sigmoid(2 * c) * (linear.clamp(-3, 3) + 1);
  };
  const at::Tensor halves = expected(x.narrow(-1, 6, 6), x.narrow(-1, 0, 6));
  EXPECT_TRUE(at::allclose(clamped_swiglu(x, 3, 2, false), halves, 1e-12, 0));
  const at::Tensor parts = x.reshape({4, 6, 2});
  at::Tensor out = at::empty({0}, x.options());
  EXPECT_EQ(&clamped_swiglu_out(out, x, 3, 2, true, true), &out);
  EXPECT_TRUE(at::allclose(out, expected(parts.select(-1, 0), parts.select(-1, 1)), 1e-12, 0));
}

TEST(FusedApi, SeluAlphaDropout) {
  const at::Tensor x = at::linspace(-4, 4, 1000, at::kFloat);
  EXPECT_TRUE(same_bits(selu_alpha_dropout(x, 0.5, false), fastact::selu(x)));
  // All dropped elements have the same value, which is the smallest.
  const at::Tensor result = selu_alpha_dropout(x, 0.5, true);
  const auto dropped = (result == result.min()).sum().item<int64_t>();
  EXPECT_GT(dropped, 400);
  EXPECT_LT(dropped, 600);
}

TEST(FusedApi, Glu) {
  const at::Tensor x = at::linspace(-4, 4, 48, at::kDouble).reshape({4, 12});
  EXPECT_TRUE(at::allclose(fastact::glu(x), at::glu(x), 1e-12, 0));
  at::Tensor out = at::empty({0}, x.options());
  EXPECT_EQ(&fastact::glu_out(out, x, 0), &out);
  EXPECT_TRUE(at::allclose(out, at::glu(x, 0), 1e-12, 0));
}

TEST(FusedApi, Rrelu) {
  at::Tensor x = at::linspace(-4, 4, 1000, at::kFloat);
  EXPECT_TRUE(same_bits(fastact::rrelu(x, 0.25, 0.75), fastact::leaky_relu(x, 0.5)));
  const at::Tensor slopes = (fastact::rrelu(x, 0.25, 0.75, true) / x).narrow(0, 0, 500);
  EXPECT_TRUE((slopes >= 0.24).logical_and(slopes <= 0.76).all().item<bool>());
  EXPECT_GT(slopes.std().item<double>(), 0.1);
  EXPECT_EQ(&fastact::rrelu_(x, 0.5, 0.5, true), &x);
  EXPECT_EQ(x[0].item<float>(), -2);
}

TEST(RowsApi, SoftmaxAndLogSoftmax) {
  const at::Tensor x = at::linspace(-4, 4, 60, at::kDouble).reshape({3, 4, 5});
  EXPECT_TRUE(at::allclose(fastact::softmax(x, 1), at::softmax(x, 1), 1e-12, 0));
  EXPECT_TRUE(at::allclose(fastact::log_softmax(x, -1), at::log_softmax(x, -1), 1e-12, 0));
  EXPECT_EQ(fastact::softmax(x, 0, at::kHalf).scalar_type(), at::kHalf);
  at::Tensor out = at::empty({0}, x.options());
  EXPECT_EQ(&fastact::softmax_out(out, x, 2), &out);
  EXPECT_TRUE(same_bits(out, fastact::softmax(x, 2)));
  EXPECT_EQ(&fastact::log_softmax_out(out, x, 0), &out);
  EXPECT_TRUE(same_bits(out, fastact::log_softmax(x, 0)));
  EXPECT_THROW(fastact::softmax(x, 3), c10::IndexError);
}

TEST(RowsApi, Norms) {
  const at::Tensor x = at::randn({2, 3, 4}, at::kDouble);
  const at::Tensor weight = at::randn({4}, at::kDouble);
  const at::Tensor bias = at::randn({4}, at::kDouble);
  const at::Tensor rms = fastact::rms_norm(x, {4}, weight);
  EXPECT_TRUE(at::allclose(rms, at::rms_norm(x, {4}, weight), 1e-12, 1e-12));
  const at::Tensor layer = fastact::layer_norm(x, {4}, weight, bias);
  EXPECT_TRUE(at::allclose(layer, at::layer_norm(x, {4}, weight, bias), 1e-10, 1e-12));
  EXPECT_TRUE(
      at::allclose(fastact::layer_norm(x, {3, 4}), at::layer_norm(x, {3, 4}), 1e-10, 1e-12));
  at::Tensor out = at::empty({0}, at::kDouble);
  EXPECT_EQ(&fastact::rms_norm_out(out, x, {4}, weight), &out);
  EXPECT_TRUE(same_bits(out, rms));
  EXPECT_EQ(&fastact::layer_norm_out(out, x, {4}, weight, bias), &out);
  EXPECT_TRUE(same_bits(out, layer));
  EXPECT_THROW(fastact::rms_norm(x, {3}), c10::Error);
  const at::Tensor residual = at::randn_like(x);
  const auto [of_sum, sum] = fastact::add_rms_norm(x, residual, {4}, weight);
  EXPECT_TRUE(same_bits(sum, x + residual));
  EXPECT_TRUE(same_bits(of_sum, fastact::rms_norm(sum, {4}, weight)));
  const at::Tensor layer_of_sum =
      std::get<0>(fastact::add_layer_norm(x, residual, {4}, weight, bias));
  EXPECT_TRUE(same_bits(layer_of_sum, fastact::layer_norm(sum, {4}, weight, bias)));
  EXPECT_THROW(fastact::add_rms_norm(x, weight, {4}), c10::Error);
}

TEST(RowsApi, GroupNorms) {
  const at::Tensor x = at::randn({2, 6, 4}, at::kDouble);
  const at::Tensor weight = at::randn({6}, at::kDouble);
  const at::Tensor bias = at::randn({6}, at::kDouble);
  const at::Tensor groups = fastact::group_norm(x, 3, weight, bias);
  EXPECT_TRUE(at::allclose(groups, at::group_norm(x, 3, weight, bias), 1e-10, 1e-12));
  at::Tensor out = at::empty({0}, at::kDouble);
  EXPECT_EQ(&fastact::group_norm_out(out, x, 3, weight, bias), &out);
  EXPECT_TRUE(same_bits(out, groups));
  EXPECT_THROW(fastact::group_norm(x, 4), c10::Error);
  EXPECT_TRUE(
      same_bits(fastact::instance_norm(x, weight, bias), fastact::group_norm(x, 6, weight, bias)));
  const at::Tensor mean = at::zeros({6}, at::kDouble);
  const at::Tensor variance = at::ones({6}, at::kDouble);
  fastact::instance_norm(x, weight, bias, mean, variance);
  EXPECT_TRUE(at::allclose(mean, 0.1 * x.mean(at::IntArrayRef{0, 2}), 1e-10, 1e-12));
  EXPECT_TRUE(at::allclose(
      variance, 0.9 + 0.1 * x.var(at::IntArrayRef{2}, /*unbiased=*/true).mean(0), 1e-10, 1e-12));
}

TEST(RowsApi, Logsumexp) {
  const at::Tensor x = at::randn({2, 3, 4}, at::kDouble);
  const at::Tensor along = fastact::logsumexp(x, {1, 2}, /*keepdim=*/true);
  EXPECT_TRUE(at::allclose(along, at::logsumexp(x, {1, 2}, true), 1e-12, 1e-12));
  at::Tensor out = at::empty({0}, at::kDouble);
  EXPECT_EQ(&fastact::logsumexp_out(out, x, {0}), &out);
  EXPECT_TRUE(same_bits(out, fastact::logsumexp(x, {0})));
  EXPECT_THROW(fastact::logsumexp(x, {3}), c10::IndexError);
}

TEST(RowsApi, Reductions) {
  const at::Tensor x = at::randn({2, 3, 4}, at::kDouble);
  at::Tensor out = at::empty({0}, at::kDouble);
  EXPECT_TRUE(at::allclose(fastact::sum(x), at::sum(x), 1e-12, 1e-12));
  const at::Tensor along = fastact::sum(x, at::IntArrayRef{0, 2}, /*keepdim=*/true, at::kFloat);
  EXPECT_TRUE(at::allclose(along, at::sum(x.to(at::kFloat), at::IntArrayRef{0, 2}, true)));
  EXPECT_EQ(&fastact::sum_out(out, x, 1), &out);
  EXPECT_TRUE(same_bits(out, fastact::sum(x, 1)));
  EXPECT_TRUE(at::allclose(fastact::mean(x, 1), at::mean(x, 1), 1e-12, 1e-12));
  EXPECT_EQ(&fastact::mean_out(out, x, 1), &out);
  EXPECT_TRUE(same_bits(out, fastact::mean(x, 1)));
  const auto [variance, mean] = fastact::var_mean(x, 2, /*correction=*/0.0);
  EXPECT_TRUE(at::allclose(variance, at::var(x, {2}, /*correction=*/0), 1e-12, 1e-12));
  EXPECT_TRUE(same_bits(mean, fastact::mean(x, 2)));
  EXPECT_THROW(fastact::sum(x, 3), c10::IndexError);
}

TEST(RowsApi, CrossEntropy) {
  const at::Tensor x = at::randn({4, 5}, at::kDouble).requires_grad_();
  const at::Tensor target = at::tensor({3, -100, 0, 4}, at::kLong);
  const at::Tensor weight = at::rand({5}, at::kDouble);
  const at::Tensor loss = fastact::cross_entropy(x, target, weight);
  EXPECT_TRUE(at::allclose(loss, at::cross_entropy_loss(x, target, weight), 1e-12, 1e-12));
  const auto gradient = [&](const at::Tensor& y) { return torch::autograd::grad({y}, {x})[0]; };
  const at::Tensor expected = gradient(at::cross_entropy_loss(x, target, weight));
  EXPECT_TRUE(at::allclose(gradient(loss), expected, 1e-12, 1e-12));
  const at::Tensor classes = target.clamp_min(0);
  const at::Tensor each = fastact::cross_entropy(x, classes, {}, at::Reduction::None, 0, 0.25);
  EXPECT_EQ(each.sizes(), target.sizes());
  EXPECT_THROW(fastact::cross_entropy(x, target.slice(0, 1)), c10::Error);
  EXPECT_THROW(fastact::cross_entropy(x, target + 7), c10::IndexError);
}

}  // namespace
}  // namespace fastact::testing

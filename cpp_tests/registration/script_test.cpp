// TorchScript: source text that calls torch.ops.fastact is compiled, run, saved, loaded and run
// again.
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/csrc/jit/serialization/import.h>

#include <memory>
#include <sstream>
#include <string>

#include "cpp_tests/registration/support.h"

namespace fastact::testing {
namespace {

constexpr const char* kSource = R"(
def forward(self, x):
    y = torch.ops.fastact.selu(x * 2.0)
    z = torch.ops.fastact.relu(y - 0.5)
    return torch.ops.fastact.selu_(z.clone()) + y

def slopes(self, gradient, x):
    first = torch.ops.fastact.selu_backward(gradient, x)
    second = torch.ops.fastact.selu_double_backward(gradient, gradient, x, is_result=False)
    return first, second

def info(self) -> str:
    return torch.ops.fastact.build_info()
)";

// The meaning of the name torch in the source. The compiler knows it in Python; in C++ it must be
// defined.
struct OperatorNamespaces : torch::jit::SugaredValue {
  [[nodiscard]] std::string kind() const override { return "torch.ops"; }
  std::shared_ptr<torch::jit::SugaredValue> attr(const torch::jit::SourceRange& /*location*/,
                                                 torch::jit::GraphFunction& /*function*/,
                                                 const std::string& field) override {
    return std::make_shared<torch::jit::BuiltinModule>(field);
  }
};

struct TorchModule : torch::jit::BuiltinModule {
  TorchModule() : BuiltinModule("aten") {}
  std::shared_ptr<torch::jit::SugaredValue> attr(const torch::jit::SourceRange& location,
                                                 torch::jit::GraphFunction& function,
                                                 const std::string& field) override {
    if (field == "ops") return std::make_shared<OperatorNamespaces>();
    return BuiltinModule::attr(location, function, field);
  }
};

struct TorchResolver : torch::jit::Resolver {
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(
      const std::string& name, torch::jit::GraphFunction& /*function*/,
      const torch::jit::SourceRange& /*location*/) override {
    return name == "torch" ? std::make_shared<TorchModule>() : nullptr;
  }
};

torch::jit::Module compile() {
  torch::jit::Module module("activations");
  module.define(kSource, std::make_shared<TorchResolver>());
  return module;
}

torch::jit::Module save_and_load(const torch::jit::Module& module) {
  std::stringstream archive;
  module.save(archive);
  return torch::jit::load(archive);
}

at::Tensor expected(const at::Tensor& x) {
  const at::Tensor y = call<Unary>("selu", "", x * 2.0);
  return call<Unary>("selu", "", call<Unary>("relu", "", y - 0.5)) + y;
}

TEST(ScriptTest, RunsAsTheOperatorsDo) {
  torch::jit::Module module = compile();
  // Several times, because the first runs only profile.
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = at::linspace(-3 - i, 3, 101);
    EXPECT_TRUE(same_bits(module.forward({x}).toTensor(), expected(x)));
  }
}

TEST(ScriptTest, SavedAndLoadedItRunsTheSame) {
  torch::jit::Module module = save_and_load(compile());
  for (const at::ScalarType type : kTypes) {
    const at::Tensor x = at::linspace(-3, 3, 101, at::kDouble).to(type);
    EXPECT_TRUE(same_bits(module.forward({x}).toTensor(), expected(x)));
  }
  EXPECT_EQ(module.get_method("info")({}).toStringRef(), call<std::string()>("build_info", ""));
}

TEST(ScriptTest, DefaultAndNamedArguments) {
  torch::jit::Module module = save_and_load(compile());
  const at::Tensor x = at::linspace(-3, 3, 101);
  const at::Tensor gradient = at::linspace(1, 2, 101);
  const auto slopes = module.get_method("slopes")({gradient, x}).toTuple();
  EXPECT_TRUE(same_bits(slopes->elements()[0].toTensor(),
                        call<BackwardFlag>("selu_backward", "", gradient, x, false)));
  using DoubleBackward = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool);
  EXPECT_TRUE(
      same_bits(slopes->elements()[1].toTensor(),
                call<DoubleBackward>("selu_double_backward", "", gradient, gradient, x, false)));
}

TEST(ScriptTest, BackwardThroughALoadedModule) {
  torch::jit::Module module = save_and_load(compile());
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = at::linspace(-3, 3, 101).requires_grad_();
    module.forward({x}).toTensor().sum().backward();
    const at::Tensor eager = at::linspace(-3, 3, 101).requires_grad_();
    at::Tensor y = call<Unary>("selu", "", eager * 2.0);
    at::Tensor z = call<Unary>("relu", "", y - 0.5).clone();
    (call<InPlace>("selu_", "", z) + y).sum().backward();
    EXPECT_TRUE(at::allclose(x.grad(), eager.grad(), 1e-6));
  }
}

}  // namespace
}  // namespace fastact::testing

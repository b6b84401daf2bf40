// fastact::optimize() called from C++. python_tests/test_optimize.py tests the patterns.
#include <c10/util/Exception.h>
#include <fastact/optimize.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cpp_tests/registration/support.h"

namespace fastact::testing {
namespace {

using Strings = std::vector<std::string>;

torch::jit::Module network() {
  torch::jit::Module module("network");
  module.register_buffer("mean", at::linspace(-1, 1, 4));
  module.register_buffer("variance", at::linspace(0.5, 2, 4));
  module.register_attribute("training", c10::BoolType::get(), false);
  module.define(R"(
def forward(self, x):
    y = torch.batch_norm(x, None, None, self.mean, self.variance, False, 0.1, 1e-5, False)
    return torch.selu(y) * x
)");
  return module;
}

TEST(OptimizeTest, ReplacesWhatASampleShows) {
  torch::jit::Module module = network();
  const at::Tensor x = at::randn({3, 4, 5});
  const at::Tensor expected = module.forward({x}).toTensor();
  const OptimizeReport report = optimize(module, {x});
  EXPECT_EQ(report.replaced, Strings{"fused_selu (batch norm, gate)"});
  EXPECT_EQ(report.left, Strings{});
  EXPECT_NE(module.get_method("forward").graph()->toString().find("fastact::fused_selu"),
            std::string::npos);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(at::allclose(module.forward({x}).toTensor(), expected, 1e-5, 1e-5));
}

TEST(OptimizeTest, LeavesAProductWithoutASample) {
  torch::jit::Module module = network();
  const OptimizeReport report = optimize(module);
  EXPECT_EQ(report.replaced, Strings{"fused_selu (batch norm)"});
  const at::Tensor x = at::randn({3, 4, 5});
  EXPECT_TRUE(
      at::allclose(module.forward({x}).toTensor(), network().forward({x}).toTensor(), 1e-5, 1e-5));
}

TEST(OptimizeTest, AModuleOfWhichItThrowsIsAsItWas) {
  torch::jit::Module module = network();
  const std::string before = module.get_method("forward").graph()->toString();
  EXPECT_THROW(optimize(module, {at::randn({3, 5})}), std::exception);
  module.setattr("training", true);
  try {
    optimize(module);
    FAIL() << "expected an error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("fastact::optimize: expected a module in inference"),
              std::string::npos);
  }
  EXPECT_EQ(module.get_method("forward").graph()->toString(), before);
}

}  // namespace
}  // namespace fastact::testing

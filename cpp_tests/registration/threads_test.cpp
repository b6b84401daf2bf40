// Several threads at once: first calls, further calls, and backward passes.
#include "cpp_tests/threads.h"

#include <fastact/fastact.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "cpp_tests/registration/support.h"

namespace fastact::testing {
namespace {

constexpr int kThreads = 8;

// First calls initialise objects once per process, so this test starts a new one.
TEST(FirstUseDeathTest, OnSeveralThreadsAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto first_use = [] {
    const at::Tensor x = inputs(at::kFloat, 100);
    std::array<std::vector<at::Tensor>, kThreads> results;
    std::array<std::string, kThreads> infos;
    on_threads(kThreads, [&](int thread) {
      // Some threads ask for build_info() first, which also chooses the instruction set.
      if (thread % 2 == 0) infos[thread] = build_info();
      results[thread] = use_every_activation(x);
      if (thread % 2 != 0) infos[thread] = build_info();
    });
    const std::vector<at::Tensor> expected = use_every_activation(x);
    for (int thread = 0; thread < kThreads; ++thread) {
      if (!same_bits(results[thread], expected) || infos[thread] != build_info()) std::exit(1);
    }
    std::exit(0);
  };
  EXPECT_EXIT(first_use(), ::testing::ExitedWithCode(0), "");
}

TEST(ThreadsTest, CallsAtOnceGiveTheSameBits) {
  // Small calls stay on their thread; large ones also use torch's threads.
  for (const int64_t count : {100, 200'003}) {
    const at::Tensor x = inputs(at::kFloat, count);
    const std::vector<at::Tensor> expected = use_every_activation(x);
    std::atomic<int> wrong = 0;
    on_threads(kThreads, [&](int) {
      for (int i = 0; i < 10; ++i) {
        if (!same_bits(use_every_activation(x), expected)) ++wrong;
      }
    });
    EXPECT_EQ(wrong, 0) << count << " elements";
  }
}

TEST(ThreadsTest, BackwardPassesOfOwnGraphs) {
  const at::Tensor gradient = at::linspace(-1, 1, 5001);
  const at::Tensor value = at::linspace(-4, 4, 5001);
  for (const std::string name : kActivations) {
    const auto backward = [&] {
      const at::Tensor x = value.clone().requires_grad_();
      call_with_defaults(name, {x}).backward(gradient);
      return x.grad();
    };
    const at::Tensor expected = backward();
    std::atomic<int> wrong = 0;
    on_threads(kThreads, [&](int) {
      for (int i = 0; i < 20; ++i) {
        if (!same_bits(backward(), expected)) ++wrong;
      }
    });
    EXPECT_EQ(wrong, 0) << name;
  }
}

TEST(ThreadsTest, BackwardPassesOfASharedGraph) {
  const at::Tensor x = at::linspace(-4, 4, 5001).requires_grad_();
  at::Tensor y = x;
  for (const std::string name : kActivations) y = call_with_defaults(name, {y});
  const auto backward = [&] { y.backward(at::ones_like(y), /*retain_graph=*/true); };
  backward();
  const at::Tensor once = x.grad().clone();
  on_threads(kThreads, [&](int) {
    for (int i = 0; i < 10; ++i) backward();
  });
  EXPECT_TRUE(at::allclose(x.grad(), once * (1 + 10 * kThreads), 1e-5));
}

}  // namespace
}  // namespace fastact::testing

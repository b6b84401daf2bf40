// Several threads at once: first calls, calls, backward passes.
#include <fastact/fastact.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "cpp_tests/registration/support.h"

namespace fastact::testing {
namespace {

constexpr int kThreads = 8;

// f(thread) on all threads, started together.
template <class Function>
void on_all_threads(const Function& f) {
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      start.arrive_and_wait();
      f(thread);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ThreadsTest, CallsAtOnceGiveTheSameBits) {
  // Small calls stay on their thread, large ones use torch's own threads too.
  for (const int64_t count : {100, 200'003}) {
    const at::Tensor x = inputs(at::kFloat, count);
    const at::Tensor y = fastact::selu(x);
    std::atomic<int> wrong = 0;
    on_all_threads([&](int thread) {
      for (int i = 0; i < 20; ++i) {
        at::Tensor result;
        if ((thread + i) % 2 == 0) {
          result = fastact::selu(x);
        } else {
          result = x.clone();
          fastact::selu_(result);
        }
        if (!same_bits(result, y)) ++wrong;
      }
    });
    EXPECT_EQ(wrong, 0) << count << " elements";
  }
}

TEST(ThreadsTest, BackwardPassesOfOwnGraphs) {
  const at::Tensor gradient = at::linspace(-1, 1, 5001);
  const at::Tensor value = at::linspace(-4, 4, 5001);
  const at::Tensor expected = fastact::selu_backward(gradient, value);
  std::atomic<int> wrong = 0;
  on_all_threads([&](int) {
    for (int i = 0; i < 20; ++i) {
      const at::Tensor x = value.clone().requires_grad_();
      fastact::selu(x).backward(gradient);
      if (!same_bits(x.grad(), expected)) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadsTest, BackwardPassesOfASharedGraph) {
  const at::Tensor x = at::linspace(-4, 4, 5001).requires_grad_();
  const at::Tensor y = fastact::selu(x);
  const at::Tensor z = fastact::relu(y);
  on_all_threads([&](int) {
    for (int i = 0; i < 10; ++i) z.backward(at::ones_like(z), /*retain_graph=*/true);
  });
  const at::Tensor once =
      fastact::selu_backward(fastact::relu_backward(at::ones_like(y), y.detach()), x.detach());
  EXPECT_TRUE(at::allclose(x.grad(), once * (10 * kThreads), 1e-5));
}

}  // namespace
}  // namespace fastact::testing

// Opens the library on several threads while others compute. This is a separate program that does
// not link the library, because it tests opening it, which can happen only once.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "cpp_tests/registration/support.h"
#include "cpp_tests/threads.h"

namespace fastact::testing {
namespace {

constexpr int kLoaders = 2;
constexpr int kThreads = 8;

TEST(LoadTest, WhileOtherThreadsCompute) {
  ASSERT_FALSE(c10::Dispatcher::singleton().findSchema({"fastact::build_info", ""}).has_value());
  const at::Tensor x = inputs(at::kFloat, 100);
  const at::Tensor theirs = at::selu(x);
  std::atomic<int> loaded = 0;
  std::atomic<int> wrong = 0;
  std::array<std::string, kLoaders> errors;
  on_threads(kThreads, [&](int thread) {
    if (thread < kLoaders) {
      if (dlopen(FASTACT_LIBRARY, RTLD_NOW | RTLD_LOCAL) == nullptr) {
        errors[thread] = dlerror();  // NOLINT(concurrency-mt-unsafe): dlerror() is per thread
      }
      ++loaded;
    }
    do {
      const at::Tensor leaf = x.clone().requires_grad_();
      const at::Tensor y = at::selu(leaf);
      y.backward(at::ones_like(y));
      if (!same_bits(y, theirs)) ++wrong;
    } while (loaded < kLoaders);
  });
  for (const std::string& error : errors) ASSERT_EQ(error, "");
  EXPECT_EQ(wrong, 0);

  std::array<std::vector<at::Tensor>, kThreads> results;
  on_threads(kThreads, [&](int thread) { results[thread] = use_every_activation(x); });
  const std::vector<at::Tensor> expected = use_every_activation(x);
  for (const auto& result : results) EXPECT_TRUE(same_bits(result, expected));
}

}  // namespace
}  // namespace fastact::testing

// Only in builds with FASTACT_SANITIZE. The sanitizers must report errors inside the kernels of
// every instruction set. Each test breaks the engine's contract, and the report must name the
// kernel's own code. Otherwise, a run without findings would prove nothing.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "cpp_tests/ops/support.h"
#include "cpp_tests/threads.h"

namespace fastact::testing {
namespace {

constexpr int64_t kCount = 1031;

bool built_with(std::string_view sanitizer) {
  return std::string_view(FASTACT_SANITIZE).find(sanitizer) != std::string_view::npos;
}

// Runs the first activation's float32 kernel on kCount elements, using every stride-th element of
// x.
void run_kernel(cpu::InstructionSet set, char* out, std::vector<float>& x, int64_t stride) {
  char* operands[] = {out, reinterpret_cast<char*>(x.data())};
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  const int64_t strides[] = {bytes, bytes, 0, 0};
  cpu::find_kernel(0, {}, set)({}, operands, strides, kCount, 1);
}

// The instruction set and the stride: 1 for the contiguous loop, 2 for the strided one.
class SanitizerDeathTest
    : public ::testing::TestWithParam<std::tuple<cpu::InstructionSet, int64_t>> {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    std::tie(set_, stride_) = GetParam();
    x_.resize(stride_ * kCount);
    out_.resize(stride_ * kCount);
  }

  // Returns the file that writes the output.
  [[nodiscard]] std::string file() const {
    return stride_ == 1 ? "ops/cpu/dense.h" : "ops/cpu/strided.cpp";
  }

  cpu::InstructionSet set_ = cpu::InstructionSet::kBaseline;
  int64_t stride_ = 1;
  std::vector<float> x_;
  std::vector<float> out_;
};

TEST_P(SanitizerDeathTest, AnElementBeyondTheOutput) {
  if (!built_with("address")) GTEST_SKIP() << "not built with AddressSanitizer";
  // Memory for all elements except the last one.
  std::vector<float> less(stride_ * (kCount - 1));
  EXPECT_DEATH(run_kernel(set_, reinterpret_cast<char*>(less.data()), x_, stride_),
               "heap-buffer-overflow.*\n(.*\n)*.*" + file());
}

TEST_P(SanitizerDeathTest, AMisalignedOutput) {
  if (!built_with("undefined")) GTEST_SKIP() << "not built with UndefinedBehaviorSanitizer";
  if (stride_ != 1) GTEST_SKIP() << "strided kernels copy elements by memcpy, at any alignment";
  out_.push_back(0);
  EXPECT_DEATH(run_kernel(set_, reinterpret_cast<char*>(out_.data()) + 1, x_, stride_),
               file() + ".*misaligned address");
}

TEST_P(SanitizerDeathTest, TwoThreadsOnOneOutput) {
  if (!built_with("thread")) GTEST_SKIP() << "not built with ThreadSanitizer";
  const auto race = [&] {
    on_threads(2,
               [&](int) { run_kernel(set_, reinterpret_cast<char*>(out_.data()), x_, stride_); });
    std::exit(0);
  };
  EXPECT_DEATH(race(), "data race.*\n(.*\n)*.*" + file());
}

std::string name_of_case(const ::testing::TestParamInfo<SanitizerDeathTest::ParamType>& info) {
  return std::string(cpu::name_of(std::get<0>(info.param))) +
         (std::get<1>(info.param) == 1 ? "_dense" : "_strided");
}

INSTANTIATE_TEST_SUITE_P(Kernels, SanitizerDeathTest,
                         ::testing::Combine(::testing::ValuesIn(cpu::available_instruction_sets()),
                                            ::testing::Values(1, 2)),
                         name_of_case);

TEST(LeakDeathTest, LostMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (!built_with("address")) GTEST_SKIP() << "not built with AddressSanitizer";
  const auto leak = [] {
    // Leaks several blocks, because the last address may still be in a register.
    static char* last = nullptr;
    for (int i = 0; i < 16; ++i) last = new char[64];
    std::exit(last == nullptr ? 1 : 0);
  };
  EXPECT_DEATH(leak(), "LeakSanitizer: detected memory leaks");
}

}  // namespace
}  // namespace fastact::testing

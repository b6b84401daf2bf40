// Long calls of 16-bit forms look their results or their derivatives up (ops/cpu/result_table.h),
// short calls compute them. Both give the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "cpp_tests/ops/support.h"
#include "cpp_tests/threads.h"

namespace fastact::testing {
namespace {

constexpr int64_t kElements = 1 << 16;

// Returns every element, in an order that depends on the factor, an odd number.
std::vector<char> every_element(unsigned factor) {
  std::vector<uint16_t> bits(kElements);
  for (unsigned i = 0; i < kElements; ++i) bits[i] = static_cast<uint16_t>(factor * i);
  const auto* const first = reinterpret_cast<const char*>(bits.data());
  return {first, first + 2 * kElements};
}

// Returns the results for every x, computed in parts of this size. The output is the memory of an
// input: x, or the gradient, if there is one.
std::vector<char> results(const KernelCase& kernel, cpu::InstructionSet set, int64_t part,
                          bool replaces_gradient = false) {
  const bool has_gradient = kernel.id.order == 1;
  std::vector<char> gradients = every_element(40503);
  std::vector<char> elements = every_element(1);
  for (int64_t start = 0; start < kElements; start += part) {
    char* const g = gradients.data() + 2 * start;
    char* const x = elements.data() + 2 * start;
    std::vector<char*> operands = {replaces_gradient ? g : x, x};
    if (has_gradient) operands.insert(operands.begin() + 1, g);
    run_dense(kernel, set, operands, std::min(part, kElements - start));
  }
  return replaces_gradient ? gradients : elements;
}

std::vector<KernelCase> looked_up_kernels() {
  return kernels_where([](const DerivativeId& id) {
    return id.order <= 1 && !id.from_result && format_of(id.dtype).bytes == 2;
  });
}

class ResultTableTest : public ::testing::TestWithParam<KernelCase> {};

TEST_P(ResultTableTest, LongCallsGiveTheBitsOfShortCalls) {
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    const std::vector<char> expected = results(GetParam(), set, 1024);
    EXPECT_EQ(results(GetParam(), set, kElements), expected) << cpu::name_of(set);
    EXPECT_EQ(results(GetParam(), set, kElements - 1), expected) << cpu::name_of(set);
    if (GetParam().id.order == 1) {
      EXPECT_EQ(results(GetParam(), set, kElements, true), expected) << cpu::name_of(set);
    }
  }
}

// More sets of parameters than a form has tables, in the order a, b, ..., a, b, ...
TEST_P(ResultTableTest, EachSetOfParametersHasItsOwnResults) {
  KernelCase kernel = GetParam();
  if (kernel.info().parameters.empty()) GTEST_SKIP() << "no parameters";
  for (int round = 0; round < 2; ++round) {
    Random random = seeded(1);
    for (int i = 0; i < 6; ++i) {
      for (double& value : kernel.parameters.values)
        value = std::exp2(std::uniform_real_distribution<double>(-2, 2)(random));
      for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
        EXPECT_EQ(results(kernel, set, kElements), results(kernel, set, 1024))
            << described(kernel) << ' ' << cpu::name_of(set);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, ResultTableTest, ::testing::ValuesIn(looked_up_kernels()),
                         KernelCaseName());

// A table is made at first use, so this test starts a new process.
TEST(ResultTableDeathTest, FirstUseOnSeveralThreads) {
  GTEST_FLAG_SET(death_test_style, kNewProcess);
  const auto first_use = [] {
    const cpu::InstructionSet set = cpu::available_instruction_sets().back();
    int different = 0;
    for (const KernelCase& kernel : looked_up_kernels()) {
      std::array<std::vector<char>, 4> found;
      on_threads(static_cast<int>(found.size()),
                 [&](int thread) { found[thread] = results(kernel, set, kElements); });
      for (const std::vector<char>& result : found)
        different += result != results(kernel, set, 512);
    }
    std::exit(different == 0 ? 0 : 1);
  };
  EXPECT_EXIT(first_use(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace fastact::testing

// Several threads use the engine at once: first calls, shared inputs, parts of one output. Written
// for ThreadSanitizer, which cannot see accesses by torch's own threads.
#include "cpp_tests/threads.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <vector>

#include "cpp_tests/ops/support.h"

namespace fastact::testing {
namespace {

constexpr int kThreads = 4;

// Returns the bits of every kernel's result at 0.5 with gradients of 1. The kernels are looked up
// as in a first call.
std::vector<uint64_t> results_of_selected_kernels() {
  std::vector<uint64_t> results;
  for (const KernelCase& kernel : all_kernels()) {
    const Format& format = kernel.format();
    std::vector<uint64_t> inputs(kernel.operands() - 1, format.one());
    inputs.back() = encode_nearest(format, 0.5);
    results.push_back(run_one(kernel, cpu::selected_instruction_set(), inputs));
  }
  return results;
}

// First calls initialise objects once per process, so this test starts a new one.
TEST(EngineFirstUseDeathTest, OnSeveralThreadsAtOnce) {
  GTEST_FLAG_SET(death_test_style, kNewProcess);
  const auto first_use = [] {
    std::array<std::vector<uint64_t>, kThreads> results;
    on_threads(kThreads, [&](int thread) { results[thread] = results_of_selected_kernels(); });
    const std::vector<uint64_t> expected = results_of_selected_kernels();
    std::exit(std::ranges::all_of(results, [&](const auto& r) { return r == expected; }) ? 0 : 1);
  };
  EXPECT_EXIT(first_use(), ::testing::ExitedWithCode(0), "");
}

class EngineThreadsTest : public ::testing::TestWithParam<KernelCase> {};

TEST_P(EngineThreadsTest, SharedInputsAndPiecesOfOneOutput) {
  const KernelCase& kernel = GetParam();
  const int64_t bytes = kernel.format().bytes;
  constexpr int64_t kCount = 1031;
  // These positions are not aligned to vectors or cache lines.
  constexpr std::array<int64_t, kThreads + 1> kCuts = {0, 257, 515, 774, kCount};

  std::vector<std::vector<char>> memory(kernel.operands());
  std::vector<char*> operands(kernel.operands());
  for (int i = 0; i < kernel.operands(); ++i) {
    memory[i] = pack(kernel.format(), mixed_values(kernel.format(), kCount, i));
    operands[i] = memory[i].data();
  }
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    std::vector<char> pieces(kCount * bytes);
    std::array<std::vector<char>, kThreads> whole;
    on_threads(kThreads, [&](int thread) {
      whole[thread].resize(kCount * bytes);
      std::vector<char*> own = operands;
      own[0] = whole[thread].data();
      run_dense(kernel, set, own, kCount);
      own = operands;
      own[0] = pieces.data();
      for (char*& operand : own) operand += kCuts[thread] * bytes;
      run_dense(kernel, set, own, kCuts[thread + 1] - kCuts[thread]);
    });
    run_dense(kernel, set, operands, kCount);
    EXPECT_EQ(pieces, memory[0]) << cpu::name_of(set);
    for (const std::vector<char>& result : whole) EXPECT_EQ(result, memory[0]) << cpu::name_of(set);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, EngineThreadsTest, ::testing::ValuesIn(all_kernels()),
                         KernelCaseName());

}  // namespace
}  // namespace fastact::testing

// Blocks with ordinary elements and elements in the tail. The kernel looks up a table's first
// segments differently from the other ones (ops/cpu/packed.h), and must not overwrite inputs that
// it still reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "cpp_tests/ops/support.h"

namespace fastact::testing {
namespace {

constexpr int kBlock = 64;
// Three whole blocks and a part of one.
constexpr int kElements = 3 * kBlock + 29;

// Returns standard normal elements, but `far` elements of each block are in the tail, infinite or
// NaN.
std::vector<uint64_t> elements_with(Random& random, const Format& format, int far) {
  std::normal_distribution<float> normal;
  std::vector<uint64_t> elements(kElements);
  for (int start = 0; start < kElements; start += kBlock) {
    const int count = std::min(kBlock, kElements - start);
    std::vector<float> block(count);
    for (int i = 0; i < count; ++i) {
      block[i] = normal(random);
      if (i < far) block[i] *= i % 3 == 0 ? 1e30f : 40.0f;
    }
    std::ranges::shuffle(block, random);
    for (int i = 0; i < count; ++i) elements[start + i] = std::bit_cast<uint32_t>(block[i]);
    if (far > 0) elements[start] = format.canonical_nan();
    if (far > 1) elements[start + count - 1] = format.infinity();
  }
  return elements;
}

class SegmentsTest : public ::testing::TestWithParam<KernelCase> {};

TEST_P(SegmentsTest, ABlockHasTheBitsOfItsElements) {
  const KernelCase& kernel = GetParam();
  const Format& format = kernel.format();
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    Random random = seeded(1);
    for (int far = 0; far <= kBlock; ++far) {
      std::vector<std::vector<uint64_t>> inputs;
      for (int i = 1; i < kernel.operands(); ++i)
        inputs.push_back(elements_with(random, format, i + 1 == kernel.operands() ? far : 0));
      std::vector<uint64_t> expected(kElements);
      for (int i = 0; i < kElements; ++i) {
        std::vector<uint64_t> one(inputs.size());
        std::ranges::transform(inputs, one.begin(), [i](const auto& input) { return input[i]; });
        expected[i] = run_one(kernel, set, one);
      }
      // Out of place, then in place of each input.
      for (int replaced = 0; replaced < kernel.operands(); ++replaced) {
        std::vector<std::vector<char>> memory = {pack(format, expected)};
        for (const std::vector<uint64_t>& input : inputs) memory.push_back(pack(format, input));
        std::vector<char*> operands(memory.size());
        std::ranges::transform(memory, operands.begin(),
                               [](auto& operand) { return operand.data(); });
        std::ranges::fill(memory[0], '\0');
        operands[0] = memory[replaced].data();
        run_dense(kernel, set, operands, kElements);
        EXPECT_EQ(memory[replaced], pack(format, expected))
            << cpu::name_of(set) << ", " << far << " far, replaces operand " << replaced;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, SegmentsTest,
                         ::testing::ValuesIn(kernels_where([](const DerivativeId& id) {
                           return id.order <= 1 && id.dtype == DType::kFloat32;
                         })),
                         KernelCaseName());

}  // namespace
}  // namespace fastact::testing

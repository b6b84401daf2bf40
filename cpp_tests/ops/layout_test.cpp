// The layout of the elements must not change a bit. Every kernel on every instruction set, at every
// length, alignment and stride, in place, and between inaccessible pages, is compared with calls of
// the baseline kernel for single elements.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "cpp_tests/ops/support.h"

namespace fastact::testing {
namespace {

constexpr char kUntouched = '\x5a';

class LayoutTest : public ::testing::TestWithParam<KernelCase> {
 protected:
  const KernelCase& kernel_ = GetParam();
  const Format& format_ = kernel_.format();
  const int inputs_ = kernel_.id.order + 1;

  // Returns the gradients, then x.
  [[nodiscard]] std::vector<std::vector<uint64_t>> draw_inputs(size_t count, uint64_t seed) const {
    std::vector<std::vector<uint64_t>> values(inputs_);
    for (int i = 0; i < inputs_; ++i) values[i] = mixed_values(format_, count, seed + i);
    return values;
  }

  [[nodiscard]] uint64_t expected(std::span<const std::vector<uint64_t>> values, size_t i) const {
    uint64_t elements[kMaxOperands] = {};
    for (int k = 0; k < inputs_; ++k) elements[k] = values[k][i];
    return run_one(kernel_, cpu::InstructionSet::kBaseline, std::span(elements, inputs_));
  }

  [[nodiscard]] std::vector<char> expected_memory(
      std::span<const std::vector<uint64_t>> values) const {
    std::vector<uint64_t> results(values[0].size());
    for (size_t i = 0; i < results.size(); ++i) results[i] = expected(values, i);
    return pack(format_, results);
  }

  [[nodiscard]] std::vector<std::vector<char>> pack_all(
      std::span<const std::vector<uint64_t>> values) const {
    std::vector<std::vector<char>> memory(values.size());
    for (size_t i = 0; i < values.size(); ++i) memory[i] = pack(format_, values[i]);
    return memory;
  }
};

// ---- Contiguous

constexpr int64_t kLengths = 4200;

// Returns every length up to two blocks, and a sample of longer ones. The sample is denser for
// instruction sets whose loops are unrolled by hand. An emulated processor tries every length only
// up to four of the longest vectors.
std::vector<int64_t> lengths_for([[maybe_unused]] cpu::InstructionSet set) {
  std::vector<int64_t> lengths;
#if defined(FASTACT_EMULATED)
  constexpr int64_t kEvery = 130;
  const int64_t step = 211;
#else
  constexpr int64_t kEvery = 1100;
  const int64_t step = set != cpu::InstructionSet::kBaseline && !kSlowBuild ? 7 : 31;
#endif
  for (int64_t n = 0; n <= kLengths; n += n < kEvery ? 1 : step) lengths.push_back(n);
  return lengths;
}

TEST_P(LayoutTest, EveryLengthWithinItsPages) {
  const auto values = draw_inputs(kLengths, 10);
  const std::vector<char> expected = expected_memory(values);
  const std::vector<std::vector<char>> packed = pack_all(values);

  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    SCOPED_TRACE(cpu::name_of(set));
    // With even lengths, operands end at an inaccessible page. With odd lengths, they begin a few
    // elements after one; the number differs for each operand.
    const size_t room = (kLengths + 64) * format_.bytes;
    std::vector<std::unique_ptr<GuardedMemory>> memory;
    for (int i = 0; i <= inputs_; ++i) memory.push_back(std::make_unique<GuardedMemory>(room));
    std::ranges::fill(memory[0]->pages(), kUntouched);
    for (const int64_t n : lengths_for(set)) {
      const size_t bytes = n * format_.bytes;
      char* operands[kMaxOperands];
      for (int i = 0; i <= inputs_; ++i) {
        const std::span<char> pages = memory[i]->pages();
        const int64_t shift = (n / 2 * (i + 1)) % 33 * format_.bytes;
        operands[i] = n % 2 == 0 ? pages.data() + pages.size() - bytes : pages.data() + shift;
        if (i > 0) std::copy_n(packed[i - 1].data(), bytes, operands[i]);
      }
      run_dense(kernel_, set, operands, n);
      ASSERT_TRUE(std::equal(operands[0], operands[0] + bytes, expected.data())) << n;
      // The results are overwritten. Any other change in the pages was written outside the output.
      std::fill_n(operands[0], bytes, kUntouched);
      const std::span<char> pages = memory[0]->pages();
      const char* const before = std::max(pages.data(), operands[0] - 256);
      const char* const after = std::min(pages.data() + pages.size(), operands[0] + bytes + 256);
      ASSERT_TRUE(std::all_of(before, after, [](char c) { return c == kUntouched; })) << n;
    }
    EXPECT_TRUE(std::ranges::all_of(memory[0]->pages(), [](char c) { return c == kUntouched; }));
  }
}

TEST_P(LayoutTest, InPlaceOnEachInput) {
  for (const int64_t n : {1, 7, 16, 511, 512, 513, 1031}) {
    const auto values = draw_inputs(n, 20 + n);
    const std::vector<char> expected = expected_memory(values);
    for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
      for (int target = 1; target <= inputs_; ++target) {
        std::vector<std::vector<char>> memory = pack_all(values);
        char* operands[kMaxOperands];
        for (int i = 1; i <= inputs_; ++i) operands[i] = memory[i - 1].data();
        operands[0] = operands[target];
        run_dense(kernel_, set, operands, n);
        EXPECT_EQ(memory[target - 1], expected)
            << cpu::name_of(set) << ", " << n << " elements, on operand " << target;
        for (int i = 1; i <= inputs_; ++i) {
          if (i == target) continue;
          EXPECT_EQ(memory[i - 1], pack(format_, values[i - 1])) << "an input has changed";
        }
      }
    }
  }
}

// ---- Large

// The first activation's value and derivative, in every type. The outputs are large enough for
// non-temporal stores and begin and end inside a cache line. In-place calls of the same size use
// ordinary stores.
TEST(StreamedTest, SameBitsAsInParts) {
  constexpr size_t kPart = 4099;
  for (const KernelCase& kernel : all_kernels()) {
    if (kernel.activation != 0 || kernel.id.from_result || kernel.id.order > 1) continue;
    const Format& format = kernel.format();
    const size_t count = cpu::kStreamedBytes / format.bytes + 77;
    const int inputs = kernel.id.order + 1;
    std::vector<std::vector<char>> memory(inputs + 1);
    for (int i = 0; i <= inputs; ++i) {
      const std::vector<char> part = pack(format, mixed_values(format, kPart, 60 + i));
      while (memory[i].size() < (count + 3) * format.bytes)
        memory[i].insert(memory[i].end(), part.begin(), part.end());
    }
    char* operands[kMaxOperands];
    for (size_t i = 0; i < memory.size(); ++i) operands[i] = memory[i].data() + i * format.bytes;
    for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
      SCOPED_TRACE(kernel.name() + " on " + std::string(cpu::name_of(set)));
      std::vector<char> expected(count * format.bytes);
      for (size_t start = 0; start < count; start += kPart) {
        char* parts[kMaxOperands] = {expected.data() + start * format.bytes};
        for (int i = 1; i <= inputs; ++i) parts[i] = operands[i] + start * format.bytes;
        run_dense(kernel, set, parts, static_cast<int64_t>(std::min(kPart, count - start)));
      }
      for (const size_t shift : {0, 1, 5}) {
        memory[0].assign((count + 8) * format.bytes, kUntouched);
        operands[0] = memory[0].data() + shift * format.bytes;
        run_dense(kernel, set, operands, static_cast<int64_t>(count));
        char* const end = operands[0] + expected.size();
        ASSERT_TRUE(std::equal(operands[0], end, expected.data()));
        const auto untouched = [](char c) { return c == kUntouched; };
        ASSERT_TRUE(std::all_of(memory[0].data(), operands[0], untouched));
        ASSERT_TRUE(std::all_of(end, memory[0].data() + memory[0].size(), untouched));
      }
      std::vector<char> in_place(operands[inputs], operands[inputs] + expected.size());
      char* shared[kMaxOperands];
      std::copy_n(operands, inputs, shared);
      shared[0] = shared[inputs] = in_place.data();
      run_dense(kernel, set, shared, static_cast<int64_t>(count));
      ASSERT_TRUE(in_place == expected);
    }
  }
}

// ---- Strided

// A size0 x size1 block in memory: its strides in elements, and its first element, chosen so that
// all elements are within `span`.
struct Block {
  int64_t stride0 = 0;
  int64_t stride1 = 0;
  int64_t first = 0;
  int64_t span = 1;

  [[nodiscard]] int64_t at(int64_t i0, int64_t i1) const {
    return first + i0 * stride0 + i1 * stride1;
  }
};

Block place(int64_t size0, int64_t size1, int64_t stride0, int64_t stride1) {
  Block block = {.stride0 = stride0, .stride1 = stride1};
  for (const auto& [size, stride] : {std::pair{size0, stride0}, std::pair{size1, stride1}}) {
    const int64_t reach = stride * std::max<int64_t>(size - 1, 0);
    if (reach < 0) block.first -= reach;
    block.span += std::abs(reach);
  }
  return block;
}

// Returns rows or columns, some with gaps, some backwards, without using an element twice.
Block random_output(Random& random, int64_t size0, int64_t size1) {
  const int64_t gap = random_between(random, 1, 3);
  const int64_t pad = random_between(random, 0, 5);
  int64_t stride0 = gap;
  int64_t stride1 = gap * std::max<int64_t>(size0, 1) + pad;
  if (random() % 3 == 0) {
    stride1 = gap;
    stride0 = gap * std::max<int64_t>(size1, 1) + pad;
  }
  if (random() % 4 == 0) stride0 = -stride0;
  if (random() % 4 == 0) stride1 = -stride1;
  return place(size0, size1, stride0, stride1);
}

// The same, plus broadcast and overlapping rows.
Block random_input(Random& random, int64_t size0, int64_t size1) {
  switch (random() % 6) {
    case 0:
      return place(size0, size1, 0, random_between(random, -2, 2));
    case 1:
      return place(size0, size1, random_between(random, -2, 2), 0);
    case 2:
      return place(size0, size1, 1, 1);
    default:
      return random_output(random, size0, size1);
  }
}

struct StridedCall {
  int64_t size0 = 0;
  int64_t size1 = 0;
  std::array<Block, kMaxOperands> blocks;

  friend std::ostream& operator<<(std::ostream& stream, const StridedCall& call) {
    stream << call.size0 << " x " << call.size1 << ", strides";
    for (const Block& block : call.blocks)
      stream << " (" << block.stride0 << " " << block.stride1 << ")";
    return stream;
  }
};

StridedCall random_call(Random& random, int operands) {
  StridedCall call;
  const bool long_rows = random() % 2 == 0;
  call.size0 = random_between(random, 0, long_rows ? 1300 : 40);
  call.size1 = random_between(random, random() % 8 == 0 ? 0 : 1, long_rows ? 4 : 60);
  const bool dense_rows = random() % 3 == 0;
  for (int i = 0; i < operands; ++i) {
    if (dense_rows) {
      // Rows with gaps between them use the contiguous loop for each row.
      call.blocks[i] = place(call.size0, call.size1, 1, call.size0 + random_between(random, 0, 9));
    } else {
      call.blocks[i] = i == 0 ? random_output(random, call.size0, call.size1)
                              : random_input(random, call.size0, call.size1);
    }
  }
  return call;
}

class StridedTest : public LayoutTest {
 protected:
  // Runs the call on fresh memory, with every operand ending at an inaccessible page. If `in_place`
  // is above 0, runs in place on that operand, whose block must be the output's.
  void check(const StridedCall& call, cpu::InstructionSet set, uint64_t seed, int in_place = 0) {
    SCOPED_TRACE(cpu::name_of(set));
    std::vector<std::unique_ptr<GuardedMemory>> memory;
    std::vector<std::vector<uint64_t>> contents;
    for (int i = 0; i <= inputs_; ++i) {
      const int64_t span = call.blocks[i].span;
      contents.push_back(mixed_values(format_, span, 8 * seed + i));
      memory.push_back(std::make_unique<GuardedMemory>(span * format_.bytes));
      const std::vector<char> packed = pack(format_, contents[i]);
      std::ranges::copy(packed, memory[i]->data());
    }
    const int output = in_place;
    std::vector<uint64_t> expected = contents[output];
    for (int64_t i1 = 0; i1 < call.size1; ++i1) {
      for (int64_t i0 = 0; i0 < call.size0; ++i0) {
        uint64_t elements[kMaxOperands] = {};
        for (int i = 1; i <= inputs_; ++i) {
          elements[i - 1] = contents[i][call.blocks[i].at(i0, i1)];
        }
        expected[call.blocks[output].at(i0, i1)] =
            run_one(kernel_, cpu::InstructionSet::kBaseline, std::span(elements, inputs_));
      }
    }
    char* operands[kMaxOperands];
    int64_t strides[2 * kMaxOperands] = {};
    for (int i = 0; i <= inputs_; ++i) {
      const int source = i == 0 ? output : i;
      const Block& block = call.blocks[source];
      operands[i] = memory[source]->data() + block.first * format_.bytes;
      strides[i] = block.stride0 * format_.bytes;
      strides[kernel_.operands() + i] = block.stride1 * format_.bytes;
    }
    cpu::find_kernel(kernel_.activation, kernel_.id, set)(kernel_.parameters, operands, strides,
                                                          call.size0, call.size1);
    for (int i = 0; i <= inputs_; ++i) {
      const std::vector<char> packed = pack(format_, i == output ? expected : contents[i]);
      ASSERT_TRUE(std::ranges::equal(packed, std::span(memory[i]->data(), packed.size())))
          << "operand " << i << (in_place > 0 ? " in place, " : ", ") << call;
    }
  }

  // Different layouts for each kernel, because the code that moves the elements is shared by all
  // forms.
  Random layouts(unsigned first) const {
    const DerivativeId& id = kernel_.id;
    const unsigned kind =
        8 * id.order + 4 * (id.from_result ? 1 : 0) + static_cast<unsigned>(id.dtype);
    return seeded(first + 100 * (32 * kernel_.activation + kind));
  }

  static constexpr int kCalls = kSlowBuild ? 8 : 12;
};

TEST_P(StridedTest, RandomLayouts) {
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    Random random = layouts(30);
    for (int i = 0; i < kCalls && !HasFatalFailure(); ++i) {
      check(random_call(random, kernel_.operands()), set, i);
    }
  }
}

TEST_P(StridedTest, RandomLayoutsInPlace) {
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    Random random = layouts(40);
    for (int i = 0; i < kCalls && !HasFatalFailure(); ++i) {
      StridedCall call = random_call(random, kernel_.operands());
      const auto target = static_cast<int>(random_between(random, 1, inputs_));
      call.blocks[target] = call.blocks[0];
      check(call, set, i, target);
    }
  }
}

TEST_P(StridedTest, NothingIsTouchedWithoutElements) {
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    for (const auto& [size0, size1] : {std::pair<int64_t, int64_t>{0, 1}, {0, 7}, {3, 0}, {0, 0}}) {
      for (const int64_t stride : {1, 2}) {
        StridedCall call = {.size0 = size0, .size1 = size1, .blocks = {}};
        for (int i = 0; i <= inputs_; ++i) call.blocks[i] = {stride, 5, 0, 1};
        check(call, set, 50);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, LayoutTest, ::testing::ValuesIn(all_kernels()), KernelCaseName());
INSTANTIATE_TEST_SUITE_P(Kernels, StridedTest, ::testing::ValuesIn(all_kernels()),
                         KernelCaseName());

}  // namespace
}  // namespace fastact::testing

// Random calls of the CPU engine in the form in which torch's iterator makes them: any number of
// dimensions, any strides and offsets, the range split at any element, and its pieces in any order
// or on separate threads. On every instruction set, the bits must equal those of baseline calls for
// single elements, and no other memory may change. Samples are compared with the oracle.
//
// FASTACT_FUZZ_CASES is the number of calls, FASTACT_FUZZ_SEED the seed of the first call. Call i
// has the seed FASTACT_FUZZ_SEED + i, which determines everything about it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "cpp_tests/ops/oracle.h"
#include "cpp_tests/threads.h"

namespace fastact::testing {
namespace {

constexpr int kMaxDimensions = 6;
// More than two blocks of the engine, so that a range also begins and ends inside a block.
constexpr int64_t kMaxElements = 2600;
// The first two dimensions of the engine always exist.
constexpr int kEngineDimensions = 2;

using Sizes = std::vector<int64_t>;

int64_t count_of(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// The place of an operand: its strides in elements, and the number of elements in its memory. The
// element at index 0 is element `first`.
struct Layout {
  Sizes strides;
  int64_t first = 0;
  int64_t span = 0;

  [[nodiscard]] int64_t at(const Sizes& index) const {
    return std::inner_product(index.begin(), index.end(), strides.begin(), first);
  }
};

// Returns the smallest memory for these strides, plus a few elements before and after it.
Layout place(Random& random, const Sizes& sizes, Sizes strides) {
  // Half of the operands end where their memory ends, so that an access beyond them is out of
  // bounds.
  const int64_t before = random_between(random, 0, 9);
  const int64_t after = random() % 2 == 0 ? 0 : random_between(random, 1, 9);
  Layout layout = {.strides = std::move(strides), .first = before, .span = before + after};
  if (count_of(sizes) == 0) return layout;
  layout.span += 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t reach = layout.strides[i] * (sizes[i] - 1);
    layout.first -= std::min<int64_t>(reach, 0);
    layout.span += std::abs(reach);
  }
  return layout;
}

Sizes contiguous_strides(const Sizes& sizes) {
  Sizes strides(sizes.size());
  int64_t next = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    strides[i] = next;
    next *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

// Returns permuted dimensions, some with gaps, some backwards, without using an element twice.
Sizes distinct_strides(Random& random, const Sizes& sizes) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  Sizes strides(sizes.size());
  int64_t next = random_between(random, 1, 3);
  for (const size_t i : order) {
    strides[i] = random() % 4 == 0 ? -next : next;
    next *= std::max<int64_t>(sizes[i], 1);
    if (random() % 3 == 0) next += random_between(random, 1, 5);
  }
  return strides;
}

// The same, plus expanded dimensions and overlapping windows.
Sizes input_strides(Random& random, const Sizes& sizes) {
  Sizes strides = distinct_strides(random, sizes);
  const uint64_t kind = random() % 4;
  for (int64_t& stride : strides) {
    if (kind == 0 && random() % 2 == 0) stride = 0;
    if (kind == 1) stride = random_between(random, -2, 2);
  }
  return strides;
}

// Returns up to kMaxDimensions dimensions of size 1, of small sizes and of odd sizes; rarely a size
// of 0.
Sizes random_sizes(Random& random) {
  Sizes sizes(random_between(random, 0, kMaxDimensions));
  int64_t room = kMaxElements;
  for (int64_t& size : sizes) {
    // Sometimes one dimension takes all of the room, so that rows are longer than a block.
    const int64_t largest = random() % 5 == 0 ? room : std::min<int64_t>(room, 19);
    size = random() % 4 == 0 ? 1 : random_between(random, 1, largest);
    room /= size;
  }
  std::ranges::shuffle(sizes, random);
  if (!sizes.empty() && random() % 16 == 0) sizes[random() % sizes.size()] = 0;
  return sizes;
}

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// Returns [0, count) split at up to seven places, in any order.
std::vector<Range> random_pieces(Random& random, int64_t count) {
  std::vector<int64_t> cuts = {0, count};
  for (int64_t i = random_between(random, 0, 7); i > 0; --i) {
    cuts.push_back(random_between(random, 0, count));
  }
  std::ranges::sort(cuts);
  std::vector<Range> pieces;
  for (size_t i = 1; i < cuts.size(); ++i) pieces.push_back({cuts[i - 1], cuts[i]});
  std::ranges::shuffle(pieces, random);
  return pieces;
}

struct FuzzCase {
  uint64_t seed = 0;
  KernelCase kernel;
  // True if the oracle can check the results, which requires gradients of 1.
  bool told_by_oracle = false;
  // The first dimension is the engine's fastest one.
  Sizes sizes;
  std::vector<Layout> operands;
  // The operand that is also the output; 0 for none.
  int in_place = 0;
  std::vector<Range> pieces;
  bool on_threads = false;

  [[nodiscard]] int64_t count() const { return count_of(sizes); }
  [[nodiscard]] int inputs() const { return kernel.operands() - 1; }
};

std::ostream& operator<<(std::ostream& stream, const FuzzCase& fuzz) {
  const auto list = [&](const Sizes& numbers) {
    stream << '(';
    for (size_t i = 0; i < numbers.size(); ++i) stream << (i > 0 ? " " : "") << numbers[i];
    stream << ')';
  };
  stream << fuzz.kernel.name() << ", parameters";
  for (const double value : fuzz.kernel.parameters.values) stream << ' ' << value;
  stream << (fuzz.told_by_oracle ? ", unit gradients" : "") << ", sizes ";
  list(fuzz.sizes);
  for (size_t i = 0; i < fuzz.operands.size(); ++i) {
    const Layout& layout = fuzz.operands[i];
    stream << "\n  operand " << i << ": strides ";
    list(layout.strides);
    stream << ", first " << layout.first << " of " << layout.span;
  }
  stream << "\n  in place on operand " << fuzz.in_place << ", pieces";
  for (const Range& piece : fuzz.pieces) stream << ' ' << piece.begin << ".." << piece.end;
  return stream << (fuzz.on_threads ? ", on threads" : "")
                << "\n  FASTACT_FUZZ_CASES=1 FASTACT_FUZZ_SEED=" << fuzz.seed << " repeats it";
}

// Consecutive seeds visit all kernels.
FuzzCase fuzz_case(uint64_t seed) {
  const std::vector<KernelCase> kernels = all_kernels();
  Random random = seeded(seed);
  FuzzCase fuzz;
  fuzz.seed = seed;
  fuzz.kernel = kernels[seed % kernels.size()];
  fuzz.told_by_oracle = random() % 4 == 0 && !with_oracle({fuzz.kernel}).empty();
  // One call in four uses the defaults, for which some formulas have separate kernels.
  if (random() % 4 != 0) fuzz.kernel.parameters = draw_parameters(random);
  fuzz.sizes = random_sizes(random);
  const bool all_contiguous = random() % 4 == 0;
  for (int i = 0; i <= fuzz.inputs(); ++i) {
    const Sizes strides = all_contiguous || random() % 4 == 0 ? contiguous_strides(fuzz.sizes)
                          : i == 0                            ? distinct_strides(random, fuzz.sizes)
                                                              : input_strides(random, fuzz.sizes);
    fuzz.operands.push_back(place(random, fuzz.sizes, strides));
  }
  if (random() % 3 == 0) {
    fuzz.in_place = static_cast<int>(random_between(random, 1, fuzz.inputs()));
    fuzz.operands[fuzz.in_place] = fuzz.operands[0];
  }
  fuzz.pieces = random_pieces(random, fuzz.count());
  fuzz.on_threads = random() % 2 == 0;
  return fuzz;
}

// Returns the index of the element at this position in order.
Sizes index_at(const Sizes& sizes, int64_t position) {
  Sizes index(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    index[i] = position % sizes[i];
    position /= sizes[i];
  }
  return index;
}

using Memory = std::vector<std::vector<char>>;

// Makes the calls for one piece: the rest of a row, then as many consecutive whole rows as
// possible.
void run_piece(const FuzzCase& fuzz, cpu::InstructionSet set, Memory& memory, Range piece) {
  const int64_t bytes = fuzz.kernel.format().bytes;
  const int operands = fuzz.kernel.operands();
  const cpu::Kernel kernel = cpu::find_kernel(fuzz.kernel.activation, fuzz.kernel.id, set);
  Sizes sizes = fuzz.sizes;
  sizes.resize(std::max<size_t>(sizes.size(), kEngineDimensions), 1);
  int64_t strides[kEngineDimensions * kMaxOperands] = {};
  for (int i = 0; i < operands; ++i) {
    Sizes of_operand = fuzz.operands[i].strides;
    of_operand.resize(sizes.size(), 0);
    for (int k = 0; k < kEngineDimensions; ++k) strides[k * operands + i] = of_operand[k] * bytes;
  }
  while (piece.begin < piece.end) {
    const Sizes index = index_at(fuzz.sizes, piece.begin);
    const int64_t column = piece.begin % sizes[0];
    const int64_t row = piece.begin / sizes[0] % sizes[1];
    const int64_t left = piece.end - piece.begin;
    const int64_t size0 = std::min(sizes[0] - column, left);
    const int64_t size1 = size0 == sizes[0] ? std::min(sizes[1] - row, left / sizes[0]) : 1;
    char* data[kMaxOperands];
    for (int i = 0; i < operands; ++i) {
      const int source = i == 0 ? fuzz.in_place : i;
      data[i] = memory[source].data() + fuzz.operands[source].at(index) * bytes;
    }
    kernel(fuzz.kernel.parameters, data, strides, size0, size1);
    piece.begin += size0 * size1;
  }
}

void run(const FuzzCase& fuzz, cpu::InstructionSet set, Memory& memory) {
  if (fuzz.on_threads) {
    on_threads(static_cast<int>(fuzz.pieces.size()),
               [&](int i) { run_piece(fuzz, set, memory, fuzz.pieces[i]); });
  } else {
    for (const Range& piece : fuzz.pieces) run_piece(fuzz, set, memory, piece);
  }
}

void check(const FuzzCase& fuzz) {
  const KernelCase& kernel = fuzz.kernel;
  const Format& format = kernel.format();
  std::vector<std::vector<uint64_t>> contents;
  for (int i = 0; i <= fuzz.inputs(); ++i) {
    const int64_t span = fuzz.operands[i].span;
    const bool ones = fuzz.told_by_oracle && i > 0 && i < fuzz.inputs();
    contents.push_back(ones ? std::vector<uint64_t>(span, format.one())
                            : mixed_values(format, span, 8 * fuzz.seed + i));
  }
  // The expected memory of the output: results, between elements that keep their contents.
  std::vector<uint64_t> expected = contents[fuzz.in_place];
  for (int64_t position = 0; position < fuzz.count(); ++position) {
    const Sizes index = index_at(fuzz.sizes, position);
    uint64_t elements[kMaxOperands] = {};
    for (int i = 1; i <= fuzz.inputs(); ++i) {
      elements[i - 1] = contents[i][fuzz.operands[i].at(index)];
    }
    const uint64_t result =
        run_one(kernel, cpu::InstructionSet::kBaseline, std::span(elements, fuzz.inputs()));
    // One element in sixteen, because the oracle is slow if it needs 113 bits.
    if (fuzz.told_by_oracle && position % 16 == 0) {
      const uint64_t x = elements[fuzz.inputs() - 1];
      ASSERT_EQ(broken_promise(kernel, x, result), "")
          << "at " << hex(format, x) << ", but got " << hex(format, result) << "\n  " << fuzz;
    }
    expected[fuzz.operands[0].at(index)] = result;
  }
  Memory before;
  for (const auto& elements : contents) before.push_back(pack(format, elements));
  Memory after = before;
  after[fuzz.in_place] = pack(format, expected);

  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    Memory memory = before;
    run(fuzz, set, memory);
    for (int i = 0; i <= fuzz.inputs(); ++i) {
      const auto difference = std::ranges::mismatch(memory[i], after[i]).in1 - memory[i].begin();
      ASSERT_EQ(difference, static_cast<int64_t>(memory[i].size()))
          << "on " << cpu::name_of(set) << " operand " << i << " differs first in element "
          << difference / format.bytes << " of its memory\n  " << fuzz;
    }
  }
}

TEST(FuzzTest, RandomCalls) {
  const uint64_t few = 8 * all_kernels().size();
  const uint64_t cases = from_environment("FASTACT_FUZZ_CASES", few);
  const uint64_t seed = from_environment("FASTACT_FUZZ_SEED", 0);
  for (uint64_t i = 0; i < cases && !HasFatalFailure(); ++i) check(fuzz_case(seed + i));
}

}  // namespace
}  // namespace fastact::testing

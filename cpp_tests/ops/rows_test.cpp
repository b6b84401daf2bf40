// The row engine: every instruction set adds in the order of ops/math/row_order.h, and any layout
// of the rows gives the bits of contiguous ones.
#include "ops/cpu/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpp_tests/threads.h"
#include "ops/catalogue.h"
#include "ops/forms/cross_entropy.h"
#include "ops/forms/layer_norm.h"
#include "ops/forms/logsumexp.h"
#include "ops/forms/reductions.h"
#include "ops/forms/rms_norm.h"
#include "ops/forms/softmax.h"
#if FASTACT_HAS_CUDA
#include "ops/cuda/rows.h"
#endif

namespace fastact::testing {
namespace {

constexpr int kLengths[] = {1,    2,    3,    7,    8,    9,    15,   16,   17,  31,  33,
                            64,   100,  127,  128,  129,  255,  256,  257,  511, 513, 700,
                            1023, 1024, 1025, 1281, 2048, 2049, 3072, 5000, 9217};

// eps of the norms. Softmax has no parameters.
constexpr Parameters kParameters = {.values = {1e-5}};

// The tree over all sums, with +0 for missing ones.
template <class Sum>
Sum tree(std::vector<Sum> sums) {
  sums.resize(std::bit_ceil(sums.size()), Sum(0));
  for (size_t count = sums.size() / 2; count >= 1; count /= 2)
    for (size_t i = 0; i < count; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  return sums[0];
}
template <class Sum, class T>
Sum tree_of_numbers(const std::vector<T>& numbers) {
  std::vector<Sum> sums;
  sums.reserve(numbers.size());
  for (const T number : numbers) sums.emplace_back(number);
  return tree(sums);
}

// The type of the row outputs, which all have one.
template <class F>
auto row_output_of() {
  if constexpr (kRowOutputs<F> > 0) {
    return FirstOf<RowOutputsOf<F>>();
  } else {
    return typename F::T();
  }
}
template <class F>
using RowOutputOf = decltype(row_output_of<F>());

// Computes a row as row_form.h and row_order.h describe it, one element after the other.
template <class F, class Element>
class Reference {
  using T = OpMath<Element>;
  using Sum = typename F::Sum;
  static constexpr int kInputs = F::Inputs::kCount;

 public:
  Reference(const std::vector<std::vector<Element>>& inputs, std::vector<T> row_inputs)
      : form_(kParameters.values, static_cast<int64_t>(inputs[0].size())) {
    start_row(form_, [&](size_t k) { return reinterpret_cast<char*>(&row_inputs[k]); });
    for (const auto& input : inputs) {
      values_.emplace_back();
      for (const Element element : input) values_.back().push_back(widen(element));
    }
  }

  // Returns the row, which is empty if the form has no output.
  std::vector<Element> run() {
    reduce<0>();
    std::vector<Element> results;
    if constexpr (kHasElements<F>) {
      for (size_t i = 0; i < values_[0].size(); ++i) {
        results.push_back(round_to<Element>(
            OtherInputs<F>::evaluate(form_, values_[0][i], [&](int k) { return values_[k][i]; })));
      }
    }
    return results;
  }

  // After run().
  std::vector<RowOutputOf<F>> row_results() const {
    std::vector<RowOutputOf<F>> results(kRowOutputs<F>);
    store_row_results(form_, [&](size_t k) { return reinterpret_cast<char*>(&results[k]); });
    return results;
  }

 private:
  template <int R>
  void reduce() {
    if constexpr (R < kNumReductions<F>) {
      T maximum = kMinusInfinity<T>;
      Sum totals[kMaxSums];
      if constexpr (F::kReductions[R] == Reduction::kMaximum) {
        for (const T x : values_[0]) maximum = larger(x, maximum);
        totals[0] = Sum(maximum);
      } else {
        std::vector<Sum> tiles[kMaxSums];
        for (size_t start = 0; start < values_[0].size(); start += kRowTile) {
          std::vector<T> lanes[kMaxSums];
          for (auto& each : lanes) each.resize(kRowLanes);
          for (size_t i = 0; i < kRowTile && start + i < values_[0].size(); ++i)
            add<R>(start + i, i % kRowLanes, lanes);
          for (int s = 0; s < kSumsOf<F, R>; ++s)
            tiles[s].push_back(tree_of_numbers<Sum>(lanes[s]));
        }
        for (int s = 0; s < kSumsOf<F, R>; ++s) totals[s] = tree(tiles[s]);
      }
      form_.template finish<R>(totals);
      reduce<R + 1>();
    }
  }

  template <int R>
  void add(size_t i, size_t lane, std::vector<T> (&lanes)[kMaxSums]) {
    T sums[kMaxSums];
    for (int s = 0; s < kMaxSums; ++s) sums[s] = lanes[s][lane];
    const T first = OtherInputs<F>::template accumulate<R>(form_, sums, values_[0][i],
                                                           [&](int k) { return values_[k][i]; });
    if constexpr (F::kReplacedBy == R) values_[0][i] = first;
    for (int s = 0; s < kMaxSums; ++s) lanes[s][lane] = sums[s];
  }

  F form_;
  std::vector<std::vector<T>> values_;
};

// Returns a row of normal numbers. Some kinds have elements of -infinity, NaN or equal elements.
template <class Element>
std::vector<Element> row_of(int n, unsigned seed) {
  std::mt19937 generator(seed * 7919 + static_cast<unsigned>(n));
  std::normal_distribution<double> normal(0.0, seed % 2 == 0 ? 1.0 : 30.0);
  std::vector<Element> row;
  for (int i = 0; i < n; ++i) {
    double x = seed == 4 ? 1.5 : normal(generator);
    if (seed == 2 && i % 3 == 0) x = -std::numeric_limits<double>::infinity();
    if (seed == 3 && i == n / 2) x = std::numeric_limits<double>::quiet_NaN();
    if constexpr (sizeof(Element) == 2) {
      row.push_back(round_to<Element>(static_cast<float>(x)));
    } else {
      row.push_back(static_cast<Element>(x));
    }
  }
  return row;
}

template <class Element>
constexpr DType kTypeOf = std::is_same_v<Element, float>      ? DType::kFloat32
                          : std::is_same_v<Element, double>   ? DType::kFloat64
                          : std::is_same_v<Element, BFloat16> ? DType::kBFloat16
                                                              : DType::kFloat16;

template <class Element>
std::string bytes_of(const std::vector<Element>& row) {
  return {reinterpret_cast<const char*>(row.data()), row.size() * sizeof(Element)};
}

template <class Forms>
cpu::RowKernel kernel_of(const KernelId& id, cpu::InstructionSet set) {
  const char* const name = std::is_same_v<Forms, RmsNormForms>        ? "rms_norm"
                           : std::is_same_v<Forms, LayerNormForms>    ? "layer_norm"
                           : std::is_same_v<Forms, LogsumexpForms>    ? "logsumexp"
                           : std::is_same_v<Forms, CrossEntropyForms> ? "cross_entropy"
                           : std::is_same_v<Forms, ReductionsForms>   ? "reductions"
                                                                      : "softmax";
  return cpu::find_row_kernel(row_family_index(name), id, set);
}

// Calls test(index) for each form of each family.
template <class Test>
void for_each_form(const Test& test) {
  const auto run = [&]<class Forms>(std::type_identity<Forms>) {
    [&]<int... Index>(std::integer_sequence<int, Index...>) {
      (test.template operator()<Forms, Index>(), ...);
    }(std::make_integer_sequence<int, Forms::kCount>());
  };
#define FASTACT_RUN(name, Forms) run(std::type_identity<Forms>());
  FASTACT_ROW_FORMS(FASTACT_RUN)
#undef FASTACT_RUN
}

// The row outputs and row inputs of several rows, with gaps between them.
template <class F>
class Numbers {
  using T = typename F::T;

 public:
  // Every second number of each row is a gap.
  explicit Numbers(int rows)
      : inputs_(static_cast<size_t>(rows) * 2 * kRowInputs<F>),
        outputs_(static_cast<size_t>(rows) * 2 * kRowOutputs<F>) {
    for (int row = 0; row < rows; ++row)
      for (int k = 0; k < kRowInputs<F>; ++k)
        input(row, k) = static_cast<T>(k == 0 ? -0.5 : 0.75) + static_cast<T>(row);
  }

  // Sets the operands of a kernel. The row outputs are null if `stores` is false.
  void set(char** data, int64_t* strides, bool stores = true) {
    for (int k = 0; k < kRowOutputs<F>; ++k) {
      data[kOperandsOf<F> + k] = stores ? reinterpret_cast<char*>(&output(0, k)) : nullptr;
      strides[kOperandsOf<F> + k] = 2 * kRowOutputs<F> * sizeof(RowOutputOf<F>);
    }
    for (int k = kRowOutputs<F>; k < kRowNumbers<F>; ++k) {
      data[kOperandsOf<F> + k] = reinterpret_cast<char*>(&input(0, k - kRowOutputs<F>));
      strides[kOperandsOf<F> + k] = 2 * kRowInputs<F> * sizeof(T);
    }
  }

  std::vector<T> inputs(int row) {
    std::vector<T> numbers;
    for (int k = 0; k < kRowInputs<F>; ++k) numbers.push_back(input(row, k));
    return numbers;
  }
  std::vector<RowOutputOf<F>> outputs(int row) {
    std::vector<RowOutputOf<F>> numbers;
    for (int k = 0; k < kRowOutputs<F>; ++k) numbers.push_back(output(row, k));
    return numbers;
  }

 private:
  T& input(int row, int k) { return inputs_[static_cast<size_t>(2 * kRowInputs<F> * row + k)]; }
  RowOutputOf<F>& output(int row, int k) {
    return outputs_[static_cast<size_t>(2 * kRowOutputs<F> * row + k)];
  }

  std::vector<T> inputs_;
  std::vector<RowOutputOf<F>> outputs_;
};

// Computes rows with gaps between them, and with the output in memory of its own or of an input. If
// is_shared is true, all rows have the same row of each input after the first one.
template <class Forms, class Element, int Index>
void expect_order(cpu::InstructionSet set, int n, int rows, unsigned seed, bool is_shared = false) {
  using F = typename Forms::template Form<Element, Index>;
  constexpr int kInputs = F::Inputs::kCount;
  const cpu::RowKernel kernel = kernel_of<Forms>({Index, kTypeOf<Element>}, set);
  ASSERT_NE(kernel, nullptr);
  const auto stride = static_cast<size_t>(n) + 3;
  std::vector<std::vector<Element>> inputs;
  for (unsigned i = 0; i < kInputs; ++i)
    inputs.push_back(row_of<Element>(static_cast<int>(stride) * rows, seed + 10 * i));
  constexpr int kOutputs = F::Outputs::kCount;
  for (int output = 0; output <= (kOutputs == 0 ? 0 : is_shared ? 1 : kInputs); ++output) {
    std::vector<std::vector<Element>> operands = inputs;
    operands.insert(operands.begin(), kOutputs,
                    std::vector<Element>(stride * static_cast<size_t>(rows)));
    char* data[kMaxRowOperands] = {};
    int64_t strides[kMaxRowOperands] = {};
    Numbers<F> numbers(rows);
    numbers.set(data, strides, /*stores=*/output == 0);
    for (size_t i = 0; i < operands.size(); ++i) {
      data[i] = reinterpret_cast<char*>(operands[i].data());
      strides[i] = static_cast<int64_t>(stride * sizeof(Element));
    }
    if (kOutputs > 0) data[0] = data[output];
    if (is_shared) std::fill(strides + kOutputs + 1, strides + kOutputs + kInputs, 0);
    kernel(kParameters, data, strides, n, rows, /*repeat=*/1, nullptr);
    for (int row = 0; row < rows; ++row) {
      const auto row_in = [&](const std::vector<Element>& all, bool is_first = false) {
        const auto first = all.begin() + (is_first ? 0 : static_cast<int64_t>(stride) * row);
        return std::vector<Element>(first, first + n);
      };
      std::vector<std::vector<Element>> own;
      for (const auto& input : inputs) own.push_back(row_in(input, is_shared && !own.empty()));
      Reference<F, Element> reference(own, numbers.inputs(row));
      const std::vector<Element> expected = reference.run();
      if (kOutputs > 0) {
        ASSERT_EQ(bytes_of(row_in(operands[static_cast<size_t>(output)])), bytes_of(expected))
            << cpu::name_of(set) << ", form " << Index << ", n " << n << ", row " << row << " of "
            << rows << ", seed " << seed << ", output " << output;
      }
      if (output > 0) continue;
      ASSERT_EQ(bytes_of(numbers.outputs(row)), bytes_of(reference.row_results()))
          << cpu::name_of(set) << ", form " << Index << ", n " << n << ", row " << row;
    }
  }
}

template <class Forms, class Element, int Index>
void expect_order(cpu::InstructionSet set) {
  for (const int n : kLengths) {
    for (unsigned seed = 0; seed < 5; ++seed) expect_order<Forms, Element, Index>(set, n, 1, seed);
    if (n > 300) continue;
    // Two panels, and groups of rows that are not always full.
    const int rows = 32 + n % 5;
    for (const bool is_shared : {false, true})
      expect_order<Forms, Element, Index>(set, n, rows, 5, is_shared);
  }
}

template <class Element>
void expect_order_of_all() {
  for (const cpu::InstructionSet set : cpu::available_instruction_sets())
    for_each_form([&]<class Forms, int Index>() { expect_order<Forms, Element, Index>(set); });
}

TEST(RowsTest, Float32HasTheOrderOnEveryInstructionSet) { expect_order_of_all<float>(); }
TEST(RowsTest, Float64HasTheOrderOnEveryInstructionSet) { expect_order_of_all<double>(); }
TEST(RowsTest, BFloat16HasTheOrderOnEveryInstructionSet) { expect_order_of_all<BFloat16>(); }
TEST(RowsTest, Float16HasTheOrderOnEveryInstructionSet) { expect_order_of_all<Float16>(); }

// Four threads share a row.
void on_four_threads(int64_t count, void (*task)(void*, int64_t), void* state) {
  on_threads(4, [&](int thread) {
    for (int64_t i = thread; i < count; i += 4) task(state, i);
  });
}

template <class Forms, class Element, int Index>
void expect_same_if_shared(cpu::InstructionSet set) {
  using F = typename Forms::template Form<Element, Index>;
  const cpu::RowKernel kernel = kernel_of<Forms>({Index, kTypeOf<Element>}, set);
  for (const int64_t n : {cpu::kRowPart + 1, 3 * cpu::kRowPart, 5 * cpu::kRowPart + 1023}) {
    const auto size = static_cast<size_t>(n);
    std::vector<Element> inputs[3];
    for (unsigned i = 0; i < 3; ++i) inputs[i] = row_of<Element>(static_cast<int>(n), 1 + i % 2);
    std::vector<Element> expected(size);
    int64_t strides[kMaxRowOperands] = {};
    constexpr size_t kOutputs = F::Outputs::kCount;
    char* data[kMaxRowOperands] = {};
    if (kOutputs > 0) data[0] = reinterpret_cast<char*>(expected.data());
    for (size_t i = 0; i < F::Inputs::kCount; ++i)
      data[kOutputs + i] = reinterpret_cast<char*>(inputs[i].data());
    Numbers<F> expected_numbers(1);
    expected_numbers.set(data, strides);
    kernel(kParameters, data, strides, n, 1, /*repeat=*/1, nullptr);
    std::vector<Element> actual(size);
    Numbers<F> numbers(1);
    numbers.set(data, strides);
    if (kOutputs > 0) data[0] = reinterpret_cast<char*>(actual.data());
    kernel(kParameters, data, strides, n, 1, /*repeat=*/1, &on_four_threads);
    ASSERT_EQ(bytes_of(actual), bytes_of(expected))
        << cpu::name_of(set) << ' ' << Index << ' ' << n;
    ASSERT_EQ(bytes_of(numbers.outputs(0)), bytes_of(expected_numbers.outputs(0)))
        << cpu::name_of(set) << ' ' << Index << ' ' << n;
    if (kOutputs == 0) continue;
    data[0] = data[F::Inputs::kCount];  // in place
    kernel(kParameters, data, strides, n, 1, /*repeat=*/1, &on_four_threads);
    ASSERT_EQ(bytes_of(inputs[F::Inputs::kCount - 1]), bytes_of(expected))
        << cpu::name_of(set) << ' ' << Index;
  }
}

TEST(RowsTest, ThreadsThatShareARowChangeNoBit) {
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    for_each_form([&]<class Forms, int Index>() {
      expect_same_if_shared<Forms, float, Index>(set);
      expect_same_if_shared<Forms, double, Index>(set);
      expect_same_if_shared<Forms, BFloat16, Index>(set);
      expect_same_if_shared<Forms, Float16, Index>(set);
    });
  }
}

// Rows of inputs that are not shared, then a vector of shared inputs for each row, each of whose
// elements belongs to `repeat` elements of the row.
template <class Forms, class Element, int Index>
class Repeated {
  using F = typename Forms::template Form<Element, Index>;
  static constexpr int64_t kRows = 3;
  static constexpr int kInputs = F::Inputs::kCount;
  static constexpr int kOutputs = F::Outputs::kCount;

 public:
  Repeated(cpu::InstructionSet set, int64_t n, int64_t repeat)
      : call_{.kernel = kernel_of<Forms>({Index, kTypeOf<Element>}, set),
              .parameters = kParameters,
              .operands = {.n = n,
                           .outer = 1,
                           .inner = kRows,
                           .element_size = sizeof(Element),
                           .outputs = kOutputs,
                           .count = kOperandsOf<F>,
                           .numbers = kRowNumbers<F>,
                           .operands = {}}},
        repeat_(repeat) {
    for (int i = 0; i < kInputs; ++i) {
      const int64_t length = i < kInputsOfRow<F> ? n : n / repeat;
      inputs_[i] = row_of<Element>(static_cast<int>(kRows * length), 1 + static_cast<unsigned>(i));
    }
  }

  // Returns the bytes of all results. With `expands`, repeats the elements in memory.
  std::string run(bool expands, cpu::Parallel parallel) {
    RowOperands& operands = call_.operands;
    const int64_t n = operands.n;
    std::vector<Element> out(static_cast<size_t>(kRows * n));
    std::vector<Element> expanded[kInputs];
    const auto set = [&](int i, std::vector<Element>& memory, int64_t length) {
      operands.operands[i] = {.data = reinterpret_cast<char*>(memory.data()),
                              .inner_stride = length * int64_t{sizeof(Element)},
                              .element_stride = sizeof(Element),
                              .repeat = n / length};
    };
    if (kOutputs > 0) set(0, out, n);
    for (int i = 0; i < kInputs; ++i) {
      if (i < kInputsOfRow<F> || !expands) {
        set(kOutputs + i, inputs_[i], i < kInputsOfRow<F> ? n : n / repeat_);
        continue;
      }
      for (const Element& element : inputs_[i])
        expanded[i].insert(expanded[i].end(), static_cast<size_t>(repeat_), element);
      set(kOutputs + i, expanded[i], n);
    }
    Numbers<F> numbers(kRows);
    char* data[kMaxRowOperands] = {};
    int64_t strides[kMaxRowOperands] = {};
    numbers.set(data, strides);
    for (int i = kOperandsOf<F>; i < kOperandsOf<F> + kRowNumbers<F>; ++i)
      operands.operands[i] = {.data = data[i], .inner_stride = strides[i]};
    cpu::run_rows(call_, 0, kRows, parallel);
    std::string bytes = bytes_of(out);
    for (int row = 0; row < kRows; ++row) bytes += bytes_of(numbers.outputs(row));
    return bytes;
  }

 private:
  cpu::RowsCall call_;
  int64_t repeat_;
  std::vector<Element> inputs_[kInputs];
};

template <class Forms, class Element, int Index>
void expect_same_if_repeated(cpu::InstructionSet set) {
  using F = typename Forms::template Form<Element, Index>;
  if constexpr (kInputsOfRow<F> < F::Inputs::kCount) {
    // Short rows; short and long runs; runs that end within a tile or are as long as the row; rows
    // that threads share.
    for (const auto& [n, repeat] :
         std::initializer_list<std::pair<int64_t, int64_t>>{{12, 4},
                                                            {256, 16},
                                                            {272, 16},
                                                            {300, 3},
                                                            {1023, 33},
                                                            {1024, 1024},
                                                            {2046, 341},
                                                            {5000, 1250},
                                                            {3 * cpu::kRowPart, 4096},
                                                            {2 * cpu::kRowPart + 1000, 16884}}) {
      Repeated<Forms, Element, Index> rows(set, n, repeat);
      const std::string expected = rows.run(/*expands=*/true, nullptr);
      for (const cpu::Parallel parallel : {cpu::Parallel{nullptr}, &on_four_threads}) {
        ASSERT_EQ(rows.run(/*expands=*/false, parallel), expected)
            << cpu::name_of(set) << ", form " << Index << ", n " << n << ", repeat " << repeat;
      }
    }
  }
}

TEST(RowsTest, RepeatedElementsHaveTheBitsOfExpandedOnes) {
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    for_each_form([&]<class Forms, int Index>() {
      expect_same_if_repeated<Forms, float, Index>(set);
      expect_same_if_repeated<Forms, double, Index>(set);
      expect_same_if_repeated<Forms, BFloat16, Index>(set);
      expect_same_if_repeated<Forms, Float16, Index>(set);
    });
  }
}

TEST(RowsTest, TheTreeOfTilesIsTheTreeOverAllOfThem) {
  const std::vector<float> all = row_of<float>(300, 1);
  std::vector<float> numbers;
  for (const float number : all) {
    numbers.push_back(number);
    TileTree<RowSum<float>> tiles;
    for (const float each : numbers) tiles.add(RowSum<float>(each));
    const auto expected = tree_of_numbers<RowSum<float>>(numbers);
    ASSERT_EQ(tiles.total().high, expected.high) << numbers.size();
    ASSERT_EQ(tiles.total().low, expected.low) << numbers.size();
  }
}

// Rows in two dimensions with gaps, neighbouring elements apart, read and written in place.
TEST(RowsTest, StridedRowsHaveTheBitsOfContiguousOnes) {
  constexpr int64_t kOuter = 3;
  constexpr int64_t kInner = 37;
  constexpr int64_t kN = 70;
  const cpu::InstructionSet set = cpu::available_instruction_sets().back();
  const std::vector<float> values = row_of<float>(kOuter * kInner * kN, 1);
  cpu::RowsCall call = {.kernel = kernel_of<SoftmaxForms>({0, DType::kFloat32}, set),
                        .parameters = {},
                        .operands = {}};
  std::vector<float> expected = values;
  std::vector<float> strided(3 * values.size());
  // [outer, n, inner] with 3 elements from each inner index to the next.
  const auto place = [&](int64_t outer, int64_t inner, int64_t i) {
    return static_cast<size_t>(((outer * kN + i) * kInner + inner) * 3);
  };
  for (int64_t row = 0; row < kOuter * kInner; ++row)
    for (int64_t i = 0; i < kN; ++i)
      strided[place(row / kInner, row % kInner, i)] = values[static_cast<size_t>(row * kN + i)];
  RowOperands& operands = call.operands;
  operands = {
      .n = kN, .outer = kOuter, .inner = kInner, .element_size = 4, .count = 2, .operands = {}};
  const auto at = [](std::vector<float>& memory, int64_t outer, int64_t inner, int64_t element) {
    return RowOperand{.data = reinterpret_cast<char*>(memory.data()),
                      .outer_stride = outer * 4,
                      .inner_stride = inner * 4,
                      .element_stride = element * 4};
  };
  operands.operands[0] = operands.operands[1] = at(expected, kInner * kN, kN, 1);
  cpu::run_rows(call, 0, kOuter * kInner);
  operands.operands[0] = operands.operands[1] = at(strided, 3 * kInner * kN, 3, 3 * kInner);
  // Two parts that end within an outer index.
  cpu::run_rows(call, 0, 50);
  cpu::run_rows(call, 50, kOuter * kInner - 50);
  for (int64_t row = 0; row < kOuter * kInner; ++row) {
    for (int64_t i = 0; i < kN; ++i) {
      ASSERT_EQ(strided[place(row / kInner, row % kInner, i)],
                expected[static_cast<size_t>(row * kN + i)])
          << row << ", " << i;
    }
  }
}

#if FASTACT_HAS_CUDA
TEST(CudaRowsTest, NamesOfTheEnvironmentVariable) {
  for (const char* const all : {static_cast<const char*>(nullptr), "", "auto"})
    EXPECT_TRUE(cuda::parse_clusters(all));
  EXPECT_FALSE(cuda::parse_clusters("off"));
  for (const char* const wrong : {"OFF", "on", " off", "0"}) {
    try {
      cuda::parse_clusters(wrong);
      ADD_FAILURE() << "no error for " << wrong;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(),
                "fastact: expected FASTACT_CUDA_CLUSTERS to be auto or off, but got " +
                    std::string(wrong));
    }
  }
}
#endif

}  // namespace
}  // namespace fastact::testing

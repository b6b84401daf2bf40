// Compares the fused kernels of the CUDA engine with those of the CPU engine, bit for bit: the
// result and the second output, z = self * scale + bias + residual. The tests cover every set of
// inputs, every kernel, unaligned operands, and memory outside the outputs.
// python_tests/test_fused.py contains larger tensors.
#if FASTACT_HAS_CUDA

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "cpp_tests/ops/device.h"
#include "cpp_tests/ops/support.h"
#include "ops/cpu/fused.h"
#include "ops/cuda/engine.h"

namespace fastact::testing {
namespace {

constexpr char kUntouched = '\x5a';
// Elements of every operand before its first and after its last one. A multiple of a packet.
constexpr int64_t kMargin = 16;

bool is_vector(FusedInput input) {
  return input == FusedInput::kScale || input == FusedInput::kBias;
}

// Shape and strides in elements, fastest dimension first.
struct FusedLayout {
  const char* name;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;         // of all operands except scale and bias
  std::vector<int64_t> vector_strides;  // of scale and bias
  // The distances of the first elements from a packet boundary.
  int64_t result_shift = 0;
  int64_t preactivation_shift = 0;
  int64_t input_shift = 0;

  [[nodiscard]] int64_t size() const {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies());
  }
  // Returns the place of an element, relative to the first one.
  [[nodiscard]] int64_t place(const std::vector<int64_t>& of, int64_t index) const {
    int64_t place = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      place += index % shape[d] * of[d];
      index /= shape[d];
    }
    return place;
  }
};

const std::vector<FusedLayout>& layouts() {
  static const std::vector<FusedLayout> all = {
      {"one element", {1}, {1}, {1}},
      {"fewer elements than a packet", {3}, {1}, {0}},
      {"packets and a remainder", {37}, {1}, {0}},
      {"rows", {37, 29}, {1, 37}, {1, 0}},
      {"rows of packets", {64, 33}, {1, 64}, {1, 0}},
      {"three channels last", {3, 500}, {1, 3}, {1, 0}},
      {"many channels last", {64, 49, 3}, {1, 64, 64 * 49}, {1, 0, 0}},
      {"images", {49, 6, 3}, {1, 49, 6 * 49}, {0, 1, 0}},
      {"images of packets", {2048, 3, 2}, {1, 2048, 3 * 2048}, {0, 1, 0}},
      {"a scale and a bias for each element", {64, 33}, {1, 64}, {1, 64}},
      {"padded rows of packets", {64, 33}, {1, 96}, {1, 0}},
      {"padded images of packets", {64, 5, 3}, {1, 64, 7 * 64}, {0, 1, 0}},
      {"every second element", {37, 29}, {2, 80}, {1, 0}},
      {"transposed", {29, 37}, {37, 1}, {1, 0}},
      {"many blocks", {70'001}, {1}, {0}},
      {"many rows", {1000, 70}, {1, 1000}, {1, 0}},
      {"unaligned", {64, 33}, {1, 64}, {1, 0}, 1, 1, 1},
      {"an unaligned result", {64, 33}, {1, 64}, {1, 0}, 3, 0, 0},
      {"an unaligned z", {64, 33}, {1, 64}, {1, 0}, 0, 1, 0},
      {"unaligned inputs", {64, 33}, {1, 64}, {1, 0}, 0, 0, 1},
      {"unaligned padded rows", {64, 33}, {1, 96}, {1, 0}, 0, 1, 0},
  };
  return all;
}

// The memory of one operand: kMargin elements and `shift` more, the operand, kMargin elements.
struct FusedPlace {
  const FusedLayout& layout;
  const std::vector<int64_t>& strides;
  int64_t bytes;  // of an element
  int64_t shift;

  // Returns the size of the memory in elements.
  [[nodiscard]] int64_t span() const {
    return kMargin + shift + layout.place(strides, layout.size() - 1) + 1 + kMargin;
  }
  // Returns the place of the first element in bytes.
  [[nodiscard]] int64_t first() const { return (kMargin + shift) * bytes; }
  // Calls visit(i, place) for each element of the operand, where `place` is in bytes.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (int64_t i = 0; i < layout.size(); ++i)
      visit(i, first() + layout.place(strides, i) * bytes);
  }
};

// An input on the device, and its elements in the order of the layout.
struct FusedInputMemory {
  FusedInputMemory(const FusedPlace& place, const Format& format, uint64_t seed)
      : FusedInputMemory(place, pack(format, mixed_values(format, place.span(), seed))) {}

  std::vector<char> elements;
  DeviceMemory device;
  char* data;

 private:
  FusedInputMemory(const FusedPlace& place, const std::vector<char>& memory)
      : elements(place.layout.size() * place.bytes),
        device(memory),
        data(device.data() + place.first()) {
    place.for_each([&](int64_t i, int64_t at) {
      std::memcpy(elements.data() + i * place.bytes, memory.data() + at, place.bytes);
    });
  }
};

// An output on the device, and the expected content of its memory.
struct FusedOutputMemory {
  FusedOutputMemory(const FusedPlace& place, const std::vector<char>& elements)
      : expected(place.span() * place.bytes, kUntouched),
        device(expected),
        data(device.data() + place.first()) {
    place.for_each([&](int64_t i, int64_t at) {
      std::memcpy(expected.data() + at, elements.data() + i * place.bytes, place.bytes);
    });
  }

  [[nodiscard]] bool is_as_expected() const { return device.download() == expected; }

  std::vector<char> expected;
  DeviceMemory device;
  char* data;
};

class CudaFusedTest : public CudaEnvironment, public ::testing::WithParamInterface<KernelCase> {
 protected:
  const KernelCase& kernel_ = GetParam();
  const Format& format_ = kernel_.format();

  [[nodiscard]] const Format& format_of_input(FusedInput input, bool float32_vectors) const {
    return float32_vectors && is_vector(input) ? format_of(DType::kFloat32) : format_;
  }

  // Checks every set of inputs in this layout, with and without z.
  void check(const FusedLayout& layout, bool float32_vectors) const {
    std::vector<FusedInputMemory> inputs;
    for (int i = 0; i < kFusedInputs; ++i) {
      const auto input = static_cast<FusedInput>(i);
      const Format& format = format_of_input(input, float32_vectors);
      const FusedPlace place = {
          .layout = layout,
          .strides = is_vector(input) ? layout.vector_strides : layout.strides,
          .bytes = format.bytes,
          .shift = layout.input_shift};
      inputs.emplace_back(place, format, 90 + i);
    }
    for (uint32_t others = 0; others < 1u << (kFusedInputs - 1); ++others) {
      FusedSet set = FusedSet::of(FusedInput::kSelf);
      set.bits |= others << 1;
      FusedSet float32;
      for (const FusedInput vector : {FusedInput::kScale, FusedInput::kBias})
        if (float32_vectors && set.has(vector)) float32.add(vector);
      if (float32_vectors && float32.bits == 0) continue;  // the same as without
      SCOPED_TRACE(std::string(layout.name) + ", set of inputs " + std::to_string(set.bits) +
                   (float32_vectors ? ", float32 vectors" : ""));
      check_set(layout, set, float32, inputs);
      if (HasFatalFailure()) return;
    }
  }

 private:
  void check_set(const FusedLayout& layout, FusedSet set, FusedSet float32,
                 std::vector<FusedInputMemory>& inputs) const {
    std::vector<char> result(layout.size() * format_.bytes);
    std::vector<char> preactivation(result.size());
    run_on_cpu(layout.size(), set, float32, inputs, result, preactivation);
    const auto place_at = [&](int64_t shift) {
      return FusedPlace{layout, layout.strides, format_.bytes, shift};
    };
    const FusedPlace of_result = place_at(layout.result_shift);
    const FusedOutputMemory with_z(of_result, result);
    const FusedOutputMemory without_z(of_result, result);
    const FusedOutputMemory z(place_at(layout.preactivation_shift), preactivation);

    cuda::FusedOperands operands;
    operands.inputs = set;
    operands.float32 = float32;
    operands.size = layout.size();
    operands.dimensions = static_cast<int>(layout.shape.size());
    std::ranges::copy(layout.shape, operands.shape);
    const auto set_strides = [&](int operand, const std::vector<int64_t>& strides, int64_t bytes) {
      for (size_t d = 0; d < strides.size(); ++d) operands.strides[operand][d] = strides[d] * bytes;
    };
    set_strides(0, layout.strides, format_.bytes);
    for (int i = 0; i < kFusedInputs; ++i) {
      const auto input = static_cast<FusedInput>(i);
      if (!set.has(input)) continue;
      operands.data[1 + i] = inputs[i].data;
      set_strides(1 + i, is_vector(input) ? layout.vector_strides : layout.strides,
                  format_of_input(input, float32.has(input)).bytes);
    }
    operands.data[0] = without_z.data;
    launch(operands);
    operands.data[0] = with_z.data;
    operands.preactivation = z.data;
    launch(operands);
    ASSERT_TRUE(without_z.is_as_expected()) << "the result alone";
    ASSERT_TRUE(with_z.is_as_expected()) << "the result beside z";
    ASSERT_TRUE(z.is_as_expected()) << "z";
  }

  void launch(const cuda::FusedOperands& operands) const {
    const cuda::FusedKernel kernel =
        cuda::find_fused_kernel(kernel_.activation, format_.dtype, 0, nullptr);
    ASSERT_EQ(kernel(kernel_.parameters, operands, nullptr), cudaSuccess);
  }

  void run_on_cpu(int64_t size, FusedSet set, FusedSet float32,
                  std::vector<FusedInputMemory>& inputs, std::vector<char>& result,
                  std::vector<char>& preactivation) const {
    const cpu::InstructionSet widest = cpu::available_instruction_sets().back();
    cpu::FusedCall call;
    call.activation = cpu::find_fused_activation(kernel_.activation, format_.dtype, widest);
    call.parameters = kernel_.parameters;
    call.inputs = set;
    call.float32 = float32;
    call.writes_preactivation = true;
    constexpr int kMost = 2 + kFusedInputs;
    char* data[kMost] = {result.data(), preactivation.data()};
    int64_t strides[2 * kMost] = {format_.bytes, format_.bytes};
    int count = 2;
    for (int i = 0; i < kFusedInputs; ++i) {
      const auto input = static_cast<FusedInput>(i);
      if (!set.has(input)) continue;
      data[count] = inputs[i].elements.data();
      strides[count++] = format_of_input(input, float32.has(input)).bytes;
    }
    cpu::find_fused_kernels(format_.dtype, widest).forward(call, data, strides, size, 1);
  }
};

TEST_P(CudaFusedTest, SameBitsAsTheCpu) {
  for (const FusedLayout& layout : layouts()) {
    check(layout, false);
    if (format_.bytes == 2) check(layout, true);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, CudaFusedTest,
                         ::testing::ValuesIn(kernels_where([](const DerivativeId& id) {
                           return id.order == 0 && !id.from_result;
                         })),
                         KernelCaseName());

}  // namespace
}  // namespace fastact::testing

#endif  // FASTACT_HAS_CUDA

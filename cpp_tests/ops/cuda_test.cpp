// Compares the CUDA engine with the CPU engine bit for bit: every kernel in each of its versions,
// at every length, alignment and stride, in place, and without writing outside the output.
//
// The tests named CudaExhaustive take too long under compute-sanitizer and show it nothing new.
// Exclude them by --gtest_filter=*Cuda*-*CudaExhaustive*
#if FASTACT_HAS_CUDA

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "cpp_tests/ops/device.h"
#include "cpp_tests/ops/support.h"
#include "ops/cuda/engine.h"
#include "ops/cuda/self_check.h"

namespace fastact::testing {
namespace {

constexpr char kUntouched = '\x5a';

// A kernel and its arithmetic.
struct CudaKernelCase : KernelCase {
  cuda::Math math = cuda::Math::kIeee;

  [[nodiscard]] cuda::Kernel function() const { return cuda::find_kernel(activation, id, math); }
  [[nodiscard]] std::string name() const {
    return KernelCase::name() + (math == cuda::Math::kFast ? "_fast" : "");
  }
};

void PrintTo(const CudaKernelCase& kernel, std::ostream* stream) { *stream << kernel.name(); }

struct CudaKernelCaseName {
  std::string operator()(const ::testing::TestParamInfo<CudaKernelCase>& info) const {
    return info.param.name();
  }
};

// Returns each kernel, followed by its fast form if it has one.
std::vector<CudaKernelCase> in_each_form(const std::vector<KernelCase>& kernels) {
  std::vector<CudaKernelCase> cases;
  for (const KernelCase& kernel : kernels) {
    const CudaKernelCase ieee{kernel, cuda::Math::kIeee};
    const CudaKernelCase fast{kernel, cuda::Math::kFast};
    cases.push_back(ieee);
    if (fast.function() != ieee.function()) cases.push_back(fast);
  }
  return cases;
}

class CudaTest : public CudaEnvironment, public ::testing::WithParamInterface<CudaKernelCase> {
 protected:
  void SetUp() override {
    CudaEnvironment::SetUp();
    if (IsSkipped() || kernel_.math == cuda::Math::kIeee) return;
    static cuda::SelfCheck check(&cuda::compare_all);
    if (!check.fast_serves(kernel_.activation, kernel_.id, 0, nullptr)) {
      GTEST_SKIP() << "IEEE arithmetic serves: " << check.describe();
    }
  }

  const CudaKernelCase& kernel_ = GetParam();
  const Format& format_ = kernel_.format();
  const int inputs_ = kernel_.id.order + 1;
  const cpu::InstructionSet widest_ = cpu::available_instruction_sets().back();

  void launch(const cuda::Operands& operands) const {
    ASSERT_EQ(kernel_.function()(kernel_.parameters, operands, nullptr), cudaSuccess)
        << kernel_.name();
  }

  // Returns the inputs (the gradients, then x) in their memory format.
  [[nodiscard]] std::vector<std::vector<char>> draw_inputs(size_t count, uint64_t seed) const {
    std::vector<std::vector<char>> memory(inputs_);
    for (int i = 0; i < inputs_; ++i) {
      memory[i] = pack(format_, mixed_values(format_, count, seed + i));
    }
    return memory;
  }

  static std::vector<DeviceMemory> upload(std::span<const std::vector<char>> memory) {
    std::vector<DeviceMemory> result;
    result.reserve(memory.size());
    for (const std::vector<char>& content : memory) result.emplace_back(content);
    return result;
  }

  // Computes n elements on both engines. `offsets` are the operands' first elements, the output's
  // first. Host and device memory correspond; [0] is the output's.
  void run_both(std::span<std::vector<char>> host, std::span<const DeviceMemory> device,
                std::span<const int64_t> offsets, int64_t n) const {
    char* pointers[kMaxOperands];
    cuda::Operands operands;
    operands.size = n;
    for (int i = 0; i <= inputs_; ++i) {
      pointers[i] = host[i].data() + offsets[i] * format_.bytes;
      operands.data[i] = device[i].data() + offsets[i] * format_.bytes;
    }
    run_dense(kernel_, widest_, pointers, n);
    launch(operands);
  }

  // Runs the kernel for contiguous operands on inputs at these offsets, in allocations that end
  // with the last element.
  void check_exact(int64_t n, std::span<const int64_t> offsets) const {
    std::vector<std::vector<char>> host(inputs_ + 1);
    for (int i = 0; i <= inputs_; ++i) {
      host[i] = pack(format_, mixed_values(format_, n + offsets[i], 7 * n + i));
    }
    const std::vector<DeviceMemory> device = upload(host);
    run_both(host, device, offsets, n);
    ASSERT_EQ(device[0].download(), host[0]) << n << " elements, first offset " << offsets[0];
    for (int i = 1; i <= inputs_; ++i) ASSERT_EQ(device[i].download(), host[i]) << "an input";
  }

  // Checks `x` with gradients of 1, and with gradients of every kind.
  void check_values(const std::vector<uint64_t>& x) const {
    std::vector<std::vector<char>> host = draw_inputs(x.size(), 60);
    for (const bool unit : {true, false}) {
      if (unit) {
        const std::vector<uint64_t> ones(x.size(), format_.one());
        for (int i = 0; i + 1 < inputs_; ++i) host[i] = pack(format_, ones);
      } else {
        host = draw_inputs(x.size(), 60);
      }
      host[inputs_ - 1] = pack(format_, x);
      host.insert(host.begin(), std::vector<char>(x.size() * format_.bytes, kUntouched));
      const std::vector<DeviceMemory> device = upload(host);
      const int64_t offsets[kMaxOperands] = {};
      run_both(host, device, offsets, static_cast<int64_t>(x.size()));
      const std::vector<char> got = device[0].download();
      int reported = 0;
      for (size_t i = 0; i < x.size() && reported < 5; ++i) {
        const uint64_t expected = format_.load(host[0].data() + i * format_.bytes);
        const uint64_t result = format_.load(got.data() + i * format_.bytes);
        if (result == expected) continue;
        ++reported;
        ADD_FAILURE() << "at " << hex(format_, x[i]) << (unit ? "" : " with gradients")
                      << " expected " << hex(format_, expected) << ", but got "
                      << hex(format_, result);
      }
      host.erase(host.begin());
    }
  }
};

class CudaExhaustiveTest : public CudaTest {};

// ---- Values

// Every element of a 16-bit type; for the other types, the same number of elements of every kind.
TEST_P(CudaTest, SameBitsAsTheCpu) {
  std::vector<uint64_t> x(0x10000);
  if (format_.bytes == 2) {
    std::iota(x.begin(), x.end(), uint64_t{0});
  } else {
    x = mixed_values(format_, x.size(), 61);
  }
  check_values(x);
}

// CudaTest tests all inputs of the 16-bit types.
class CudaExhaustiveSampleTest : public CudaTest {};

TEST_P(CudaExhaustiveSampleTest, SameBitsAsTheCpu) {
  std::vector<uint64_t> x;
  if (format_.bytes == 4) {
    for (uint64_t bits = 0; bits <= format_.all_bits(); bits += 977) x.push_back(bits);
  } else {
    x = mixed_values(format_, 2'000'000, 62);
  }
  check_values(x);
}

// ---- Parameters

// Every kernel with parameters, at random parameters.
class CudaDrawnParametersTest : public CudaEnvironment {};

TEST_F(CudaDrawnParametersTest, SameBitsAsTheCpu) {
  const auto settings = static_cast<int>(from_environment("FASTACT_SETTINGS", 32));
  const uint64_t seed = from_environment("FASTACT_SETTINGS_SEED", 1);
  const cpu::InstructionSet widest = cpu::available_instruction_sets().back();
  constexpr int64_t kCount = 4096;
  cuda::SelfCheck check(&cuda::compare_all);
  for (const CudaKernelCase& kernel : in_each_form(kernels_at_drawn_parameters(settings, seed))) {
    if (kernel.math == cuda::Math::kFast &&
        !check.fast_serves(kernel.activation, kernel.id, 0, nullptr)) {
      continue;
    }
    SCOPED_TRACE(described(kernel));
    std::vector<std::vector<char>> host(kernel.operands());
    for (int i = 0; i < kernel.operands(); ++i)
      host[i] = pack(kernel.format(), mixed_values(kernel.format(), kCount, 80 + i));
    std::vector<DeviceMemory> device;
    char* pointers[kMaxOperands];
    cuda::Operands operands;
    operands.size = kCount;
    for (int i = 0; i < kernel.operands(); ++i) {
      pointers[i] = host[i].data();
      operands.data[i] = device.emplace_back(host[i]).data();
    }
    run_dense(kernel, widest, pointers, kCount);
    ASSERT_EQ(kernel.function()(kernel.parameters, operands, nullptr), cudaSuccess);
    ASSERT_TRUE(device[0].download() == host[0]);
  }
}

// ---- Contiguous

TEST_P(CudaTest, LengthsAroundPacketsAndBlocksInExactAllocations) {
  for (const int64_t n : {0,    1,    2,    3,    7,    8,    9,    15,   16,    17,    31,    127,
                          128,  129,  511,  512,  513,  1023, 1024, 1025, 2047,  2048,  2049,  2055,
                          4095, 4096, 4097, 4200, 8191, 8192, 8193, 9999, 16384, 16391, 20'000}) {
    const int64_t aligned[kMaxOperands] = {};
    check_exact(n, aligned);
    const int64_t shift = 1 + n % 7;
    const int64_t equal[kMaxOperands] = {shift, shift, shift, shift, shift};
    check_exact(n, equal);
    const int64_t different[kMaxOperands] = {shift, 0, shift + 1, 3, 2 * shift};
    check_exact(n, different);
    if (HasFatalFailure()) return;
  }
}

// For the value and the first derivative, every combination of offsets from a packet boundary. For
// the others, every combination of equal offsets, and a sample.
TEST_P(CudaTest, EveryAlignment) {
  const int64_t per_packet = 16 / format_.bytes;
  constexpr int64_t kCount = 1100;
  const int operands = kernel_.operands();
  std::vector<std::vector<int64_t>> combinations;
  if (operands <= 3) {
    const auto all = static_cast<int64_t>(std::pow(per_packet, operands));
    for (int64_t code = 0; code < all; ++code) {
      std::vector<int64_t> offsets;
      for (int64_t rest = code; std::ssize(offsets) < operands; rest /= per_packet) {
        offsets.push_back(rest % per_packet);
      }
      combinations.push_back(offsets);
    }
  } else {
    Random random = seeded(70);
    for (int64_t offset = 0; offset < per_packet; ++offset) {
      combinations.emplace_back(operands, offset);
    }
    for (int i = 0; i < 100; ++i) {
      std::vector<int64_t> offsets(operands);
      for (int64_t& offset : offsets) offset = random_between(random, 0, per_packet - 1);
      combinations.push_back(offsets);
    }
  }
  // Each combination has its own region of the output, and all are compared at the end.
  const int64_t room = kCount + 4 * per_packet;
  std::vector<std::vector<char>> host = draw_inputs(room, 71);
  host.insert(host.begin(),
              std::vector<char>(room * combinations.size() * format_.bytes, kUntouched));
  const std::vector<DeviceMemory> device = upload(host);
  for (size_t i = 0; i < combinations.size(); ++i) {
    std::vector<int64_t> offsets = combinations[i];
    offsets[0] += static_cast<int64_t>(i) * room + per_packet;
    run_both(host, device, offsets, kCount);
  }
  EXPECT_TRUE(device[0].download() == host[0]);
}

TEST_P(CudaExhaustiveTest, EveryLengthAtChangingAlignments) {
  constexpr int64_t kLengths = 4200;
  std::vector<int64_t> starts;
  starts.reserve(kLengths + 1);
  int64_t end = 0;
  for (int64_t n = 0; n <= kLengths; ++n) {
    starts.push_back(end + 16 + n * 7 % 16);
    end = starts.back() + n;
  }
  std::vector<std::vector<char>> host = draw_inputs(kLengths + 16, 72);
  host.insert(host.begin(), std::vector<char>((end + 16) * format_.bytes, kUntouched));
  const std::vector<DeviceMemory> device = upload(host);
  for (int64_t n = 0; n <= kLengths; ++n) {
    int64_t offsets[kMaxOperands] = {starts[n]};
    // Half of them have the output's alignment, which makes the engine use packets.
    for (int i = 1; i <= inputs_; ++i) {
      offsets[i] = n % 4 < 2 ? starts[n] % 16 : (n * (2 * i + 3) + n / 16) % 16;
    }
    run_both(host, device, offsets, n);
  }
  EXPECT_TRUE(device[0].download() == host[0]);
}

TEST_P(CudaTest, InPlaceOnEachInput) {
  for (const int64_t n : {1, 100, 4097}) {
    for (int target = 0; target < inputs_; ++target) {
      std::vector<std::vector<char>> host = draw_inputs(n + 3, 73);
      const std::vector<DeviceMemory> device = upload(host);
      for (const int64_t offset : {0, 3}) {
        char* pointers[kMaxOperands];
        cuda::Operands operands;
        operands.size = n;
        for (int i = 0; i <= inputs_; ++i) {
          const int source = i == 0 ? target : i - 1;
          pointers[i] = host[source].data() + offset * format_.bytes;
          operands.data[i] = device[source].data() + offset * format_.bytes;
        }
        run_dense(kernel_, widest_, pointers, n);
        launch(operands);
        for (int i = 0; i < inputs_; ++i) {
          ASSERT_EQ(device[i].download(), host[i]) << n << " elements, on operand " << target + 1;
        }
      }
    }
  }
}

// ---- Strided

// The place of an operand's elements. Strides are in elements.
struct Place {
  std::vector<int64_t> strides;
  int64_t first = 0;
  int64_t span = 0;

  [[nodiscard]] int64_t at(std::span<const int64_t> index) const {
    return std::inner_product(index.begin(), index.end(), strides.begin(), first);
  }
};

int64_t product_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Returns dimensions in a random order with gaps, without using an element twice. Strides and gaps
// are multiples of `unit`, except for dimension 0, which is contiguous if `unit` is a packet.
Place random_place(Random& random, const std::vector<int64_t>& shape, int64_t unit,
                   bool broadcast) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin() + (unit > 1 ? 1 : 0), order.end(), random);
  Place place;
  place.strides.resize(shape.size());
  int64_t stride = unit > 1 ? 1 : random_between(random, 1, 3);
  for (const size_t dimension : order) {
    if (broadcast && (unit == 1 || dimension > 0) && random() % 4 == 0) continue;
    place.strides[dimension] = stride;
    stride *= shape[dimension];
    if (unit > 1) stride = (stride + unit - 1) / unit * unit;
    stride += unit * random_between(random, 0, 2);
  }
  place.first = unit * random_between(random, 0, 3);
  place.span = place.first + stride + random_between(random, 0, 5);
  return place;
}

class CudaStridedTest : public CudaTest {
 protected:
  // Runs on fresh memory. If `target` is above 0, runs in place on that operand, whose place is the
  // output's.
  void check(const std::vector<int64_t>& shape, const std::vector<Place>& places, int target,
             uint64_t seed) const {
    std::vector<std::vector<char>> host(inputs_ + 1);
    for (int i = 0; i <= inputs_; ++i) {
      host[i] = pack(format_, mixed_values(format_, places[i].span, 8 * seed + i));
    }
    const std::vector<DeviceMemory> device = upload(host);
    cuda::Operands operands;
    operands.size = product_of(shape);
    operands.dimensions = static_cast<int>(shape.size());
    std::ranges::copy(shape, operands.shape);
    for (int i = 0; i <= inputs_; ++i) {
      const int source = i == 0 ? target : i;
      operands.data[i] = device[source].data() + places[source].first * format_.bytes;
      for (size_t d = 0; d < shape.size(); ++d) {
        operands.strides[i][d] = places[source].strides[d] * format_.bytes;
      }
    }
    launch(operands);

    std::vector<int64_t> index(shape.size());
    std::vector<char> expected = host[target];
    for (int64_t n = 0; n < operands.size; ++n) {
      uint64_t elements[kMaxOperands] = {};
      for (int i = 1; i <= inputs_; ++i) {
        elements[i - 1] = format_.load(host[i].data() + places[i].at(index) * format_.bytes);
      }
      format_.store(expected.data() + places[target].at(index) * format_.bytes,
                    run_one(kernel_, widest_, std::span(elements, inputs_)));
      for (size_t d = 0; d < shape.size() && ++index[d] == shape[d]; ++d) index[d] = 0;
    }
    host[target] = expected;
    for (int i = 0; i <= inputs_; ++i) {
      ASSERT_EQ(device[i].download(), host[i])
          << "operand " << i << " of shape " << ::testing::PrintToString(shape) << ", strides "
          << ::testing::PrintToString(places[i].strides) << ", in place on " << target;
    }
  }

  void check_random(Random& random, bool in_place, uint64_t seed) const {
    const int64_t per_packet = 16 / format_.bytes;
    const bool packets = random() % 3 == 0;
    std::vector<int64_t> shape(random_between(random, 1, 6));
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t room =
          6000 / product_of({shape.begin(), shape.begin() + static_cast<int64_t>(d)});
      shape[d] = random_between(random, 1, std::clamp<int64_t>(room, 1, d == 0 ? 300 : 20));
      if (packets && d == 0) shape[d] = std::max<int64_t>(1, shape[d] / per_packet) * per_packet;
    }
    std::vector<Place> places(inputs_ + 1);
    for (int i = 0; i <= inputs_; ++i) {
      places[i] = random_place(random, shape, packets ? per_packet : 1, i > 0);
    }
    int target = 0;
    if (in_place) {
      target = static_cast<int>(random_between(random, 1, inputs_));
      places[target] = places[0];
    }
    check(shape, places, target, seed);
  }
};

TEST_P(CudaStridedTest, RandomLayouts) {
  Random random = seeded(80);
  for (int i = 0; i < 25 && !HasFatalFailure(); ++i) check_random(random, false, i);
}

TEST_P(CudaStridedTest, RandomLayoutsInPlace) {
  Random random = seeded(81);
  for (int i = 0; i < 25 && !HasFatalFailure(); ++i) check_random(random, true, i);
}

// The largest number of dimensions that the engine supports.
TEST_P(CudaStridedTest, MostDimensions) {
  std::vector<int64_t> shape(cuda::kMaxDimensions, 1);
  for (const int dimension : {1, 4, 9, 16, 20, 24}) shape[dimension] = 3;
  Random random = seeded(82);
  std::vector<Place> places(inputs_ + 1);
  for (int i = 0; i <= inputs_; ++i) places[i] = random_place(random, shape, 1, i > 0);
  check(shape, places, 0, 83);
}

INSTANTIATE_TEST_SUITE_P(Kernels, CudaTest, ::testing::ValuesIn(in_each_form(all_kernels())),
                         CudaKernelCaseName());
INSTANTIATE_TEST_SUITE_P(Kernels, CudaExhaustiveTest,
                         ::testing::ValuesIn(in_each_form(all_kernels())), CudaKernelCaseName());
INSTANTIATE_TEST_SUITE_P(Kernels, CudaExhaustiveSampleTest,
                         ::testing::ValuesIn(in_each_form(kernels_where([](const DerivativeId& id) {
                           return format_of(id.dtype).bytes > 2;
                         }))),
                         CudaKernelCaseName());
INSTANTIATE_TEST_SUITE_P(Kernels, CudaStridedTest, ::testing::ValuesIn(in_each_form(all_kernels())),
                         CudaKernelCaseName());

// ---- The engine

TEST(CudaCatalogueTest, EveryKernelIsThere) {
  for (const KernelCase& kernel : all_kernels()) {
    for (const cuda::Math math : {cuda::Math::kIeee, cuda::Math::kFast}) {
      EXPECT_NE(cuda::find_kernel(kernel.activation, kernel.id, math), nullptr) << kernel.name();
    }
  }
  EXPECT_FALSE(cuda::architectures().empty());
}

TEST(CudaCatalogueTest, FailuresAreDescribed) {
  EXPECT_EQ(cuda::describe_failure(cudaErrorInvalidConfiguration),
            "expected the kernel launch to succeed, but got cudaErrorInvalidConfiguration: invalid "
            "configuration argument");
}

class CudaLaunchTest : public CudaEnvironment {
 protected:
  const CudaKernelCase kernel_ = in_each_form(all_kernels()).front();
  const Format& format_ = kernel_.format();
  const std::vector<char> input_ = pack(format_, mixed_values(format_, 5000, 90));

  [[nodiscard]] std::vector<char> expected() const {
    std::vector<char> result(input_.size());
    std::vector<char> x = input_;
    char* const operands[] = {result.data(), x.data()};
    run_dense(kernel_, cpu::InstructionSet::kBaseline, operands, 5000);
    return result;
  }
};

TEST_F(CudaLaunchTest, NoElementsAreNoError) {
  for (const int dimensions : {0, 2}) {
    cuda::Operands operands;
    operands.dimensions = dimensions;
    for (const CudaKernelCase& kernel : in_each_form(all_kernels())) {
      EXPECT_EQ(kernel.function()(kernel.parameters, operands, nullptr), cudaSuccess);
    }
  }
}

TEST_F(CudaLaunchTest, CanBeCapturedIntoAGraph) {
  const DeviceMemory x(input_.size());
  const DeviceMemory y(input_.size());
  cuda::Operands operands;
  operands.size = 5000;
  operands.data[0] = y.data();
  operands.data[1] = x.data();
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(kernel_.function()(kernel_.parameters, operands, stream), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  // The graph must read the memory's contents after the capture.
  DeviceMemory::copy(x.data(), input_.data(), input_.size(), cudaMemcpyHostToDevice);
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(y.download(), expected());
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

// ---- More than 2^31 elements

class CudaExhaustiveLargeTest : public CudaEnvironment {
 protected:
  static constexpr int64_t kPeriod = 0x10000;
  static constexpr int64_t kSize = (int64_t{1} << 31) + 123'457;
  static constexpr size_t kChunk = size_t{64} << 20;

  // Returns false and prints the reason if the GPU has less free memory.
  static bool has_memory(size_t needed) {
    size_t free_bytes = 0;
    size_t total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    return free_bytes > needed + (size_t{512} << 20);
  }

  // Fills the memory with all 65,536 elements, repeatedly.
  static void fill_periodically(const DeviceMemory& memory) {
    std::vector<uint64_t> values(kPeriod);
    std::iota(values.begin(), values.end(), uint64_t{0});
    const std::vector<char> pattern = pack(format_of(DType::kBFloat16), values);
    const size_t first = std::min(pattern.size(), memory.size());
    DeviceMemory::copy(memory.data(), pattern.data(), first, cudaMemcpyHostToDevice);
    for (size_t filled = first; filled < memory.size(); filled *= 2) {
      const size_t count = std::min(filled, memory.size() - filled);
      DeviceMemory::copy(memory.data() + filled, memory.data(), count, cudaMemcpyDeviceToDevice);
    }
  }

  // Expects element i to be the result for element `step` * i of the pattern, for the first kSize
  // elements.
  static void expect_results(const KernelCase& kernel, const DeviceMemory& memory, int64_t step) {
    std::vector<uint64_t> x(kChunk / 2);
    for (size_t i = 0; i < x.size(); ++i) x[i] = step * i % kPeriod;
    const cpu::InstructionSet widest = cpu::available_instruction_sets().back();
    const std::vector<char> expected = pack(kernel.format(), run_all(kernel, widest, x));
    std::vector<char> chunk(kChunk);
    for (size_t start = 0; start < 2 * kSize; start += kChunk) {
      const size_t count = std::min(kChunk, 2 * kSize - start);
      DeviceMemory::copy(chunk.data(), memory.data() + start, count, cudaMemcpyDeviceToHost);
      ASSERT_EQ(std::memcmp(chunk.data(), expected.data(), count), 0)
          << kernel.name() << ", elements from " << start / 2 << " on";
    }
  }

  static std::vector<CudaKernelCase> kernels() {
    return in_each_form(kernels_where(
        [](const DerivativeId& id) { return id.order == 0 && id.dtype == DType::kBFloat16; }));
  }
};

TEST_F(CudaExhaustiveLargeTest, DenseInPlace) {
  if (!has_memory(2 * kSize)) GTEST_SKIP() << "the GPU has not 4.3 GB free";
  const DeviceMemory memory(2 * kSize);
  for (const CudaKernelCase& kernel : kernels()) {
    fill_periodically(memory);
    cuda::Operands operands;
    operands.size = kSize;
    operands.data[0] = memory.data();
    operands.data[1] = memory.data();
    ASSERT_EQ(kernel.function()(kernel.parameters, operands, nullptr), cudaSuccess);
    expect_results(kernel, memory, 1);
  }
}

TEST_F(CudaExhaustiveLargeTest, StridedBeyond32BitIndicesAndOffsets) {
  if (!has_memory(6 * kSize)) GTEST_SKIP() << "the GPU has not 12.9 GB free";
  const DeviceMemory x(4 * kSize);
  const DeviceMemory y(2 * kSize);
  fill_periodically(x);
  const CudaKernelCase kernel = kernels().back();
  const cuda::Kernel function = kernel.function();
  cuda::Operands operands;
  operands.size = kSize;
  operands.dimensions = 1;
  operands.shape[0] = kSize;
  operands.data[0] = y.data();
  operands.data[1] = x.data();
  operands.strides[0][0] = 2;
  operands.strides[1][0] = 4;
  ASSERT_EQ(function(kernel.parameters, operands, nullptr), cudaSuccess);
  expect_results(kernel, y, 2);

  // Few elements with a large stride.
  constexpr int64_t kFew = 1000;
  const int64_t stride = 4 * kSize / kFew / 2 * 2;
  operands.size = kFew;
  operands.shape[0] = kFew;
  operands.strides[1][0] = stride;
  ASSERT_EQ(function(kernel.parameters, operands, nullptr), cudaSuccess);
  std::vector<char> got(2 * kFew);
  DeviceMemory::copy(got.data(), y.data(), got.size(), cudaMemcpyDeviceToHost);
  std::vector<uint64_t> elements(kFew);
  for (int64_t i = 0; i < kFew; ++i) elements[i] = i * (stride / 2) % kPeriod;
  EXPECT_EQ(got, pack(kernel.format(),
                      run_all(kernel, cpu::available_instruction_sets().back(), elements)));
}

}  // namespace
}  // namespace fastact::testing

#endif  // FASTACT_HAS_CUDA

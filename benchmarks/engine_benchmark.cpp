// Benchmarks the CPU engine without torch, in one thread: every activation, instruction set and
// dtype, value and derivative, from a few elements to more than the caches hold.
//
//   fastact_engine_benchmark --benchmark_filter=selu/avx512/float32
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/catalogue.h"
#include "ops/cpu/engine.h"
#include "ops/forms/derivative.h"

namespace {

using fastact::DType;
using fastact::cpu::InstructionSet;

struct Format {
  DType dtype;
  const char* name;
  int64_t bytes;
};
constexpr Format kFormats[] = {{DType::kFloat32, "float32", 4},
                               {DType::kFloat64, "float64", 8},
                               {DType::kBFloat16, "bfloat16", 2},
                               {DType::kFloat16, "float16", 2}};
constexpr int kTopBenchmarkedOrder = 1;
constexpr int64_t kSmallest = int64_t{1} << 4;
constexpr int64_t kLargest = int64_t{1} << 24;
constexpr int64_t kStep = 16;  // the ratio of one size to the next

// Returns the bits of numbers of both signs with magnitudes from 1/8 to 8.
uint64_t random_bits(DType dtype, std::mt19937_64& generator) {
  std::uniform_real_distribution<float> exponent(-3, 3);
  const float magnitude = std::exp2(exponent(generator));
  const float value = (generator() & 1) != 0 ? -magnitude : magnitude;
  uint32_t single = 0;
  std::memcpy(&single, &value, sizeof single);
  if (dtype == DType::kFloat32) return single;
  if (dtype == DType::kBFloat16) return single >> 16;
  if (dtype == DType::kFloat16) {  // the exponent's bias is 15 instead of 127
    return (single >> 31 << 15) | ((((single >> 23) & 0xff) - 127 + 15) << 10) |
           (single >> 13 & 0x3ff);
  }
  const double wide = value;
  uint64_t bits = 0;
  std::memcpy(&bits, &wide, sizeof bits);
  return bits;
}

std::vector<char> random_elements(const Format& format, int64_t count) {
  std::mt19937_64 generator(0);  // NOLINT(bugprone-random-generator-seed): always the same
  std::vector<char> bytes(count * format.bytes);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = random_bits(format.dtype, generator);
    std::memcpy(&bytes[i * format.bytes], &bits, format.bytes);  // little-endian
  }
  return bytes;
}

// Returns the schema's defaults, or 0 for parameters without one.
fastact::Parameters defaults_of(const fastact::Activation& activation) {
  fastact::Parameters parameters;
  for (size_t i = 0; i < activation.parameters.size(); ++i)
    parameters.values[i] = activation.parameters[i].default_value.value_or(0.0);
  return parameters;
}

void run(benchmark::State& state, int activation, const Format& format, InstructionSet set,
         int order) {
  const int64_t count = state.range(0);
  const fastact::cpu::Kernel kernel = fastact::cpu::find_kernel(
      activation, {fastact::derivative_form(order, /*from_result=*/false), format.dtype}, set);
  const fastact::Parameters parameters = defaults_of(fastact::activations()[activation]);
  const size_t operands = order + 2;
  std::vector<std::vector<char>> memory(operands, random_elements(format, count));
  std::vector<char*> data;
  data.reserve(operands);
  for (std::vector<char>& bytes : memory) data.push_back(bytes.data());
  std::vector<int64_t> strides(2 * operands, 0);  // one row: the second stride is ignored
  for (size_t i = 0; i < operands; ++i) strides[i] = format.bytes;
  for (auto _ : state) {
    kernel(parameters, data.data(), strides.data(), count, 1);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * count);
  state.SetBytesProcessed(state.iterations() * count * format.bytes * (order + 2));
}

void register_all() {
  const auto activations = fastact::activations();
  for (int i = 0; i < static_cast<int>(activations.size()); ++i) {
    for (const InstructionSet set : fastact::cpu::available_instruction_sets()) {
      for (const Format& format : kFormats) {
        for (int order = 0; order <= kTopBenchmarkedOrder; ++order) {
          const std::string name = std::string(activations[i].name) + "/" +
                                   std::string(fastact::cpu::name_of(set)) + "/" + format.name +
                                   "/order" + std::to_string(order);
          benchmark::RegisterBenchmark(
              name.c_str(),
              [=, &format](benchmark::State& state) { run(state, i, format, set, order); })
              ->RangeMultiplier(kStep)
              ->Range(kSmallest, kLargest);
        }
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

#include "ops/cpu/engine.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/catalogue.h"
#include "ops/cpu/fused.h"
#include "ops/cpu/processor.h"
#include "ops/cpu/tables.h"

namespace fastact::cpu {

// Each instruction set's, see fused.cpp.
namespace baseline {
FusedKernels fused_kernels(DType dtype);
}
#if FASTACT_HAS_AVX2
namespace avx2 {
FusedKernels fused_kernels(DType dtype);
}
#endif
#if FASTACT_HAS_AVX512
namespace avx512 {
FusedKernels fused_kernels(DType dtype);
}
#endif

namespace {

std::vector<InstructionSet> detect() {
  std::vector<InstructionSet> sets = {InstructionSet::kBaseline};
  [[maybe_unused]] const ProcessorFeatures features = processor_features();
#if FASTACT_HAS_AVX2
  if (runs(InstructionSet::kAvx2, features)) sets.push_back(InstructionSet::kAvx2);
#endif
#if FASTACT_HAS_AVX512
  if (runs(InstructionSet::kAvx512, features)) sets.push_back(InstructionSet::kAvx512);
#endif
  return sets;
}

InstructionSet select() {
  const auto sets = available_instruction_sets();
  const char* wanted =
      std::getenv("FASTACT_CPU_ISA");  // NOLINT(concurrency-mt-unsafe): read once, at first use
  if (wanted == nullptr || *wanted == '\0') return sets.back();
  std::string names;
  for (const InstructionSet set : sets) {
    if (name_of(set) == wanted) return set;
    names += (names.empty() ? "" : set == sets.back() ? " or " : ", ") + std::string(name_of(set));
  }
  throw std::invalid_argument("fastact: expected FASTACT_CPU_ISA to be " + names +
                              " on this processor, but got " + wanted);
}

struct Tables {
  const KernelTable<Kernel>* by_set[3];
};

#define FASTACT_TABLES_OF(name, Type) \
  Tables{{&name##_baseline, FASTACT_AVX2_TABLE(name), FASTACT_AVX512_TABLE(name)}},
#define FASTACT_NUMBER_TABLES_OF(name, Type)                            \
  Tables{{&name##_numbers_baseline, FASTACT_AVX2_TABLE(name##_numbers), \
          FASTACT_AVX512_TABLE(name##_numbers)}},
constexpr Tables kTables[] = {FASTACT_FAMILIES(FASTACT_TABLES_OF)};

constexpr Tables kNumberTables[] = {FASTACT_ACTIVATIONS(FASTACT_NUMBER_TABLES_OF)};
#undef FASTACT_NUMBER_TABLES_OF
#undef FASTACT_TABLES_OF

}  // namespace

std::string_view name_of(InstructionSet set) {
#if defined(__aarch64__)
  constexpr std::string_view kBaseline = "neon";
#else
  constexpr std::string_view kBaseline = "baseline";
#endif
  constexpr std::string_view kNames[] = {kBaseline, "avx2", "avx512"};
  return kNames[static_cast<int>(set)];
}

std::span<const InstructionSet> available_instruction_sets() {
  static const std::vector<InstructionSet> sets = detect();
  return sets;
}

InstructionSet selected_instruction_set() {
  static const InstructionSet set = select();
  return set;
}

Kernel find_kernel(int family, const KernelId& id, InstructionSet set) {
  return (*kTables[family].by_set[static_cast<int>(set)])[id];
}

Kernel find_number_kernel(int activation, int order, DType dtype, InstructionSet set) {
  return (*kNumberTables[activation].by_set[static_cast<int>(set)])[{order, dtype}];
}

FusedKernels find_fused_kernels(DType dtype, InstructionSet set) {
  switch (set) {
#if FASTACT_HAS_AVX2
    case InstructionSet::kAvx2:
      return avx2::fused_kernels(dtype);
#endif
#if FASTACT_HAS_AVX512
    case InstructionSet::kAvx512:
      return avx512::fused_kernels(dtype);
#endif
    default:
      return baseline::fused_kernels(dtype);
  }
}

}  // namespace fastact::cpu

#include "ops/cpu/engine.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/catalogue.h"
#include "ops/cpu/fused.h"
#include "ops/cpu/norm_sums.h"
#include "ops/cpu/processor.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/seeded.h"
#include "ops/cpu/tables.h"
#include "ops/forms/fused.h"
#include "ops/printable.h"

namespace fastact::cpu {

// The functions that each instruction set defines besides its tables of forms.
#define FASTACT_DECLARE_FUNCTIONS(set)                               \
  namespace set {                                                    \
  FusedKernels fused_kernels(DType dtype);                           \
  NormSums norm_sums(DType dtype);                                   \
  void run_seeded(const SeededCall& call, int64_t first, int64_t n); \
  }
FASTACT_DECLARE_FUNCTIONS(baseline)
FASTACT_DECLARE_FUNCTIONS(avx2)
FASTACT_DECLARE_FUNCTIONS(avx512)
#undef FASTACT_DECLARE_FUNCTIONS

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
                              " on this processor, but got " + printable(wanted));
}

template <class Function>
struct Tables {
  const KernelTable<Function>* by_set[3];
};

#define FASTACT_TABLES_OF(name, Type) \
  Tables<Kernel>{{&name##_baseline, FASTACT_AVX2_TABLE(name), FASTACT_AVX512_TABLE(name)}},
#define FASTACT_NUMBER_TABLES_OF(name, Type)                                           \
  Tables<DenseFunction>{{&name##_numbers_baseline, FASTACT_AVX2_TABLE(name##_numbers), \
                         FASTACT_AVX512_TABLE(name##_numbers)}},
#define FASTACT_ROW_TABLES_OF(name, Type)                                      \
  Tables<RowFunction>{{&name##_rows_baseline, FASTACT_AVX2_TABLE(name##_rows), \
                       FASTACT_AVX512_TABLE(name##_rows)}},
constexpr Tables<Kernel> kTables[] = {FASTACT_FAMILIES(FASTACT_TABLES_OF)};

constexpr Tables<DenseFunction> kNumberTables[] = {FASTACT_ACTIVATIONS(FASTACT_NUMBER_TABLES_OF)};

// The last one is empty, because a build may have no row forms.
constexpr Tables<RowFunction> kRowTables[] = {FASTACT_ROW_FORMS(FASTACT_ROW_TABLES_OF){}};
#undef FASTACT_ROW_TABLES_OF
#undef FASTACT_NUMBER_TABLES_OF
#undef FASTACT_TABLES_OF

struct Functions {
  FusedKernels (*fused_kernels)(DType dtype);
  NormSums (*norm_sums)(DType dtype);
  SeededRun run_seeded;
};

constexpr Functions kFunctions[] = {
    {&baseline::fused_kernels, &baseline::norm_sums, &baseline::run_seeded},
#if FASTACT_HAS_AVX2
    {&avx2::fused_kernels, &avx2::norm_sums, &avx2::run_seeded},
#else
    {},
#endif
#if FASTACT_HAS_AVX512
    {&avx512::fused_kernels, &avx512::norm_sums, &avx512::run_seeded},
#endif
};

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

RowKernel find_row_kernel(int family, const KernelId& id, InstructionSet set) {
  return (*kRowTables[family].by_set[static_cast<int>(set)])[id];
}

FusedActivation find_fused_activation(int activation, DType dtype, InstructionSet set) {
  const auto& table = *kNumberTables[activation].by_set[static_cast<int>(set)];
  return {.value = table[{kNumberValue, dtype}],
          .gated = table[{kNumberGated, dtype}],
          .slope = table[{kNumberSlope, dtype}]};
}

FusedKernels find_fused_kernels(DType dtype, InstructionSet set) {
  return kFunctions[static_cast<int>(set)].fused_kernels(dtype);
}

NormSums find_norm_sums(DType dtype, InstructionSet set) {
  return kFunctions[static_cast<int>(set)].norm_sums(dtype);
}

SeededRun find_seeded_run(InstructionSet set) {
  return kFunctions[static_cast<int>(set)].run_seeded;
}

}  // namespace fastact::cpu

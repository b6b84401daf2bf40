#include "ops/cpu/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fastact::cpu {

#if defined(__x86_64__)

namespace {

// Feature bits that the x86-64 psABI levels 3 and 4 add to the baseline. LZCNT's bit is named ABM.
constexpr uint32_t kLevel3Leaf1 = bit_AVX | bit_F16C | bit_FMA | bit_MOVBE | bit_OSXSAVE;
constexpr uint32_t kLevel3Leaf7 = bit_AVX2 | bit_BMI | bit_BMI2;
constexpr uint32_t kLevel3Extended = bit_ABM;
constexpr uint32_t kLevel4Leaf7 =
    bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;

// Bits of XCR0: the SSE and AVX registers; then also AVX-512's masks and upper halves.
constexpr uint32_t kAvxState = 0x6;
constexpr uint32_t kAvx512State = 0xe6;

uint32_t enabled_state() {
  uint32_t eax = 0;
  uint32_t edx = 0;
  asm("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return eax;
}

bool has_all(uint32_t bits, uint32_t wanted) { return (bits & wanted) == wanted; }

}  // namespace

ProcessorFeatures processor_features() {
  ProcessorFeatures features;
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) features.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) features.leaf7_ebx = ebx;
  if (__get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) != 0) features.extended1_ecx = ecx;
  if (has_all(features.leaf1_ecx, bit_OSXSAVE)) {
    const uint32_t state = enabled_state();
    features.has_avx_state = has_all(state, kAvxState);
    features.has_avx512_state = has_all(state, kAvx512State);
  }
  return features;
}

bool runs(InstructionSet set, const ProcessorFeatures& features) {
  const bool has_level3 =
      has_all(features.leaf1_ecx, kLevel3Leaf1) && has_all(features.leaf7_ebx, kLevel3Leaf7) &&
      has_all(features.extended1_ecx, kLevel3Extended) && features.has_avx_state;
  switch (set) {
    case InstructionSet::kBaseline:
      return true;
    case InstructionSet::kAvx2:
      return has_level3;
    case InstructionSet::kAvx512:
      return has_level3 && has_all(features.leaf7_ebx, kLevel4Leaf7) && features.has_avx512_state;
  }
  return false;
}

#else

ProcessorFeatures processor_features() { return {}; }

bool runs(InstructionSet set, const ProcessorFeatures& /*features*/) {
  return set == InstructionSet::kBaseline;
}

#endif

}  // namespace fastact::cpu

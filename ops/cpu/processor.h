// What the processor can do, as far as the choice of an instruction set depends on it.
#pragma once

#include <cstdint>

#include "ops/cpu/engine.h"

namespace fastact::cpu {

// What CPUID says, of the registers that hold what is asked for here. A feature that the operating
// system or a virtual machine masks is not there.
struct ProcessorFeatures {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;
  uint32_t extended1_ecx = 0;
  // Whether the operating system keeps the registers of AVX and of AVX-512.
  bool has_avx_state = false;
  bool has_avx512_state = false;
};

ProcessorFeatures processor_features();

// Whether a processor with these features has every instruction that the compiler may use in the
// code of this instruction set: all of x86-64-v3 or -v4, which ops/CMakeLists.txt compiles for.
bool runs(InstructionSet set, const ProcessorFeatures& features);

}  // namespace fastact::cpu

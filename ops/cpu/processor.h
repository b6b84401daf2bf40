// The processor's features, as far as the choice of an instruction set depends on them.
#pragma once

#include <cstdint>

#include "ops/cpu/engine.h"

namespace fastact::cpu {

// Register values of CPUID that contain the features checked here. A feature that the operating
// system or a virtual machine masks counts as absent.
struct ProcessorFeatures {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;
  uint32_t extended1_ecx = 0;
  // Whether the operating system saves the AVX and AVX-512 registers.
  bool has_avx_state = false;
  bool has_avx512_state = false;
};

ProcessorFeatures processor_features();

// Returns true if a processor with these features has every instruction that the compiler may use
// for this instruction set: all of x86-64-v3 or -v4, which ops/CMakeLists.txt compiles for.
bool runs(InstructionSet set, const ProcessorFeatures& features);

}  // namespace fastact::cpu

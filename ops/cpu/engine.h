// The CPU engine: runs a kernel over strided operands on the calling thread, with the widest vector
// instructions that the build and the processor have in common. Every instruction set gives the
// same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ops/export.h"
#include "ops/kernel.h"

namespace fastact::cpu {

enum class InstructionSet : uint8_t { kBaseline, kAvx2, kAvx512 };

// "baseline" (on 64-bit Arm, where it is all there is, "neon"), "avx2", "avx512".
FASTACT_OPS_API std::string_view name_of(InstructionSet set);

// The instruction sets that this build has and this processor runs, slowest first; never empty.
FASTACT_OPS_API std::span<const InstructionSet> available_instruction_sets();

// The one that kernels use: the last available one, or what the environment variable
// FASTACT_CPU_ISA names. Throws std::invalid_argument, with the sentence to show, if it names none
// of the available ones.
FASTACT_OPS_API InstructionSet selected_instruction_set();

// A dense output of at least this many bytes a call, which is a thread's share, goes around the
// caches if it is none of the inputs: non-temporal stores do not read its lines first. On a Zen 5
// core, 2^25 elements, nanoseconds an element without and with: ReLU float32 0.235 and 0.180,
// bfloat16 0.117 and 0.088, ReLU's backward 0.37 and 0.28; SELU, which computes longer, float32
// 0.474 and 0.485, bfloat16 0.171 and 0.186. On two threads ReLU float32 took 0.24, and 0.15 to
// 0.21; SELU 0.28 to 0.40 without and 0.25 to 0.39 with, which is noise. From 2^22 float32 on there
// is something to gain, but a smaller output may still be in a cache when it is read.
inline constexpr int64_t kStreamedBytes = int64_t{16} << 20;

// A size0 x size1 block of elements. data[i] points to operand i's first element; strides[i] is its
// distance in bytes between neighbours along the first dimension, strides[num_operands + i] along
// the second, num_operands being the kernel's order + 2. An output may be one of the inputs,
// element for element; no other overlap is allowed.
using Kernel = void (*)(const Parameters& parameters, char* const* data, const int64_t* strides,
                        int64_t size0, int64_t size1);

// `activation` is an index into formulas().
FASTACT_OPS_API Kernel find_kernel(int activation, const KernelId& id, InstructionSet set);

}  // namespace fastact::cpu

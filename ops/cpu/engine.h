// The CPU engine: runs a kernel over strided operands on the calling thread, with the widest vector
// instructions that the build and the processor have in common. Every instruction set gives the
// same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ops/export.h"
#include "ops/floating_point.h"
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
// caches if it is none of the inputs: non-temporal stores do not read its lines first. A smaller
// output may still be in a cache when it is read.
// ReLU of 2^25 float32: 0.180 instead of 0.235 ns an element (Zen 5, docs/tuning.md).
inline constexpr int64_t kStreamedBytes = int64_t{16} << 20;

// A size0 x size1 block of elements. data[i] points to operand i's first element; strides[i] is its
// distance in bytes between neighbours along the first dimension, strides[num_operands + i] along
// the second, num_operands being the form's. An output may be one of the inputs, element for
// element; no other overlap is allowed.
using Kernel =
    InDefaultFloatingPoint<void (*)(const Parameters& parameters, char* const* data,
                                    const int64_t* strides, int64_t size0, int64_t size1)>;

// The same for n contiguous elements of each operand. Fused kernels call it, and it computes in
// their floating-point environment.
using DenseFunction = void (*)(const Parameters& parameters, char* const* data, int64_t n);

// `family` is an index into families(). Null where it has no such form.
FASTACT_OPS_API Kernel find_kernel(int family, const KernelId& id, InstructionSet set);

}  // namespace fastact::cpu

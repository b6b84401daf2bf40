// The CPU engine. It runs a kernel over strided operands on the calling thread, with the widest
// vector instructions that both the build and the processor support. All instruction sets give the
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

// Returns "baseline", "avx2" or "avx512". On 64-bit Arm the only set is "neon".
FASTACT_OPS_API std::string_view name_of(InstructionSet set);

// Returns the instruction sets that this build contains and this processor runs, slowest first. The
// span is never empty.
FASTACT_OPS_API std::span<const InstructionSet> available_instruction_sets();

// Returns the instruction set that kernels use: the last available one, or the one that the
// environment variable FASTACT_CPU_ISA names. Throws std::invalid_argument if the variable names
// none of the available ones. The exception's message is meant for the user.
FASTACT_OPS_API InstructionSet selected_instruction_set();

// A contiguous output of at least this many bytes in one call (one thread's share) is written with
// non-temporal stores, unless it is also an input. Non-temporal stores do not read the cache lines
// first. A smaller output may still be cached when it is read. ReLU of 2^25 float32: 0.180 instead
// of 0.235 ns an element (Zen 5, docs/dev/tuning.md).
inline constexpr int64_t kStreamedBytes = int64_t{16} << 20;

// Computes a size0 x size1 block of elements. data[i] points to the first element of operand i.
// strides[i] is the distance in bytes between neighbours along the first dimension,
// strides[num_operands + i] along the second; num_operands is the form's number of operands. An
// output may be the same memory as an input, element for element. No other overlap is allowed.
using Kernel =
    InDefaultFloatingPoint<void (*)(const Parameters& parameters, char* const* data,
                                    const int64_t* strides, int64_t size0, int64_t size1)>;

// Computes n contiguous elements of each operand. Fused kernels call these functions, and have
// already set the floating-point environment.
using DenseFunction = void (*)(const Parameters& parameters, char* const* data, int64_t n);

// Returns a kernel, or null if the family has no such form. `family` is an index into families().
FASTACT_OPS_API Kernel find_kernel(int family, const KernelId& id, InstructionSet set);

}  // namespace fastact::cpu

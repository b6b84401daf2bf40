// The CUDA engine: launches a kernel over operands on the current device. It never allocates, and
// synchronises only with a stream of its own at a device's first use (self_check.h), so its
// launches can be captured into a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "ops/export.h"
#include "ops/kernel.h"

namespace fastact::cuda {

// As many dimensions as a PyTorch tensor may have after its iterator has merged what can be merged.
inline constexpr int kMaxDimensions = 25;

// The operands of one launch: the form's outputs, then its inputs. An output may be one of the
// inputs, element for element; no other overlap is allowed.
struct Operands {
  void* data[kMaxOperands] = {};
  // The number of elements of an output.
  int64_t size = 0;
  // 0 if every operand is dense in the same order; otherwise shape and strides (in bytes) count,
  // fastest dimension first.
  int dimensions = 0;
  int64_t shape[kMaxDimensions] = {};
  int64_t strides[kMaxOperands][kMaxDimensions] = {};
};

// Queues the kernel on the stream; returns the launch's status and leaves no sticky error behind.
using Kernel = cudaError_t (*)(const Parameters& parameters, const Operands& operands,
                               cudaStream_t stream);

// What a kernel computes with: IEEE arithmetic, or also a GPU's approximate instructions
// (ops/math/approximate.h). The bits are the same wherever the second serves.
enum class Math : uint8_t { kIeee, kFast };

// `family` is an index into families(). Null where it has no such form. The kernels that have no
// fast form have one form.
Kernel find_kernel(int family, const KernelId& id, Math math);

// The form that serves on `device`, the current one; `stream` is where it is to be queued. Throws
// std::invalid_argument, with the sentence to show, if FASTACT_CUDA_MATH is not auto, ieee or fast.
FASTACT_OPS_API Kernel find_kernel(int family, const KernelId& id, int device, cudaStream_t stream);

// Which form serves, by device, and why; touches no device. Throws as find_kernel() does.
FASTACT_OPS_API std::string math_in_use();

// The kernels of one family.
struct KernelTables {
  KernelTable<Kernel> ieee;
  const KernelTable<Kernel>* fast;  // or null; has those that have a fast form
};

// The operands of a fused launch (ops/forms/fused.h): the output, then the inputs. Those that there
// are not have null pointers and strides of 0.
struct FusedOperands {
  void* data[kFusedOperands] = {};
  FusedSet inputs;
  // The inputs that are float where the output has 16 bits: scale, bias.
  FusedSet wide;
  // The number of elements, shape and strides in bytes, fastest dimension first: at least one
  // dimension, with every element's offset in 31 bits.
  int64_t size = 0;
  int dimensions = 0;
  int64_t shape[kMaxDimensions] = {};
  int64_t strides[kFusedOperands][kMaxDimensions] = {};
};
using FusedKernel = cudaError_t (*)(const Parameters& parameters, const FusedOperands& operands,
                                    cudaStream_t stream);

// The operands of a fused form's gradients: the incoming one, the inputs, and the inputs'
// gradients.
inline constexpr int kFusedBackwardOperands = 1 + 2 * kFusedInputs;
template <FusedInput kInput>
inline constexpr int kFusedInputOperand = 1 + static_cast<int>(kInput);
template <FusedInput kInput>
inline constexpr int kFusedGradientOperand = 1 + kFusedInputs + static_cast<int>(kInput);

// As [outer, channels, inner], of fewer than 2^31 elements: scale and bias have an element for each
// channel. The innermost dimension is dense: inner, or, where that is 1, the channels.
struct FusedBackwardOperands {
  // Null: absent, or not wanted. Without a scale self's and residual's gradients are the same: one
  // of the two. scale's and bias's gradients are partial sums, in the type in which the element
  // computes: fused_partial_sums() for each channel, as [outer, channels, blocks].
  void* data[kFusedBackwardOperands] = {};
  // The inputs that are float where the others have 16 bits: scale, bias.
  FusedSet wide;
  int64_t outer = 1;
  int64_t channels = 1;
  int64_t inner = 1;
  // In bytes, but for scale and bias.
  int64_t outer_strides[kFusedBackwardOperands] = {};
  int64_t channel_strides[kFusedBackwardOperands] = {};
};
using FusedBackwardKernel = cudaError_t (*)(const Parameters& parameters,
                                            const FusedBackwardOperands& operands,
                                            cudaStream_t stream);

// In the order of kernel.h: `rows` times `blocks` for each channel, at [row, channel, block].
struct FusedPartialSums {
  int64_t rows;
  int64_t blocks;
};
constexpr FusedPartialSums fused_partial_sums(int64_t outer, int64_t inner) {
  if (inner == 1) return {(outer + kSumRows - 1) / kSumRows, 1};
  return {outer, (inner + kSumBlock - 1) / kSumBlock};
}
// How many numbers a step of their sum leaves for each channel: of several blocks, kSumBlocks
// become one; else kSumGroups rows.
constexpr int64_t fused_sums_left(const FusedPartialSums& sums) {
  const auto parts = [](int64_t size, int64_t part) { return (size + part - 1) / part; };
  return sums.blocks > 1 ? sums.rows * parts(sums.blocks, kSumBlocks)
                         : parts(sums.rows, kSumGroups);
}
// Whether the step leaves the sums.
constexpr bool is_last_of_fused_sums(const FusedPartialSums& sums) {
  return sums.blocks == 1 && sums.rows <= kSumGroups;
}

// Such a step, for scale and bias at once. The first one is of the partial sums, another one of the
// doubles that the one before leaves, which are {its fused_sums_left(), 1}. The last one writes
// numbers of `types`, the others doubles.
struct FusedSumsOperands {
  const void* from[2] = {};  // null: there is none
  void* to[2] = {};
  DType types[2] = {DType::kFloat64, DType::kFloat64};
  bool from_doubles = false;
  FusedPartialSums sums = {1, 1};
  int64_t channels = 1;
};
FASTACT_OPS_API cudaError_t add_fused_sums(const FusedSumsOperands& operands, cudaStream_t stream);

// The kernels of one activation, by type.
struct FusedTable {
  FusedKernel kernels[kNumDTypes] = {};
  FusedBackwardKernel backward[kNumDTypes] = {};
};

struct FusedTables {
  FusedTable ieee;
  const FusedTable* fast;  // as that of KernelTables
};

// For a launch on `device`, the current one, and `stream`, as find_kernel().
FASTACT_OPS_API FusedKernel find_fused_kernel(int activation, DType dtype, int device,
                                              cudaStream_t stream);
FASTACT_OPS_API FusedBackwardKernel find_fused_backward_kernel(int activation, DType dtype,
                                                               int device, cudaStream_t stream);

// The architectures that this build has code for, as in "8.0, 9.0, 12.0 and PTX for newer ones".
FASTACT_OPS_API std::string architectures();

// One sentence for a failed launch: what was expected, what was found.
FASTACT_OPS_API std::string describe_failure(cudaError_t error);

}  // namespace fastact::cuda

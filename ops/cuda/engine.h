// The CUDA engine. It launches a kernel over operands on the current device. It never allocates
// memory. It synchronises only with its own stream, at the first use of a device (self_check.h). So
// its launches can be captured into a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "ops/export.h"
#include "ops/kernel.h"

namespace fastact::cuda {

// The maximum number of dimensions of a PyTorch tensor after its iterator has merged dimensions.
inline constexpr int kMaxDimensions = 25;

// The operands of one launch: the outputs of the form, then its inputs. An output may be the same
// memory as an input, element for element. No other overlap is allowed.
struct Operands {
  void* data[kMaxOperands] = {};
  // The number of elements of an output.
  int64_t size = 0;
  // 0 if every operand is dense in the same order. Otherwise `shape` and `strides` (in bytes) are
  // used, fastest dimension first.
  int dimensions = 0;
  int64_t shape[kMaxDimensions] = {};
  int64_t strides[kMaxOperands][kMaxDimensions] = {};
};

// Queues the kernel on the stream. Returns the status of the launch and leaves no sticky error.
using Kernel = cudaError_t (*)(const Parameters& parameters, const Operands& operands,
                               cudaStream_t stream);

// The arithmetic of a kernel: IEEE arithmetic, or also a GPU's approximate instructions
// (ops/math/approximate.h). The bits are the same wherever the second is used.
enum class Math : uint8_t { kIeee, kFast };

// Returns a kernel, or null if the family has no such form. `family` is an index into families(). A
// kernel without a fast form ignores `math`.
Kernel find_kernel(int family, const KernelId& id, Math math);

// Returns the kernel to use on `device`, which is the current one. `stream` is the stream of the
// launch. Throws std::invalid_argument, with a message for the user, if FASTACT_CUDA_MATH is not
// auto, ieee or fast.
FASTACT_OPS_API Kernel find_kernel(int family, const KernelId& id, int device, cudaStream_t stream);

// Returns the arithmetic used on each device, and why. Touches no device. Throws like
// find_kernel().
FASTACT_OPS_API std::string math_in_use();

// The kernels of one family.
struct KernelTables {
  KernelTable<Kernel> ieee;
  const KernelTable<Kernel>* fast;  // or null; contains the kernels that have a fast form
};

// The operands of a fused launch (ops/forms/fused.h): the result, then the inputs. Absent operands
// are null and have strides of 0.
struct FusedOperands {
  void* data[kFusedOperands] = {};
  // The second output, z = self * scale + bias + residual, with the strides of the result. Null:
  // not wanted.
  void* preactivation = nullptr;
  FusedSet inputs;
  // The inputs (scale, bias) that are float while the result has a 16-bit type.
  FusedSet float32;
  // The number of elements, and the shape and strides in bytes, fastest dimension first. There is
  // at least one dimension, and the offset of every element fits into 31 bits.
  int64_t size = 0;
  int dimensions = 0;
  int64_t shape[kMaxDimensions] = {};
  int64_t strides[kFusedOperands][kMaxDimensions] = {};
};
using FusedKernel = cudaError_t (*)(const Parameters& parameters, const FusedOperands& operands,
                                    cudaStream_t stream);

// The operands of a fused form's gradients: the incoming gradient, the inputs, and the gradients of
// the inputs.
inline constexpr int kFusedBackwardOperands = 1 + 2 * kFusedInputs;
template <FusedInput kInput>
inline constexpr int kFusedInputOperand = 1 + static_cast<int>(kInput);
template <FusedInput kInput>
inline constexpr int kFusedGradientOperand = 1 + kFusedInputs + static_cast<int>(kInput);

// The operands as [outer, channels, inner], with fewer than 2^31 elements. Scale and bias have one
// element for each channel. The innermost dimension is contiguous: `inner`, or the channels if
// `inner` is 1.
struct FusedBackwardOperands {
  // Null: absent, or not wanted. Without a scale, self and residual have the same gradient, and at
  // most one of the two is set. The gradients of scale and bias are partial sums in the type in
  // which the element computes: fused_partial_sums() for each channel, as [outer, channels,
  // blocks].
  void* data[kFusedBackwardOperands] = {};
  // The inputs (scale, bias) that are float while the others have a 16-bit type.
  FusedSet float32;
  int64_t outer = 1;
  int64_t channels = 1;
  int64_t inner = 1;
  // In bytes. Unused for scale and bias.
  int64_t outer_strides[kFusedBackwardOperands] = {};
  int64_t channel_strides[kFusedBackwardOperands] = {};
};
using FusedBackwardKernel = cudaError_t (*)(const Parameters& parameters,
                                            const FusedBackwardOperands& operands,
                                            cudaStream_t stream);

// The partial sums in the order of kernel.h: `rows` times `blocks` for each channel, at [row,
// channel, block].
struct FusedPartialSums {
  int64_t rows;
  int64_t blocks;
};
constexpr FusedPartialSums fused_partial_sums(int64_t outer, int64_t inner) {
  if (inner == 1) return {(outer + kSumRows - 1) / kSumRows, 1};
  return {outer, (inner + kSumBlock - 1) / kSumBlock};
}
// Returns how many sums one step leaves for each channel. With several blocks, kSumBlocks of them
// become one; otherwise kSumGroups rows become one.
constexpr int64_t fused_sums_left(const FusedPartialSums& sums) {
  const auto parts = [](int64_t size, int64_t part) { return (size + part - 1) / part; };
  return sums.blocks > 1 ? sums.rows * parts(sums.blocks, kSumBlocks)
                         : parts(sums.rows, kSumGroups);
}
// Returns true if the step completes the sums.
constexpr bool is_last_of_fused_sums(const FusedPartialSums& sums) {
  return sums.blocks == 1 && sums.rows <= kSumGroups;
}

// One such step, for scale and bias at once. The first step reads the partial sums. Each later step
// reads the doubles that the previous step left, which are {its fused_sums_left(), 1}. The last
// step writes elements of `types`; the others write doubles.
struct FusedSumsOperands {
  const void* from[2] = {};  // null: absent
  void* to[2] = {};
  DType types[2] = {DType::kFloat64, DType::kFloat64};
  bool from_doubles = false;
  FusedPartialSums sums = {1, 1};
  int64_t channels = 1;
};
FASTACT_OPS_API cudaError_t add_fused_sums(const FusedSumsOperands& operands, cudaStream_t stream);

// The fused kernels of one activation, by type.
struct FusedTable {
  FusedKernel kernels[kNumDTypes] = {};
  FusedBackwardKernel backward[kNumDTypes] = {};
};

struct FusedTables {
  FusedTable ieee;
  const FusedTable* fast;  // like that of KernelTables
};

// Return the kernel for a launch on `device`, the current one, and `stream`, like find_kernel().
FASTACT_OPS_API FusedKernel find_fused_kernel(int activation, DType dtype, int device,
                                              cudaStream_t stream);
FASTACT_OPS_API FusedBackwardKernel find_fused_backward_kernel(int activation, DType dtype,
                                                               int device, cudaStream_t stream);

// Returns the architectures that this build contains code for, as in "8.0, 9.0, 12.0 and PTX for
// newer ones".
FASTACT_OPS_API std::string architectures();

// Returns one sentence for a failed launch: what was expected and what was found.
FASTACT_OPS_API std::string describe_failure(cudaError_t error);

}  // namespace fastact::cuda

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

// The kernels of one activation, by type.
struct FusedTable {
  FusedKernel kernels[kNumDTypes] = {};
};

FASTACT_OPS_API FusedKernel find_fused_kernel(int activation, DType dtype);

// The architectures that this build has code for, as in "8.0, 9.0, 12.0 and PTX for newer ones".
FASTACT_OPS_API std::string architectures();

// One sentence for a failed launch: what was expected, what was found.
FASTACT_OPS_API std::string describe_failure(cudaError_t error);

}  // namespace fastact::cuda

// The CUDA engine: launches a kernel over operands on the current device. It never synchronises or
// allocates, so its launches can be captured into a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "ops/kernel.h"

namespace fastact::cuda {

// As many dimensions as a PyTorch tensor may have after its iterator has merged what can be merged.
inline constexpr int kMaxDimensions = 25;

// The operands of one launch: the output, the gradients, x. An output may be one of the inputs,
// element for element; no other overlap is allowed.
struct Operands {
  void* data[kMaxOperands] = {};
  // The number of elements of the output.
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

// `activation` is an index into formulas().
Kernel find_kernel(int activation, const KernelId& id);

// The architectures that this build has code for, as in "8.0, 9.0, 12.0 and PTX for newer ones".
std::string architectures();

// One sentence for a failed launch: what was expected, what was found.
std::string describe_failure(cudaError_t error);

}  // namespace fastact::cuda

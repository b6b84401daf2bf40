// SELU with alpha dropout on the GPU (ops/forms/alpha_dropout.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/export.h"
#include "ops/kernel.h"

namespace fastact::cuda {

// Queues the kernel over n elements of contiguous operands. `data` points to the output and the
// inputs. `seed` is in device memory, so that each replay of a CUDA graph draws a new one. Returns
// the status of the launch.
FASTACT_OPS_API cudaError_t run_alpha_dropout(AlphaDropoutForm form, DType dtype, double p,
                                              const int64_t* seed, void* const* data, int64_t n,
                                              cudaStream_t stream);

}  // namespace fastact::cuda

// SELU with alpha dropout on the GPU (ops/forms/alpha_dropout.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/export.h"
#include "ops/kernel.h"

namespace fastact::cuda {

// Queues it over n elements of operands that lie densely: `data` are the output and the inputs.
// `seed` lies in the device's memory, so that a CUDA graph draws a new one at each replay. Returns
// the launch's status.
FASTACT_OPS_API cudaError_t run_alpha_dropout(AlphaDropoutForm form, DType dtype, double p,
                                              const int64_t* seed, void* const* data, int64_t n,
                                              cudaStream_t stream);

}  // namespace fastact::cuda

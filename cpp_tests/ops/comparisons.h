// Comparisons for the tests of a device's self-check, some of which find a planted difference.
#pragma once

#include "ops/cuda/self_check.h"

namespace fastact::testing {

// refined_reciprocal() for every d of its contract, 0.5 to 2^60.
cudaError_t compare_every_reciprocal(cudaStream_t stream, cuda::Findings& findings);

// rcp.approx without its Newton step in the place of refined_reciprocal(), for 1 to 2.
cudaError_t compare_unrefined_reciprocals(cudaStream_t stream, cuda::Findings& findings);

// ReLU, with an approximate value that is wrong in the last bit of one element, as the first
// activation's in bfloat16.
cudaError_t compare_with_one_wrong_bit(cudaStream_t stream, cuda::Findings& findings);

}  // namespace fastact::testing

// The forms of forms.h as kernels of the CUDA engine.
#pragma once

#include "ops/cuda/engine.h"

namespace fastact::testing {

extern const cuda::Kernel kSumAndProduct;
extern const cuda::Kernel kWideDifference;

}  // namespace fastact::testing

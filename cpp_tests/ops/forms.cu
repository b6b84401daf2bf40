#include "cpp_tests/ops/forms.h"
#include "cpp_tests/ops/forms_cuda.h"
#include "ops/cuda/launch.cuh"

namespace fastact::testing {

const cuda::Kernel kSumAndProduct = &cuda::Launch<SumAndProduct>::run;
const cuda::Kernel kWideDifference = &cuda::Launch<WideDifference>::run;

}  // namespace fastact::testing

#include "ops/cuda/engine.h"

#include "ops/catalogue.h"

namespace fastact::cuda {

#define FASTACT_DECLARE_TABLE(name, Formula, parameters) \
  extern const KernelTable<Kernel> name##_cuda;
FASTACT_FORMULAS(FASTACT_DECLARE_TABLE)
#undef FASTACT_DECLARE_TABLE

Kernel find_kernel(int activation, const KernelId& id) {
#define FASTACT_TABLE_OF(name, Formula, parameters) &name##_cuda,
  static constexpr const KernelTable<Kernel>* kTables[] = {FASTACT_FORMULAS(FASTACT_TABLE_OF)};
#undef FASTACT_TABLE_OF
  return (*kTables[activation])[id];
}

std::string architectures() { return FASTACT_CUDA_ARCHITECTURES; }

std::string describe_failure(cudaError_t error) {
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion) {
    int device = 0;
    cudaDeviceProp properties = {};
    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaGetDeviceProperties(&properties, device) == cudaSuccess) {
      return "expected a GPU that this build has code for (compute capability " + architectures() +
             "), but got " + properties.name + " (compute capability " +
             std::to_string(properties.major) + "." + std::to_string(properties.minor) + ")";
    }
  }
  return "expected the kernel launch to succeed, but got " + std::string(cudaGetErrorName(error)) +
         ": " + cudaGetErrorString(error);
}

}  // namespace fastact::cuda

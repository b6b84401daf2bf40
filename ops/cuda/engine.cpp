#include "ops/cuda/engine.h"

#include <cstdlib>

#include "ops/catalogue.h"
#include "ops/cuda/rows.h"
#include "ops/cuda/self_check.h"

namespace fastact::cuda {

#define FASTACT_DECLARE_TABLES(name, Type) extern const KernelTables name##_cuda;
FASTACT_FAMILIES(FASTACT_DECLARE_TABLES)
#undef FASTACT_DECLARE_TABLES

#define FASTACT_DECLARE_FUSED_TABLE(name, Type) extern const FusedTables name##_fused_cuda;
FASTACT_ACTIVATIONS(FASTACT_DECLARE_FUSED_TABLE)
#undef FASTACT_DECLARE_FUSED_TABLE

#define FASTACT_DECLARE_ROW_TABLE(name, Type) extern const KernelTable<RowKernel> name##_rows_cuda;
FASTACT_ROW_FORMS(FASTACT_DECLARE_ROW_TABLE)
#undef FASTACT_DECLARE_ROW_TABLE

namespace {

const KernelTables& tables_of(int family) {
#define FASTACT_TABLES_OF(name, Type) &name##_cuda,
  static constexpr const KernelTables* kTables[] = {FASTACT_FAMILIES(FASTACT_TABLES_OF)};
#undef FASTACT_TABLES_OF
  return *kTables[family];
}

const FusedTables& fused_tables_of(int activation) {
#define FASTACT_FUSED_TABLES_OF(name, Type) &name##_fused_cuda,
  static constexpr const FusedTables* kTables[] = {FASTACT_ACTIVATIONS(FASTACT_FUSED_TABLES_OF)};
#undef FASTACT_FUSED_TABLES_OF
  return *kTables[activation];
}

SelfCheck& self_check() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read once, at first use
  static SelfCheck check(&compare_all, parse_math(std::getenv("FASTACT_CUDA_MATH")));
  return check;
}

template <class Function>
Function find_fused(Function (FusedTable::*kernels)[kNumDTypes], int activation, DType dtype,
                    int device, cudaStream_t stream) {
  const FusedTables& tables = fused_tables_of(activation);
  const int i = static_cast<int>(dtype);
  const Function fast = tables.fast != nullptr ? (tables.fast->*kernels)[i] : nullptr;
  if (fast != nullptr && self_check().reciprocals_serve(device, stream)) return fast;
  return (tables.ieee.*kernels)[i];
}

}  // namespace

Kernel find_kernel(int family, const KernelId& id, Math math) {
  const KernelTables& tables = tables_of(family);
  const Kernel fast = math == Math::kFast && tables.fast != nullptr ? (*tables.fast)[id] : nullptr;
  return fast != nullptr ? fast : tables.ieee[id];
}

Kernel find_kernel(int family, const KernelId& id, int device, cudaStream_t stream) {
  SelfCheck& check = self_check();
  const KernelTables& tables = tables_of(family);
  const Kernel fast = tables.fast != nullptr ? (*tables.fast)[id] : nullptr;
  if (fast != nullptr && check.fast_serves(family, id, device, stream)) return fast;
  return tables.ieee[id];
}

FusedKernel find_fused_kernel(int activation, DType dtype, int device, cudaStream_t stream) {
  return find_fused(&FusedTable::kernels, activation, dtype, device, stream);
}

FusedBackwardKernel find_fused_backward_kernel(int activation, DType dtype, int device,
                                               cudaStream_t stream) {
  return find_fused(&FusedTable::backward, activation, dtype, device, stream);
}

RowKernel find_row_kernel(int family, const KernelId& id) {
#define FASTACT_ROW_TABLE_OF(name, Type) &name##_rows_cuda,
  // The last one is null, because a build may have no row forms.
  static constexpr const KernelTable<RowKernel>* kTables[] = {
      FASTACT_ROW_FORMS(FASTACT_ROW_TABLE_OF) nullptr};
#undef FASTACT_ROW_TABLE_OF
  return (*kTables[family])[id];
}

std::string math_in_use() { return self_check().describe(); }

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

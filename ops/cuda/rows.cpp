#include "ops/cuda/rows.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

namespace fastact::cuda {
namespace {

bool are_clusters_allowed() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read once, at first use
  const char* const setting = std::getenv("FASTACT_CUDA_CLUSTERS");
  return setting == nullptr || std::string_view(setting) != "off";
}

bool find_clusters(const void* kernel, int device) {
  int has = 0;
  cudaFuncAttributes attributes{};
  if (cudaDeviceGetAttribute(&has, cudaDevAttrClusterLaunch, device) != cudaSuccess || has == 0)
    return false;
  // The version of the PTX from which the code was compiled, such as 90.
  return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90;
}

}  // namespace

bool has_clusters(const void* kernel) {
  static const bool kAreAllowed = are_clusters_allowed();
  int device = 0;
  if (!kAreAllowed || cudaGetDevice(&device) != cudaSuccess) return false;
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, bool> known;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace({kernel, device}, false);
  if (is_new) entry->second = find_clusters(kernel, device);
  return entry->second;
}

}  // namespace fastact::cuda

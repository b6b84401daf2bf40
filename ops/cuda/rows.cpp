#include "ops/cuda/rows.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "ops/printable.h"

namespace fastact::cuda {
namespace {

bool find_clusters(const void* kernel, int device) {
  int has = 0;
  cudaFuncAttributes attributes{};
  if (cudaDeviceGetAttribute(&has, cudaDevAttrClusterLaunch, device) != cudaSuccess || has == 0)
    return false;
  // The version of the PTX from which the code was compiled, such as 90.
  return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90;
}

}  // namespace

bool parse_clusters(const char* name) {
  const std::string_view wanted = name == nullptr ? "" : name;
  if (wanted.empty() || wanted == "auto") return true;
  if (wanted == "off") return false;
  throw std::invalid_argument(
      "fastact: expected FASTACT_CUDA_CLUSTERS to be auto or off, but got " + printable(wanted));
}

bool has_clusters(const void* kernel) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read once, at first use
  static const bool kAreAllowed = parse_clusters(std::getenv("FASTACT_CUDA_CLUSTERS"));
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

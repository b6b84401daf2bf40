#include "registration/conversion.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "ops/floating_point.h"
#include "registration/kernels/parallel.h"

namespace fastact {
namespace {

// True if torch would use several threads. A fake tensor has no memory on the CPU, and a wrapper of
// another tensor has none of its own.
bool is_large_on_cpu(const at::Tensor& tensor) {
  static constexpr c10::DispatchKeySet kWrapped(
      {c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
       c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return !tensor.key_set().has_any(kWrapped) && tensor.has_storage() &&
         tensor.storage().device_type() == c10::DeviceType::CPU &&
         tensor.numel() > at::internal::GRAIN_SIZE && at::get_num_threads() > 1 &&
         !at::in_parallel_region();
}

}  // namespace

at::Tensor converted(const at::Tensor& tensor, c10::ScalarType type) {
  if (tensor.scalar_type() == type) return tensor;
  if (!is_large_on_cpu(tensor)) {
    const DefaultFloatingPoint environment;
    return tensor.to(type);
  }
  at::Tensor result = at::empty_like(tensor, tensor.options().dtype(type));
  copy_converted(tensor, result);
  return result;
}

void copy_converted(const at::Tensor& from, const at::Tensor& to) {
  if (!is_large_on_cpu(from) || !is_large_on_cpu(to)) {
    const DefaultFloatingPoint environment;
    to.copy_(from);
    return;
  }
  const c10::IntArrayRef sizes = to.sizes();
  const auto* const longest = std::max_element(sizes.begin(), sizes.end());
  const int64_t dim = longest - sizes.begin();
  const int64_t each = std::max<int64_t>(1, *longest * at::internal::GRAIN_SIZE / to.numel());
  in_parallel((*longest + each - 1) / each, each * (to.numel() / *longest), [&](int64_t part) {
    const at::AutoDispatchBelowADInplaceOrView guard;  // a thread of the pool has no guards
    const DefaultFloatingPoint environment;
    const int64_t start = part * each;
    const int64_t size = std::min(each, *longest - start);
    to.narrow(dim, start, size).copy_(from.narrow(dim, start, size));
  });
}

}  // namespace fastact

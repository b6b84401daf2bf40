// The dispatch keys AutocastCPU and AutocastCUDA: the operators that stand on ATen's lists, with
// the policies that they have there. All others fall through.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <string_view>

#include "fastact/fastact.h"
#include "registration/signatures.h"

namespace fastact {
namespace {

// ATen's list for CUDA, as it is in the torch that this is built for. The CPU's names no
// activation.
#define FASTACT_NAME(op, ...) #op,
constexpr std::string_view kInFloat32[] = {AT_FORALL_FP32(FASTACT_NAME)};
#undef FASTACT_NAME

// Functional forms alone, as on ATen's list: their gradients are those of the float32 call.
at::Tensor in_float32(const Family& family, const at::Tensor& self,
                      const CallParameters& parameters) {
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastCUDA);
  const at::Tensor converted = at::autocast::cached_cast(at::kFloat, self, c10::DeviceType::CUDA);
  const at::Tensor* tensors[] = {&converted};
  return family.call(0, tensors, parameters);
}

template <class... P>
auto float32_kernel(const Family& family, Types<P...> /*parameters*/) {
  return [&family](const at::Tensor& self, P... parameters) {
    return in_float32(family, self, collect(parameters...));
  };
}

template <c10::DeviceType Device>
using LowerPrecision =
    at::autocast::WrapFunction<at::autocast::CastPolicy::lower_precision_fp, Device,
                               at::Tensor(const at::Tensor&, const at::Tensor&),
                               at::Tensor(const at::Tensor&, const at::Tensor&), &prelu>;

}  // namespace

TORCH_LIBRARY_IMPL(fastact, AutocastCPU, library) {
  if (!families().empty()) library.impl("prelu", &LowerPrecision<c10::DeviceType::CPU>::type::call);
}

TORCH_LIBRARY_IMPL(fastact, AutocastCUDA, library) {
  if (families().empty()) return;
  library.impl("prelu", &LowerPrecision<c10::DeviceType::CUDA>::type::call);
  for (const Family* family : families()) {
    const Activation& activation = family->activation();
    if (std::ranges::find(kInFloat32, activation.name) == std::end(kInFloat32)) continue;
    with_types(activation, [&]<class Forward, class Derivative>(Forward forward, Derivative) {
      library.impl(std::string(activation.name).c_str(), float32_kernel(*family, forward));
    });
  }
}

}  // namespace fastact

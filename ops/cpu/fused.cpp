#include "ops/cpu/fused.h"

#include <cstdint>
#include <type_traits>

#include "ops/cpu/fused_backward.h"
#include "ops/cpu/fused_forward.h"

namespace fastact::cpu::inline FASTACT_TARGET {
namespace {

template <class Element>
void add_sums(double* sums, int64_t groups, int64_t channels, void* elements) {
  for (; groups > 1; groups = (groups + kSumGroups - 1) / kSumGroups) {
    const double* from = sums;
    for (int64_t group = 0; group < groups; ++group, from += channels) {
      double* const to = sums + group / kSumGroups * channels;
      if (group % kSumGroups == 0) {
        for (int64_t channel = 0; channel < channels; ++channel) to[channel] = from[channel];
      } else {
        for (int64_t channel = 0; channel < channels; ++channel) to[channel] += from[channel];
      }
    }
  }
  auto* const to = static_cast<Element*>(elements);
  using Narrow = std::conditional_t<kIs16Bit<Element>, float, double>;
  for (int64_t i = 0; i < channels; ++i) to[i] = round_to<Element>(static_cast<Narrow>(sums[i]));
}

template <class Element>
constexpr FusedKernels kKernels = {&Forward<Element>::run, &Backward<Element>::run,
                                   &add_sums<Element>};

}  // namespace

FusedKernels fused_kernels(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return kKernels<float>;
    case DType::kFloat64:
      return kKernels<double>;
    case DType::kBFloat16:
      return kKernels<BFloat16>;
    case DType::kFloat16:
      return kKernels<Float16>;
  }
  return {};
}

}  // namespace fastact::cpu::inline FASTACT_TARGET

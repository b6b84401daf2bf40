// The dispatch keys AutocastCPU and AutocastCUDA. Operators that are on ATen's lists get the
// policies of these lists. All others fall through.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "fastact/fastact.h"
#include "registration/composites/cross_entropy.h"
#include "registration/composites/norms.h"
#include "registration/operators/implement.h"

namespace fastact {
namespace {

// ATen's list for CUDA in the torch version of this build. The list for CPU contains no activation.
#define FASTACT_NAME(op, ...) #op,
constexpr std::string_view kInFloat32[] = {AT_FORALL_FP32(FASTACT_NAME)};
#undef FASTACT_NAME

// Only functional forms, as on ATen's list: their gradients are those of the float32 call.
struct InFloat32 {
  static bool serves(const Operator& op) {
    return op.is_value && std::ranges::find(kInFloat32, op.name) != std::end(kInFloat32);
  }

  static at::Tensor functional(c10::DispatchKeySet /*keys*/, const Operator& op,
                               TensorPointers tensors, const CallParameters& parameters) {
    const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastCUDA);
    at::Tensor converted[kMaxInputs];
    const at::Tensor* pointers[kMaxInputs];
    for (int i = 0; i < op.num_inputs(); ++i) {
      converted[i] = at::autocast::cached_cast(at::kFloat, *tensors[i], c10::DeviceType::CUDA);
      pointers[i] = &converted[i];
    }
    return op.call(pointers, parameters);
  }
};

template <c10::DeviceType Device>
using LowerPrecision =
    at::autocast::WrapFunction<at::autocast::CastPolicy::lower_precision_fp, Device,
                               at::Tensor(const at::Tensor&, const at::Tensor&),
                               at::Tensor(const at::Tensor&, const at::Tensor&), &prelu>;

// Set dtype to float32 if the call has none.
using RowsFunction = at::Tensor(const at::Tensor&, int64_t, std::optional<at::ScalarType>);
template <RowsFunction* Function>
using InFloat32Rows =
    at::autocast::WrapFunction<at::autocast::CastPolicy::fp32_set_opt_dtype, c10::DeviceType::CUDA,
                               RowsFunction, RowsFunction, Function>;

using SumFunction = at::Tensor(const at::Tensor&, at::OptionalIntArrayRef, bool,
                               std::optional<at::ScalarType>);
using InFloat32Sum =
    at::autocast::WrapFunction<at::autocast::CastPolicy::fp32_set_opt_dtype, c10::DeviceType::CUDA,
                               SumFunction, SumFunction, &sum>;

// Converts all floating-point tensors to float32.
template <auto* Function, c10::DeviceType Device = c10::DeviceType::CUDA>
using InFloat32All =
    at::autocast::WrapFunction<at::autocast::CastPolicy::fp32, Device,
                               std::remove_pointer_t<decltype(Function)>,
                               std::remove_pointer_t<decltype(Function)>, Function>;

// The sum keeps the type of input, as PyTorch's addition does. The norm follows its own policy.
std::tuple<at::Tensor, at::Tensor> add_rms_norm_in_autocast(const at::Tensor& input,
                                                            const at::Tensor& residual,
                                                            c10::SymIntArrayRef shape,
                                                            const std::optional<at::Tensor>& weight,
                                                            std::optional<double> eps) {
  const at::Tensor sum = checked_sum("add_rms_norm", input, residual);
  return {fastact::rms_norm_symint(sum, shape, weight, eps), sum};
}
std::tuple<at::Tensor, at::Tensor> add_layer_norm_in_autocast(
    const at::Tensor& input, const at::Tensor& residual, c10::SymIntArrayRef shape,
    const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias, double eps) {
  const at::Tensor sum = checked_sum("add_layer_norm", input, residual);
  return {fastact::layer_norm_symint(sum, shape, weight, bias, eps), sum};
}

}  // namespace

TORCH_LIBRARY_IMPL(fastact, AutocastCPU, library) {
  if (operators().empty()) return;
  library.impl("prelu", &LowerPrecision<c10::DeviceType::CPU>::type::call);
  if (row_families().empty()) return;
  library.impl("cross_entropy",
               &InFloat32All<&cross_entropy_symint, c10::DeviceType::CPU>::type::call);
}

TORCH_LIBRARY_IMPL(fastact, AutocastCUDA, library) {
  if (operators().empty()) return;
  library.impl("prelu", &LowerPrecision<c10::DeviceType::CUDA>::type::call);
  implement<InFloat32>(library, c10::DispatchKey::AutocastCUDA);
  if (row_families().empty()) return;
  library.impl("softmax", &InFloat32Rows<&softmax>::type::call);
  library.impl("log_softmax", &InFloat32Rows<&log_softmax>::type::call);
  library.impl("logsumexp", &InFloat32All<&logsumexp>::type::call);
  library.impl("sum", &InFloat32Sum::type::call);
  library.impl("cross_entropy", &InFloat32All<&cross_entropy_symint>::type::call);
  library.impl("rms_norm", &InFloat32All<&rms_norm_symint>::type::call);
  library.impl("layer_norm", &InFloat32All<&layer_norm_symint>::type::call);
  library.impl("group_norm", &InFloat32All<&group_norm>::type::call);
  library.impl("add_rms_norm", &add_rms_norm_in_autocast);
  library.impl("add_layer_norm", &add_layer_norm_in_autocast);
}

}  // namespace fastact

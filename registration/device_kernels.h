// A device's kernels without the dispatcher, and operators by name: for callers that know the
// device, such as libfastact_aten.so.
#pragma once

#include <string_view>

#include "fastact/export.h"
#include "registration/build_config.h"
#include "registration/operators/operator.h"

namespace fastact {

// The kernels of a dispatch key, for every operator that has the form. `keys` is ignored.
struct DeviceKernels {
  at::Tensor (*functional)(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                           const CallParameters& parameters);
  void (*several)(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                  const CallParameters& parameters, at::Tensor* results);
  at::Tensor& (*in_place)(c10::DispatchKeySet keys, const Operator& op, at::Tensor& self,
                          const CallParameters& parameters);
  at::Tensor& (*out)(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                     const CallParameters& parameters, at::Tensor& out);
};

template <class Implementation>
inline constexpr DeviceKernels kKernelsOf = {&Implementation::functional, &Implementation::several,
                                             &Implementation::in_place, &Implementation::out};

FASTACT_API const DeviceKernels& cpu_kernels();
// Defined only if the library is built with CUDA.
FASTACT_API const DeviceKernels& cuda_kernels();

// Returns the kernels of this dispatch key, or null if it is not the key of a device.
inline const DeviceKernels* device_kernels(c10::DispatchKey key) {
  if (key == c10::DispatchKey::CPU) return &cpu_kernels();
#if FASTACT_CUDA
  if (key == c10::DispatchKey::CUDA) return &cuda_kernels();
#endif
  return nullptr;
}

// Call the operator from the highest of these keys on, or from the top if `keys` is null. If that
// is the key of a device, its kernel is called without the dispatcher.
inline at::Tensor functional_below(const c10::DispatchKeySet* keys, const Operator& op,
                                   TensorPointers tensors, const CallParameters& parameters) {
  const auto* device = keys == nullptr ? nullptr : device_kernels(keys->highestPriorityTypeId());
  return device == nullptr ? op.functional(keys, tensors, parameters)
                           : device->functional(*keys, op, tensors, parameters);
}
inline void several_below(const c10::DispatchKeySet* keys, const Operator& op,
                          TensorPointers tensors, const CallParameters& parameters,
                          at::Tensor* results) {
  const auto* device = keys == nullptr ? nullptr : device_kernels(keys->highestPriorityTypeId());
  if (device == nullptr) return op.several(keys, tensors, parameters, results);
  device->several(*keys, op, tensors, parameters, results);
}

// Returns the operator with this name, or null. Null means that torch is not the version that the
// library was built for, or that the build contains only some activations.
FASTACT_API const Operator* find_operator(std::string_view name);

}  // namespace fastact

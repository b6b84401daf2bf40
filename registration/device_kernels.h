// What libfastact_aten.so calls of libfastact.so: an operator by its name, and a device's kernels
// without the dispatcher in between.
#pragma once

#include <string_view>

#include "fastact/export.h"
#include "registration/operators/operator.h"

namespace fastact {

// The kernels of a dispatch key, for every operator that has the form. Keys are not looked at.
struct DeviceKernels {
  at::Tensor (*functional)(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                           const CallParameters& parameters);
  at::Tensor& (*in_place)(c10::DispatchKeySet keys, const Operator& op, at::Tensor& self,
                          const CallParameters& parameters);
  at::Tensor& (*out)(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                     const CallParameters& parameters, at::Tensor& out);
};

template <class Implementation>
inline constexpr DeviceKernels kKernelsOf = {&Implementation::functional, &Implementation::in_place,
                                             &Implementation::out};

FASTACT_API const DeviceKernels& cpu_kernels();
// Only where the library is built with CUDA.
FASTACT_API const DeviceKernels& cuda_kernels();

// Null if there is none of that name: another torch than the library was built for, or a build of
// some activations.
FASTACT_API const Operator* find_operator(std::string_view name);

}  // namespace fastact

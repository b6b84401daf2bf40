// The dispatch key CUDA of ATen's operators.
#include <ATen/CUDAFunctions.h>
#include <ATen/ops/celu_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/empty.h>

#include "registration/aten/kernels.h"

namespace fastact::aten {
namespace {

// On a GPU, ATen's backward pass reads nothing from the forward pass, so the buffer is empty.
struct CudaLogSigmoid : KernelBase {
  std::tuple<at::Tensor, at::Tensor> operator()(const at::Tensor& self) const {
    const Call call(stand_in, self);
    if (!call.is_taken()) return at::cuda::log_sigmoid_forward(self);
    return {device.functional(stand_in, call), at::empty({0}, self.options())};
  }
};

struct CudaLogSigmoidOut : KernelBase {
  std::tuple<at::Tensor&, at::Tensor&> operator()(const at::Tensor& self, at::Tensor& output,
                                                  at::Tensor& buffer) const {
    const Call call(stand_in, self);
    if (!call.is_taken(output)) return at::cuda::log_sigmoid_forward_outf(self, output, buffer);
    device.out(call, output);
    return {output, buffer};
  }
};

void add_cuda(torch::Library& library) {
  Registrar registrar(library, c10::DispatchKey::CUDA, cuda_kernels());
  FASTACT_REGISTER_ATEN_OPERATORS(at::cuda)
  registrar.add_log_sigmoid<CudaLogSigmoid, CudaLogSigmoidOut>();
  registrar.add_prelu<&at::cuda::_prelu_kernel, &at::cuda::_prelu_kernel_backward>();
  registrar.add_norms<&at::cuda::native_layer_norm_symint, &at::cuda::native_group_norm_symint>();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) { register_quietly(library, &add_cuda); }

}  // namespace fastact::aten

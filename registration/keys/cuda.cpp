// The dispatch key CUDA.
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <stdexcept>

#include "ops/cuda/engine.h"
#include "registration/device_kernels.h"
#include "registration/keys/pointwise.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

struct Cuda {
  static at::Tensor empty(const at::Tensor& like, c10::MemoryFormat format) {
    return at::detail::empty_cuda(like.sizes(), like.scalar_type(), like.device(), format);
  }

  static at::Tensor empty_strided(const at::Tensor& like) {
    return at::detail::empty_strided_cuda(like.sizes(), like.strides(), like.scalar_type(),
                                          like.device());
  }

  static bool converts_first(const at::Tensor& /*self*/) { return false; }

  static void run_dense(const Operator& op, const KernelId& id, const CallParameters& parameters,
                        const at::Tensor& out, TensorPointers tensors) {
    cuda::Operands operands;
    operands.size = out.numel();
    operands.data[0] = out.data_ptr();
    for (int i = 0; i < op.num_inputs(); ++i)
      operands.data[i + 1] = const_cast<void*>(tensors[i]->const_data_ptr());
    launch(op, id, parameters, operands, out.device());
  }

  static void run(const Operator& op, const KernelId& id, const CallParameters& parameters,
                  at::TensorIteratorBase& iterator) {
    cuda::Operands operands;
    operands.size = iterator.numel();
    const auto position = [&](int operand) { return iterator_operand(op, operand); };
    for (int i = 0; i < iterator.ntensors(); ++i) operands.data[i] = iterator.data_ptr(position(i));
    if (!iterator.is_contiguous()) {
      operands.dimensions = iterator.ndim();
      TORCH_CHECK(operands.dimensions <= cuda::kMaxDimensions, "fastact::", op.name,
                  ": expected tensors of at most ", cuda::kMaxDimensions,
                  " dimensions that do not merge, but got ", operands.dimensions);
      std::copy_n(iterator.shape().begin(), operands.dimensions, operands.shape);
      for (int i = 0; i < iterator.ntensors(); ++i) {
        const auto strides = iterator.strides(position(i));
        std::copy_n(strides.begin(), operands.dimensions, operands.strides[i]);
      }
    }
    launch(op, id, parameters, operands, iterator.device(0));
  }

 private:
  static void launch(const Operator& op, const KernelId& id, const CallParameters& parameters,
                     const cuda::Operands& operands, c10::Device device) {
    const c10::cuda::CUDAGuard guard(device);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index());
    const cudaError_t error =
        find_kernel(op, id, device.index(), stream)(parameters.numbers, operands, stream);
    TORCH_CHECK(error == cudaSuccess, "fastact::", op.name, ": ", cuda::describe_failure(error));
  }

  static cuda::Kernel find_kernel(const Operator& op, const KernelId& id, int device,
                                  cudaStream_t stream) {
    try {
      return cuda::find_kernel(op.family, id, device, stream);
    } catch (const std::invalid_argument& error) {
      TORCH_CHECK(false, error.what());
    }
  }
};

}  // namespace

const DeviceKernels& cuda_kernels() { return kKernelsOf<Pointwise<Cuda>>; }

TORCH_LIBRARY_IMPL(fastact, CUDA, library) {
  implement<Pointwise<Cuda>>(library, c10::DispatchKey::CUDA);
}

}  // namespace fastact

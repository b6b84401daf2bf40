// The dispatch key CUDA.
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <stdexcept>

#include "ops/cuda/engine.h"
#include "registration/pointwise.h"
#include "registration/signatures.h"

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

  static void run_dense(const Family& family, const KernelId& id, const CallParameters& parameters,
                        const at::Tensor& out, TensorPointers tensors) {
    cuda::Operands operands;
    operands.size = out.numel();
    operands.data[0] = out.data_ptr();
    for (int i = 0; i <= id.order; ++i)
      operands.data[i + 1] = const_cast<void*>(tensors[i]->const_data_ptr());
    launch(family, id, parameters, operands, out.device());
  }

  static void run(const Family& family, const KernelId& id, const CallParameters& parameters,
                  at::TensorIteratorBase& iterator) {
    cuda::Operands operands;
    operands.size = iterator.numel();
    const auto position = [&](int operand) { return iterator_operand(family, id.order, operand); };
    for (int i = 0; i < iterator.ntensors(); ++i) operands.data[i] = iterator.data_ptr(position(i));
    if (!iterator.is_contiguous()) {
      operands.dimensions = iterator.ndim();
      TORCH_CHECK(operands.dimensions <= cuda::kMaxDimensions,
                  "fastact::", operator_name(family.activation(), id.order),
                  ": expected tensors of at most ", cuda::kMaxDimensions,
                  " dimensions that do not merge, but got ", operands.dimensions);
      std::copy_n(iterator.shape().begin(), operands.dimensions, operands.shape);
      for (int i = 0; i < iterator.ntensors(); ++i) {
        const auto strides = iterator.strides(position(i));
        std::copy_n(strides.begin(), operands.dimensions, operands.strides[i]);
      }
    }
    launch(family, id, parameters, operands, iterator.device(0));
  }

 private:
  static void launch(const Family& family, const KernelId& id, const CallParameters& parameters,
                     const cuda::Operands& operands, c10::Device device) {
    const c10::cuda::CUDAGuard guard(device);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index());
    const cudaError_t error =
        find_kernel(family, id, device.index(), stream)(parameters.numbers, operands, stream);
    TORCH_CHECK(error == cudaSuccess, "fastact::", operator_name(family.activation(), id.order),
                ": ", cuda::describe_failure(error));
  }

  static cuda::Kernel find_kernel(const Family& family, const KernelId& id, int device,
                                  cudaStream_t stream) {
    try {
      return cuda::find_kernel(family.index(), id, device, stream);
    } catch (const std::invalid_argument& error) {
      TORCH_CHECK(false, error.what());
    }
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(fastact, CUDA, library) {
  implement<Pointwise<Cuda>>(library, c10::DispatchKey::CUDA);
}

}  // namespace fastact

// The dispatch key CUDA.
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <stdexcept>

#include "ops/cuda/engine.h"
#include "ops/floating_point.h"
#include "registration/device_kernels.h"
#include "registration/keys/clamped_swiglu.h"
#include "registration/keys/fused.h"
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
      check_dimensions(op, operands.dimensions);
      std::copy_n(iterator.shape().begin(), operands.dimensions, operands.shape);
      for (int i = 0; i < iterator.ntensors(); ++i) {
        const auto strides = iterator.strides(position(i));
        std::copy_n(strides.begin(), operands.dimensions, operands.strides[i]);
      }
    }
    launch(op, id, parameters, operands, iterator.device(0));
  }

  static void run_fused(const Operator& op, DType type, const CallParameters& parameters,
                        const FusedInputs& inputs, at::TensorIteratorBase& iterator) {
    if (!iterator.can_use_32bit_indexing()) {
      for (at::TensorIteratorBase& part : iterator.with_32bit_indexing())
        run_fused(op, type, parameters, inputs, part);
      return;
    }
    cuda::FusedOperands operands;
    operands.inputs = inputs.set;
    operands.float32 = inputs.float32;
    operands.size = iterator.numel();
    // A call with one element has no dimension.
    operands.dimensions = std::max(iterator.ndim(), 1);
    operands.shape[0] = 1;
    check_dimensions(op, iterator.ndim());
    std::copy_n(iterator.shape().begin(), iterator.ndim(), operands.shape);
    int position = 0;
    const auto add = [&](int operand) {
      operands.data[operand] = iterator.data_ptr(position);
      std::copy_n(iterator.strides(position).begin(), iterator.ndim(), operands.strides[operand]);
      ++position;
    };
    add(0);
    for (int i = 0; i < kFusedInputs; ++i) {
      if (inputs.set.has(static_cast<FusedInput>(i))) add(1 + i);
    }
    const c10::Device device = iterator.device(0);
    const c10::cuda::CUDAGuard guard(device);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index());
    const cuda::FusedKernel kernel =
        cuda::find_fused_kernel(op.family, type, device.index(), stream);
    const DefaultFloatingPoint environment;  // the CPU derives constants from the parameters
    check_launch(op, kernel(parameters.numbers, operands, stream));
  }

 private:
  static void check_dimensions(const Operator& op, int dimensions) {
    TORCH_CHECK(dimensions <= cuda::kMaxDimensions, "fastact::", op.name,
                ": expected tensors of at most ", cuda::kMaxDimensions,
                " dimensions that do not merge, but got ", dimensions);
  }

  static void check_launch(const Operator& op, cudaError_t error) {
    TORCH_CHECK(error == cudaSuccess, "fastact::", op.name, ": ", cuda::describe_failure(error));
  }

  static void launch(const Operator& op, const KernelId& id, const CallParameters& parameters,
                     const cuda::Operands& operands, c10::Device device) {
    const c10::cuda::CUDAGuard guard(device);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index());
    const DefaultFloatingPoint environment;
    check_launch(op,
                 find_kernel(op, id, device.index(), stream)(parameters.numbers, operands, stream));
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
  implement<FusedPointwise<Cuda>>(library, c10::DispatchKey::CUDA);
  if (!operators().empty())
    library.impl("_clamped_swiglu_backward", &clamped_swiglu_gradients<Cuda>);
}

}  // namespace fastact

// The dispatch key CUDA.
#include <ATen/cuda/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <stdexcept>

#include "ops/cuda/engine.h"
#include "ops/cuda/rows.h"
#include "ops/floating_point.h"
#include "registration/device_kernels.h"
#include "registration/kernels/kernels.h"
#include "registration/operators/implement.h"

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

  static at::Tensor fresh_like(const at::Tensor& self) { return at::empty_like(self); }

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
    if (iterator.noutputs() > 1) operands.preactivation = iterator.data_ptr(position++);
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

  static bool run_fused_backward(const Operator& op, DType type, const CallParameters& parameters,
                                 const FusedBackwardTensors& tensors, const FusedLayout& layout,
                                 at::Tensor (&sums)[2]) {
    const OutputMask& mask = parameters.output_mask;
    const int64_t outer = layout.outer.size;
    const int64_t channels = layout.channels.size;
    const int64_t inner = layout.inner.size;
    // A launch counts elements in 31 bits, so larger tensors are computed in parts.
    int64_t part_outer = outer;
    int64_t part_channels = channels;
    if (outer * channels * inner > kLargestPart) {
      part_outer = kLargestPart / (channels * inner);
      if (inner == 1) part_outer = part_outer / kSumRows * kSumRows;
      if (part_outer == 0) {  // the fewest rows of all channels are still too many
        part_outer = inner == 1 ? std::min(int64_t{kSumRows}, outer) : 1;
        part_channels = kLargestPart / (part_outer * inner);
        if (part_channels == 0) return false;
      }
    }
    const c10::Device device = tensors.inputs[kSelf].device();
    const c10::cuda::CUDAGuard guard(device);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index());
    const cuda::FusedPartialSums parts = cuda::fused_partial_sums(outer, inner);
    const c10::ScalarType number = type == DType::kFloat64 ? at::kDouble : at::kFloat;
    at::Tensor partial[2];
    for (int i = 0; i < 2; ++i) {
      if (mask[kVectors[i]]) {
        partial[i] = at::empty({parts.rows, channels, parts.blocks},
                               tensors.inputs[kVectors[i]].options().dtype(number));
      }
    }
    const cuda::FusedBackwardKernel kernel =
        cuda::find_fused_backward_kernel(op.family, type, device.index(), stream);
    const DefaultFloatingPoint environment;
    for (int64_t row = 0; row < outer; row += part_outer) {
      for (int64_t channel = 0; channel < channels; channel += part_channels) {
        cuda::FusedBackwardOperands operands = operands_at(tensors, layout, row, channel);
        operands.outer = std::min(part_outer, outer - row);
        operands.channels = std::min(part_channels, channels - channel);
        operands.inner = inner;
        const int64_t sum_row = inner == 1 ? row / kSumRows : row;
        for (int i = 0; i < 2; ++i) {
          if (!partial[i].defined()) continue;
          operands.data[1 + kFusedInputs + kVectors[i]] =
              static_cast<char*>(partial[i].mutable_data_ptr()) +
              (sum_row * channels + channel) * parts.blocks *
                  static_cast<int64_t>(partial[i].element_size());
        }
        check_launch(op, kernel(parameters.numbers, operands, stream));
      }
    }
    add_up(op, tensors, parts, number == at::kDouble, channels, stream, partial);
    std::ranges::move(partial, sums);
    return true;
  }

  static void run_seeded(const Operator& op, const KernelId& id, const CallParameters& parameters,
                         const at::Tensor& seed, const at::Tensor& out,
                         std::span<const at::Tensor> inputs) {
    cuda::Operands operands;
    operands.size = out.numel();
    operands.data[0] = out.data_ptr();
    // Inputs are only read, but the array has one pointer type for inputs and output.
    operands.data[1] = const_cast<void*>(seed.const_data_ptr());
    for (size_t i = 0; i < inputs.size(); ++i)
      operands.data[2 + i] = const_cast<void*>(inputs[i].const_data_ptr());
    launch(op, id, parameters, operands, out.device());
  }

  static bool run_norm_of_sum(const Operator& /*op*/, TensorPointers /*tensors*/,
                              const CallParameters& /*parameters*/, at::Tensor* /*results*/) {
    return false;
  }

  static bool run_norm_gradients(const Operator& /*op*/, TensorPointers /*tensors*/,
                                 const CallParameters& /*parameters*/, at::Tensor* /*results*/) {
    return false;
  }

  static constexpr bool kRepeats = false;
  static void run_rows(const Operator& op, const KernelId& id, const CallParameters& parameters,
                       const RowOperands& operands, const at::Tensor& out) {
    const c10::cuda::CUDAGuard guard(out.device());
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(out.device().index());
    const DefaultFloatingPoint environment;
    check_launch(op, cuda::find_row_kernel(op.family, id)(parameters.numbers, operands, stream));
  }

 private:
  static constexpr int64_t kLargestPart = int64_t{1} << 30;
  static constexpr int kVectors[] = {kScale, kBias};

  // Returns the operands from this row and channel on.
  static cuda::FusedBackwardOperands operands_at(const FusedBackwardTensors& tensors,
                                                 const FusedLayout& layout, int64_t row,
                                                 int64_t channel) {
    cuda::FusedBackwardOperands operands;
    const c10::ScalarType type = tensors.inputs[kSelf].scalar_type();
    for (int i = 0; i < FusedBackwardTensors::kCount; ++i) {
      const at::Tensor& tensor = tensors[i];
      if (!tensor.defined()) continue;
      const auto size = static_cast<int64_t>(tensor.element_size());
      operands.outer_strides[i] = layout.outer.strides[i] * size;
      operands.channel_strides[i] = layout.channels.strides[i] * size;
      // Inputs are only read, but the array has one pointer type for inputs and gradients.
      operands.data[i] = static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())) +
                         row * operands.outer_strides[i] + channel * operands.channel_strides[i];
      if (tensor.scalar_type() != type) operands.float32.add(static_cast<FusedInput>(i - 1));
    }
    return operands;
  }

  // Adds the partial sums of each channel to one number, in the type of scale or bias.
  static void add_up(const Operator& op, const FusedBackwardTensors& tensors,
                     cuda::FusedPartialSums parts, bool are_doubles, int64_t channels,
                     cudaStream_t stream, at::Tensor (&sums)[2]) {
    if (!sums[0].defined() && !sums[1].defined()) return;
    for (bool is_last = false; !is_last;) {
      const int64_t left = cuda::fused_sums_left(parts);
      is_last = cuda::is_last_of_fused_sums(parts);
      cuda::FusedSumsOperands operands;
      operands.from_doubles = are_doubles;
      operands.sums = parts;
      operands.channels = channels;
      at::Tensor next[2];
      for (int i = 0; i < 2; ++i) {
        if (!sums[i].defined()) continue;
        const at::Tensor& vector = tensors.inputs[kVectors[i]];
        next[i] = at::empty({left, channels},
                            is_last ? vector.options() : vector.options().dtype(at::kDouble));
        operands.from[i] = sums[i].const_data_ptr();
        operands.to[i] = next[i].mutable_data_ptr();
        operands.types[i] = *engine_type(next[i].scalar_type());
      }
      check_launch(op, cuda::add_fused_sums(operands, stream));
      std::ranges::move(next, sums);
      parts = {.rows = left, .blocks = 1};
      are_doubles = true;
    }
  }

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

const DeviceKernels& cuda_kernels() { return kKernelsOf<KernelsOn<Cuda>>; }

TORCH_LIBRARY_IMPL(fastact, CUDA, library) {
  implement<KernelsOn<Cuda>>(library, c10::DispatchKey::CUDA);
}

}  // namespace fastact

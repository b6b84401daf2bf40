// The dispatch key CPU.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "ops/cpu/alpha_dropout.h"
#include "ops/cpu/engine.h"
#include "ops/cpu/fused.h"
#include "ops/floating_point.h"
#include "registration/device_kernels.h"
#include "registration/kernels/alpha_dropout.h"
#include "registration/kernels/clamped_swiglu.h"
#include "registration/kernels/cpu_memory.h"
#include "registration/kernels/fused.h"
#include "registration/kernels/fused_backward.h"
#include "registration/kernels/parallel.h"
#include "registration/kernels/pointwise.h"
#include "registration/operators/fused.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

// ---- Activations and fused forms

struct Cpu {
  static at::Tensor empty(const at::Tensor& like, c10::MemoryFormat format) {
    return empty_on_cpu(like, format);
  }

  static at::Tensor empty_strided(const at::Tensor& like) { return empty_strided_on_cpu(like); }

  static bool converts_first(const at::Tensor& /*self*/) { return true; }

  static void run_dense(const Operator& op, const KernelId& id, const CallParameters& parameters,
                        const at::Tensor& out, TensorPointers tensors) {
    if (out.numel() > at::internal::GRAIN_SIZE && at::get_num_threads() > 1 &&
        !at::in_parallel_region()) {
      // Large enough for several threads. They are torch's, reached through its iterator:
      // at::parallel_for would compile OpenMP into this library. torch's grain size fits: SELU of
      // 2^16 float32 takes 18.7 us on two cores, 37.8 on one (docs/dev/tuning.md).
      at::TensorIteratorConfig config;
      config.set_check_mem_overlap(false).add_output(out);
      add_inputs(config, op, tensors);
      at::TensorIterator iterator = config.build();
      run(op, id, parameters, iterator);
      return;
    }
    char* data[kMaxOperands];
    int64_t strides[2 * kMaxOperands] = {};
    data[0] = static_cast<char*>(out.data_ptr());
    for (int i = 0; i < op.num_inputs(); ++i) {
      // Inputs are only read, but the array has one pointer type for inputs and output.
      data[i + 1] = static_cast<char*>(const_cast<void*>(tensors[i]->const_data_ptr()));
    }
    std::fill_n(strides, 1 + op.num_inputs(), out.element_size());
    find_kernel(op, id)(parameters.numbers, data, strides, out.numel(), 1);
  }

  static void run(const Operator& op, const KernelId& id, const CallParameters& parameters,
                  at::TensorIteratorBase& iterator) {
    const cpu::Kernel kernel = find_kernel(op, id);
    if (!op.last_input_leads || op.num_inputs() == 1) {
      iterator.for_each([&](char** data, const int64_t* strides, int64_t size0, int64_t size1) {
        kernel(parameters.numbers, data, strides, size0, size1);
      });
      return;
    }
    iterator.for_each([&](char** data, const int64_t* strides, int64_t size0, int64_t size1) {
      const int count = 1 + op.num_inputs();
      char* ordered[kMaxOperands];
      int64_t ordered_strides[2 * kMaxOperands];
      for (int i = 0; i < count; ++i) {
        const int position = iterator_operand(op, i);
        ordered[i] = data[position];
        ordered_strides[i] = strides[position];
        ordered_strides[count + i] = strides[count + position];
      }
      kernel(parameters.numbers, ordered, ordered_strides, size0, size1);
    });
  }

  static void run_fused(const Operator& op, DType type, const CallParameters& parameters,
                        const FusedInputs& inputs, at::TensorIteratorBase& iterator) {
    const cpu::InstructionSet set = selected_instruction_set();
    const cpu::FusedCall call = {
        .activation = cpu::find_fused_activation(op.family, type, set),
        .parameters = parameters.numbers,
        .inputs = inputs.set,
        .float32 = inputs.float32,
        .writes_preactivation = iterator.noutputs() > 1,
    };
    const cpu::FusedKernel kernel = cpu::find_fused_kernels(type, set).forward;
    iterator.for_each([&](char** data, const int64_t* strides, int64_t size0, int64_t size1) {
      kernel(call, data, strides, size0, size1);
    });
  }

 private:
  static cpu::Kernel find_kernel(const Operator& op, const KernelId& id) {
    return cpu::find_kernel(op.family, id, selected_instruction_set());
  }

  static cpu::InstructionSet selected_instruction_set() {
    try {
      return cpu::selected_instruction_set();
    } catch (const std::invalid_argument& error) {
      TORCH_CHECK(false, error.what());
    }
  }
};

struct WithArgument {
  const Operator* op;

  std::tuple<at::Tensor, at::Tensor> operator()(const at::Tensor& self,
                                                const std::optional<at::Tensor>& scale,
                                                const std::optional<at::Tensor>& bias,
                                                const std::optional<at::Tensor>& residual,
                                                const std::optional<at::Tensor>& gate,
                                                at::ArrayRef<double> numbers) const {
    const FusedArguments call(*op, fused_with_argument_name(*op), self, scale, bias, residual, gate,
                              numbers);
    return FusedPointwise<Cpu>::with_argument({}, *op, call.tensors, call.parameters);
  }
};

// ---- The gradients of fused forms, in one pass

class Backward {
 public:
  Backward(const cpu::FusedBackwardCall& call, cpu::FusedBackwardKernel kernel,
           const FusedBackwardTensors& tensors, const FusedLayout& layout)
      : call_(call), kernel_(kernel), tensors_(tensors), layout_(layout) {}

  // Writes the gradients of self, residual and gate. Sets those of scale and bias, in their own
  // type, if they are wanted.
  void run(bool wants_scale, bool wants_bias, at::Tensor& scale, at::Tensor& bias) {
    const bool along_columns = layout_.inner.size == 1;
    const int64_t channels = layout_.channels.size;
    // Every channel has the same number of partial sums, which depends on the sizes alone.
    const int64_t row_groups = parts(layout_.outer.size, cpu::kTileRows);
    const int64_t chunks = parts(layout_.inner.size, cpu::kTileColumns);
    const int64_t groups = along_columns ? row_groups : layout_.outer.size * chunks;
    const auto partial_sums = [&](bool wanted) {
      return wanted ? at::empty({groups, channels}, at::kDouble) : at::Tensor();
    };
    const at::Tensor scale_sums = partial_sums(wants_scale);
    const at::Tensor bias_sums = partial_sums(wants_bias);
    const auto at_channel = [&](const at::Tensor& sums, int64_t group, int64_t channel) {
      return sums.defined() ? sums.mutable_data_ptr<double>() + group * channels + channel
                            : nullptr;
    };
    if (along_columns) {
      const int64_t tiles = parts(channels, cpu::kTileColumns);
      const int64_t height = std::min(cpu::kTileRows, layout_.outer.size);
      in_parallel(row_groups * tiles, height * std::min(channels, cpu::kTileColumns),
                  [&](int64_t task) {
                    const int64_t group = task / tiles;
                    const int64_t column = task % tiles * cpu::kTileColumns;
                    const int64_t row = group * cpu::kTileRows;
                    cpu::FusedTile tile = tile_at(row, column, 0);
                    tile.rows = std::min(cpu::kTileRows, layout_.outer.size - row);
                    tile.columns = std::min(cpu::kTileColumns, channels - column);
                    tile.scale_sums = at_channel(scale_sums, group, column);
                    tile.bias_sums = at_channel(bias_sums, group, column);
                    kernel_(call_, tile);
                  });
    } else {
      // Small images share a tile.
      const int64_t together =
          std::clamp(cpu::kTileColumns / layout_.inner.size, int64_t{1}, channels);
      const int64_t tiles = parts(channels, together);
      in_parallel(groups * tiles, together * std::min(layout_.inner.size, cpu::kTileColumns),
                  [&](int64_t task) {
                    const int64_t chunk = task % chunks;
                    const int64_t channel = task / chunks % tiles * together;
                    const int64_t outer = task / chunks / tiles;
                    const int64_t start = chunk * cpu::kTileColumns;
                    cpu::FusedTile tile = tile_at(outer, channel, start);
                    tile.rows = std::min(together, channels - channel);
                    tile.columns = std::min(cpu::kTileColumns, layout_.inner.size - start);
                    tile.vectors_along_columns = false;
                    const int64_t group = outer * chunks + chunk;
                    tile.scale_sums = at_channel(scale_sums, group, channel);
                    tile.bias_sums = at_channel(bias_sums, group, channel);
                    kernel_(call_, tile);
                  });
    }
    if (wants_scale) scale = sum_of(scale_sums, tensors_.inputs[kScale]);
    if (wants_bias) bias = sum_of(bias_sums, tensors_.inputs[kBias]);
  }

 private:
  // Returns the tile. Its rows are those of the outer dimension, or channels if scale and bias vary
  // from row to row.
  [[nodiscard]] cpu::FusedTile tile_at(int64_t outer, int64_t channel, int64_t inner) const {
    cpu::FusedTile tile;
    const FusedDimension& rows_of_tile = layout_.inner.size == 1 ? layout_.outer : layout_.channels;
    const auto rows = [&](int i) {
      const at::Tensor& tensor = tensors_[i];
      if (!tensor.defined()) return cpu::FusedRows();
      const auto size = static_cast<int64_t>(tensor.element_size());
      const int64_t offset = outer * layout_.outer.strides[i] +
                             channel * layout_.channels.strides[i] +
                             inner * layout_.inner.strides[i];
      // Inputs are only read, but FusedRows has one pointer type for inputs and gradients.
      auto* const first = static_cast<char*>(const_cast<void*>(tensor.const_data_ptr()));
      return cpu::FusedRows{first + offset * size, rows_of_tile.strides[i] * size};
    };
    tile.grad_output = rows(0);
    for (int i = 0; i < kFusedInputs; ++i) {
      tile.inputs[i] = rows(1 + i);
      tile.gradients[i] = rows(1 + kFusedInputs + i);
    }
    return tile;
  }

  // Adds kSumGroups groups of each channel at a time, one after the other, until one is left.
  static at::Tensor sum_of(at::Tensor sums, const at::Tensor& vector) {
    const DefaultFloatingPoint environment;
    const int64_t channels = sums.size(1);
    do {
      const int64_t groups = sums.size(0);
      at::Tensor fewer = at::empty({parts(groups, kSumGroups), channels}, at::kDouble);
      const auto* from = sums.const_data_ptr<double>();
      auto* to = fewer.mutable_data_ptr<double>();
      for (int64_t group = 0; group < groups; ++group, from += channels) {
        if (group % kSumGroups == 0) {
          if (group != 0) to += channels;
          std::copy_n(from, channels, to);
        } else {
          for (int64_t channel = 0; channel < channels; ++channel) to[channel] += from[channel];
        }
      }
      sums = std::move(fewer);
    } while (sums.size(0) > 1);
    at::Tensor result = at::empty({channels}, vector.scalar_type());
    cpu::find_fused_kernels(*engine_type(vector.scalar_type()), cpu::selected_instruction_set())
        .round_sums(sums.const_data_ptr<double>(), channels, result.mutable_data_ptr());
    return result;
  }

  static int64_t parts(int64_t size, int64_t part) { return (size + part - 1) / part; }

  const cpu::FusedBackwardCall& call_;
  cpu::FusedBackwardKernel kernel_;
  const FusedBackwardTensors& tensors_;
  const FusedLayout& layout_;
};

struct CpuFusedBackward {
  static at::Tensor fresh_like(const at::Tensor& self) { return empty_like_on_cpu(self); }

  static bool run(const Operator& op, DType type, const CallParameters& parameters,
                  const FusedBackwardTensors& tensors, const FusedLayout& layout,
                  const FusedMask& mask, at::Tensor (&sums)[2]) {
    const at::Tensor& self = tensors.inputs[kSelf];
    const cpu::InstructionSet set = cpu::selected_instruction_set();
    cpu::FusedBackwardCall call;
    call.slope_of_value = op.activation->traits.saves == Saves::kOutput;
    const DType number = call.slope_of_value && type != DType::kFloat64 ? DType::kFloat32 : type;
    call.forward.activation = cpu::find_fused_activation(op.family, number, set);
    call.forward.parameters = parameters.numbers;
    for (int i = 0; i < kFusedInputs; ++i) {
      if (!tensors.inputs[i].defined()) continue;
      const auto input = static_cast<FusedInput>(i);
      call.forward.inputs.add(input);
      if (tensors.inputs[i].scalar_type() != self.scalar_type()) call.forward.float32.add(input);
    }
    Backward(call, cpu::find_fused_kernels(type, set).backward, tensors, layout)
        .run(mask[kScale], mask[kBias], sums[0], sums[1]);
    return true;
  }
};

// ---- SELU with alpha dropout

struct CpuAlphaDropout {
  static at::Tensor fresh_like(const at::Tensor& self) { return empty_like_on_cpu(self); }

  static void run(const Operator& op, double p, const at::Tensor& seed, const at::Tensor& out,
                  std::span<const at::Tensor> inputs) {
    const int64_t n = out.numel();
    if (n == 0) return;
    char* data[1 + 2] = {static_cast<char*>(out.data_ptr())};
    for (size_t i = 0; i < inputs.size(); ++i) {
      // Inputs are only read, but the array has one pointer type for inputs and output.
      data[1 + i] = static_cast<char*>(const_cast<void*>(inputs[i].const_data_ptr()));
    }
    const auto kernel = cpu::find_alpha_dropout_kernel(
        alpha_dropout_form(op), *engine_type(out.scalar_type()), cpu::selected_instruction_set());
    const auto key = static_cast<uint64_t>(*seed.const_data_ptr<int64_t>());
    constexpr int64_t kPart = 16 * cpu::kAlphaDropoutBlock;
    in_parallel((n + kPart - 1) / kPart, kPart, [&](int64_t part) {
      kernel(p, key, data, part * kPart, std::min(kPart, n - part * kPart));
    });
  }
};

}  // namespace

const DeviceKernels& cpu_kernels() { return kKernelsOf<Pointwise<Cpu>>; }

TORCH_LIBRARY_IMPL(fastact, CPU, library) {
  implement<Pointwise<Cpu>>(library, c10::DispatchKey::CPU);
  implement<FusedPointwise<Cpu>>(library, c10::DispatchKey::CPU);
  implement_fused_backward<CpuFusedBackward>(library);
  implement<AlphaDropoutKernels<CpuAlphaDropout>>(library, c10::DispatchKey::CPU,
                                                  alpha_dropout_operators());
  if (!operators().empty())
    library.impl("_clamped_swiglu_backward", &clamped_swiglu_gradients<Cpu>);
  for (const Operator* op : fused_operators())
    library.impl(fused_with_argument_name(*op).c_str(), WithArgument{op});
}

}  // namespace fastact

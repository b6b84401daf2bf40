// The dispatch key CPU.
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "ops/cpu/engine.h"
#include "ops/cpu/fused.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/seeded.h"
#include "ops/floating_point.h"
#include "registration/device_kernels.h"
#include "registration/kernels/cpu_memory.h"
#include "registration/kernels/cpu_norm_gradients.h"
#include "registration/kernels/cpu_norm_of_sum.h"
#include "registration/kernels/kernels.h"
#include "registration/kernels/parallel.h"
#include "registration/kernels/partial_sums.h"
#include "registration/operators/implement.h"

namespace fastact {
namespace {

// ---- The gradients of fused forms, in one pass

class Backward {
 public:
  Backward(const cpu::FusedBackwardCall& call, cpu::FusedBackwardKernel kernel,
           const FusedBackwardTensors& tensors, const FusedLayout& layout)
      : call_(call), kernel_(kernel), tensors_(tensors), layout_(layout) {}

  // Writes the gradients of self, residual and gate. Sets those of scale and bias, in their own
  // type, if they are wanted.
  void run(const OutputMask& mask, at::Tensor (&sums)[2]) {
    const bool along_columns = layout_.inner.size == 1;
    const int64_t channels = layout_.channels.size;
    // Every channel has the same number of partial sums, which depends on the sizes alone.
    const int64_t row_groups = parts(layout_.outer.size, cpu::kTileRows);
    const int64_t chunks = parts(layout_.inner.size, cpu::kTileColumns);
    const int64_t groups = along_columns ? row_groups : layout_.outer.size * chunks;
    const PartialSums scale_sums(mask[kScale], groups, channels);
    const PartialSums bias_sums(mask[kBias], groups, channels);
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
                    tile.scale_sums = scale_sums.at(group, column);
                    tile.bias_sums = bias_sums.at(group, column);
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
                    tile.scale_sums = scale_sums.at(group, channel);
                    tile.bias_sums = bias_sums.at(group, channel);
                    kernel_(call_, tile);
                  });
    }
    const cpu::InstructionSet set = cpu::selected_instruction_set();
    if (mask[kScale]) sums[0] = scale_sums.total(tensors_.inputs[kScale].scalar_type(), set);
    if (mask[kBias]) sums[1] = bias_sums.total(tensors_.inputs[kBias].scalar_type(), set);
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

  const cpu::FusedBackwardCall& call_;
  cpu::FusedBackwardKernel kernel_;
  const FusedBackwardTensors& tensors_;
  const FusedLayout& layout_;
};

// ---- The device

struct Cpu {
  static at::Tensor empty(const at::Tensor& like, c10::MemoryFormat format) {
    return empty_on_cpu(like, format);
  }

  static at::Tensor empty_strided(const at::Tensor& like) { return empty_strided_on_cpu(like); }

  static at::Tensor fresh_like(const at::Tensor& self) { return empty_like_on_cpu(self); }

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

  static bool run_fused_backward(const Operator& op, DType type, const CallParameters& parameters,
                                 const FusedBackwardTensors& tensors, const FusedLayout& layout,
                                 at::Tensor (&sums)[2]) {
    const at::Tensor& self = tensors.inputs[kSelf];
    const cpu::InstructionSet set = selected_instruction_set();
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
        .run(parameters.output_mask, sums);
    return true;
  }

  static void run_seeded(const Operator& op, const KernelId& id, const CallParameters& parameters,
                         const at::Tensor& seed, const at::Tensor& out,
                         std::span<const at::Tensor> inputs) {
    const int64_t n = out.numel();
    cpu::SeededCall call = {.kernel = find_kernel(op, id),
                            .parameters = parameters.numbers,
                            .seed = static_cast<uint64_t>(*seed.const_data_ptr<int64_t>()),
                            .element_size = static_cast<int64_t>(out.element_size())};
    call.data[0] = static_cast<char*>(out.data_ptr());
    call.operands = 2;
    for (const at::Tensor& input : inputs) {
      // Inputs are only read, but the array has one pointer type for inputs and output.
      call.data[call.operands++] = static_cast<char*>(const_cast<void*>(input.const_data_ptr()));
    }
    const cpu::SeededRun run = cpu::find_seeded_run(selected_instruction_set());
    constexpr int64_t kPart = 16 * cpu::kSeededBlock;
    in_parallel((n + kPart - 1) / kPart, kPart,
                [&](int64_t part) { run(call, part * kPart, std::min(kPart, n - part * kPart)); });
  }

  static bool run_norm_of_sum(const Operator& op, TensorPointers tensors,
                              const CallParameters& parameters, at::Tensor* results) {
    return compute_norm_of_sum_on_cpu(op, tensors, parameters, selected_instruction_set(), results);
  }

  static bool run_norm_gradients(const Operator& op, TensorPointers tensors,
                                 const CallParameters& parameters, at::Tensor* results) {
    return compute_norm_gradients_on_cpu(op, tensors, parameters, selected_instruction_set(),
                                         results);
  }

  static constexpr bool kRepeats = true;
  static void run_rows(const Operator& op, const KernelId& id, const CallParameters& parameters,
                       const RowOperands& operands, const at::Tensor& /*out*/) {
    const cpu::RowsCall call = {
        .kernel = cpu::find_row_kernel(op.family, id, selected_instruction_set()),
        .parameters = parameters.numbers,
        .operands = operands};
    const int64_t rows = operands.outer * operands.inner;
    if (rows * operands.n <= at::internal::GRAIN_SIZE || at::get_num_threads() == 1 ||
        at::in_parallel_region())
      return cpu::run_rows(call, 0, rows);
    // A part has whole panels, and about this many elements.
    constexpr int64_t kPartElements = 4096;
    const int64_t panels = std::max(int64_t{1}, kPartElements / (operands.n * cpu::kRowPanel));
    const int64_t part = panels * cpu::kRowPanel;
    const int64_t parts = (rows + part - 1) / part;
    if (rows < at::get_num_threads() && operands.n >= cpu::kLeastShared) {
      cpu::run_rows(call, 0, rows, &run_in_parallel);
    } else if (parts < at::get_num_threads() && part == cpu::kRowPanel) {
      // A part for each long row.
      in_parallel(rows, operands.n, [&](int64_t row) { cpu::run_rows(call, row, 1); });
    } else {
      in_parallel(parts, part * operands.n, [&](int64_t i) {
        cpu::run_rows(call, i * part, std::min(part, rows - i * part));
      });
    }
  }

 private:
  static void run_in_parallel(int64_t count, void (*task)(void*, int64_t), void* state) {
    in_parallel(count, cpu::kRowPart, [&](int64_t i) { task(state, i); });
  }

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

}  // namespace

const DeviceKernels& cpu_kernels() { return kKernelsOf<KernelsOn<Cpu>>; }

TORCH_LIBRARY_IMPL(fastact, CPU, library) {
  implement<KernelsOn<Cpu>>(library, c10::DispatchKey::CPU);
}

}  // namespace fastact

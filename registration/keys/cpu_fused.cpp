// The dispatch key CPU: the gradients of the fused operators, in one pass (ops/cpu/fused.h). Where
// tensors do not lie as that takes them, they are composed.
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "ops/cpu/fused.h"
#include "ops/cpu/memory.h"
#include "registration/checks.h"
#include "registration/device_kernels.h"
#include "registration/operators/fused.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

bool is_vector(int input) { return input == kScale || input == kBias; }

// The call's tensors: grad_output, the inputs, their gradients.
struct Tensors {
  static constexpr int kCount = 1 + 2 * kFusedInputs;
  at::Tensor grad_output;
  at::Tensor inputs[kFusedInputs];
  at::Tensor gradients[kFusedInputs];

  [[nodiscard]] const at::Tensor& operator[](int i) const {
    return i == 0              ? grad_output
           : i <= kFusedInputs ? inputs[i - 1]
                               : gradients[i - 1 - kFusedInputs];
  }
};

// A size and the distances of neighbours, in elements, of each of the tensors.
struct Dimension {
  int64_t size = 1;
  int64_t strides[Tensors::kCount] = {};
};

// The tensors as [outer, channels, inner], where scale and bias lie along the channels, or, where
// inner is one, as rows of channels. Without vectors it is rows.
struct Layout {
  Dimension outer, channels, inner;
};

// Dimensions from the outermost one on, in self's order in memory, as few as can be.
std::vector<Dimension> dimensions_of(const Tensors& tensors) {
  const at::Tensor& self = tensors.inputs[kSelf];
  std::vector<int64_t> order(self.dim());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int64_t a, int64_t b) {
    return self.stride(a) != self.stride(b) ? self.stride(a) > self.stride(b) : a < b;
  });
  at::Tensor expanded[Tensors::kCount];
  for (int i = 0; i < Tensors::kCount; ++i)
    if (tensors[i].defined()) expanded[i] = tensors[i].expand(self.sizes());
  std::vector<Dimension> result;
  for (const int64_t dim : order) {
    if (self.size(dim) == 1) continue;
    Dimension next = {.size = self.size(dim)};
    for (int i = 0; i < Tensors::kCount; ++i)
      if (expanded[i].defined()) next.strides[i] = expanded[i].stride(dim);
    const auto continues = [&](const Dimension& last) {
      for (int i = 0; i < Tensors::kCount; ++i)
        if (last.strides[i] != next.strides[i] * next.size) return false;
      return true;
    };
    if (!result.empty() && continues(result.back())) {
      next.size *= result.back().size;
      result.back() = next;
    } else {
      result.push_back(next);
    }
  }
  return result;
}

// Nothing where the engine does not take them.
std::optional<Layout> layout_of(const Tensors& tensors) {
  const at::Tensor& self = tensors.inputs[kSelf];
  const auto is_whole = [&](const at::Tensor& tensor) {
    return !tensor.defined() || tensor.sizes() == self.sizes();
  };
  if (!is_whole(tensors.grad_output) || !is_whole(tensors.inputs[kResidual]) ||
      !is_whole(tensors.inputs[kGate]) || self.numel() == 0) {
    return std::nullopt;
  }
  for (const int i : {kScale, kBias}) {
    const at::Tensor& vector = tensors.inputs[i];
    if (vector.defined() && !at::is_expandable_to(vector.sizes(), self.sizes()))
      return std::nullopt;
  }
  std::vector<Dimension> dimensions = dimensions_of(tensors);
  if (dimensions.empty()) return std::nullopt;
  // The one dimension along which a vector lies.
  std::optional<size_t> along;
  for (const int i : {kScale, kBias}) {
    if (!tensors.inputs[i].defined()) continue;
    std::optional<size_t> own;
    for (size_t dim = 0; dim < dimensions.size(); ++dim) {
      const int64_t stride = dimensions[dim].strides[1 + i];
      if (stride == 0) continue;
      if (stride != 1 || own.has_value()) return std::nullopt;
      own = dim;
    }
    if (!own.has_value() || (along.has_value() && along != own)) return std::nullopt;
    along = own;
  }
  for (int i = 0; i < Tensors::kCount; ++i) {
    const bool is_one = i >= 1 && is_vector((i - 1) % kFusedInputs);
    if (!is_one && tensors[i].defined() && dimensions.back().strides[i] != 1) return std::nullopt;
  }
  Layout layout;
  const size_t channels = along.value_or(dimensions.size() - 1);
  if (channels > 1 || dimensions.size() > channels + 2) return std::nullopt;
  if (channels == 1) layout.outer = dimensions[0];
  layout.channels = dimensions[channels];
  if (dimensions.size() > channels + 1) layout.inner = dimensions[channels + 1];
  return layout;
}

at::Tensor fresh_like(const at::Tensor& self) {
  at::Tensor fresh = at::empty_like(self);
  cpu::advise_huge_pages(fresh.data_ptr(), fresh.nbytes());
  return fresh;
}

// Calls task(0) to task(count - 1), on torch's threads; they are reached through its iterator:
// at::parallel_for would compile OpenMP into this library.
template <class Task>
void in_parallel(int64_t count, int64_t elements_each, const Task& task) {
  const at::Tensor positions = at::empty({count}, at::kByte);
  const auto* const first = static_cast<const char*>(positions.const_data_ptr());
  at::TensorIterator iterator = at::TensorIteratorConfig()
                                    .set_check_mem_overlap(false)
                                    .check_all_same_dtype(false)
                                    .resize_outputs(false)
                                    .declare_static_shape({count})
                                    .add_output(positions)
                                    .build();
  const int64_t grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE / elements_each);
  // Of one dimension, so size1 is 1.
  iterator.for_each(
      [&](char** data, const int64_t* strides, int64_t size0, int64_t /*size1*/) {
        for (int64_t i = 0; i < size0; ++i) task(data[0] + i * strides[0] - first);
      },
      grain);
}

class Backward {
 public:
  Backward(const cpu::FusedBackwardCall& call, cpu::FusedBackwardKernel kernel,
           const Tensors& tensors, const Layout& layout)
      : call_(call), kernel_(kernel), tensors_(tensors), layout_(layout) {}

  // Writes the gradients of self, residual and gate, and returns scale's and bias's, in double,
  // where they are wanted.
  void run(bool wants_scale, bool wants_bias, at::Tensor& scale, at::Tensor& bias) {
    const bool along_columns = layout_.inner.size == 1;
    const int64_t channels = layout_.channels.size;
    const auto parts = [](int64_t size, int64_t part) { return (size + part - 1) / part; };
    // As many partial sums for each channel; their number depends on the sizes alone.
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
      in_parallel(groups * channels, std::min(layout_.inner.size, cpu::kTileColumns),
                  [&](int64_t task) {
                    const int64_t chunk = task % chunks;
                    const int64_t channel = task / chunks % channels;
                    const int64_t outer = task / chunks / channels;
                    const int64_t start = chunk * cpu::kTileColumns;
                    cpu::FusedTile tile = tile_at(outer, channel, start);
                    tile.rows = 1;
                    tile.columns = std::min(cpu::kTileColumns, layout_.inner.size - start);
                    tile.vectors_along_columns = false;
                    const int64_t group = outer * chunks + chunk;
                    tile.scale_sums = at_channel(scale_sums, group, channel);
                    tile.bias_sums = at_channel(bias_sums, group, channel);
                    kernel_(call_, tile);
                  });
    }
    if (wants_scale) scale = sum_of(scale_sums);
    if (wants_bias) bias = sum_of(bias_sums);
  }

 private:
  [[nodiscard]] cpu::FusedTile tile_at(int64_t outer, int64_t channel, int64_t inner) const {
    cpu::FusedTile tile;
    const auto rows = [&](int i) {
      const at::Tensor& tensor = tensors_[i];
      if (!tensor.defined()) return cpu::FusedRows();
      const auto size = static_cast<int64_t>(tensor.element_size());
      const int64_t offset = outer * layout_.outer.strides[i] +
                             channel * layout_.channels.strides[i] +
                             inner * layout_.inner.strides[i];
      // Inputs are only read, but share their type with the gradients.
      auto* const first = static_cast<char*>(const_cast<void*>(tensor.const_data_ptr()));
      return cpu::FusedRows{first + offset * size, layout_.outer.strides[i] * size};
    };
    tile.grad_output = rows(0);
    for (int i = 0; i < kFusedInputs; ++i) {
      tile.inputs[i] = rows(1 + i);
      tile.gradients[i] = rows(1 + kFusedInputs + i);
    }
    return tile;
  }

  // Of each channel, one group after the other.
  static at::Tensor sum_of(const at::Tensor& partial) {
    const int64_t groups = partial.size(0);
    const int64_t channels = partial.size(1);
    at::Tensor result = at::empty({channels}, at::kDouble);
    auto* const sums = result.mutable_data_ptr<double>();
    const auto* from = partial.const_data_ptr<double>();
    std::copy_n(from, channels, sums);
    for (int64_t group = 1; group < groups; ++group) {
      from += channels;
      for (int64_t channel = 0; channel < channels; ++channel) sums[channel] += from[channel];
    }
    return result;
  }

  const cpu::FusedBackwardCall& call_;
  cpu::FusedBackwardKernel kernel_;
  const Tensors& tensors_;
  const Layout& layout_;
};

struct BackwardKernel {
  const Operator* op;

  FusedTensors operator()(const at::Tensor& grad_output, const at::Tensor& self,
                          const std::optional<at::Tensor>& scale,
                          const std::optional<at::Tensor>& bias,
                          const std::optional<at::Tensor>& residual,
                          const std::optional<at::Tensor>& gate, at::ArrayRef<double> numbers,
                          FusedMask mask) const {
    CallParameters parameters;
    std::ranges::copy(numbers, parameters.numbers.values);
    Tensors tensors;
    tensors.grad_output = grad_output;
    const at::Tensor* const pointers[] = {&self, &tensor_of(scale), &tensor_of(bias),
                                          &tensor_of(residual), &tensor_of(gate)};
    for (int i = 0; i < kFusedInputs; ++i) tensors.inputs[i] = *pointers[i];
    check_fused(*op, pointers, parameters);
    if (!run(parameters, tensors, mask)) {
      compose_fused_gradients(*op, parameters, grad_output, tensors.inputs,
                              std::vector<bool>(mask.begin(), mask.end()), tensors.gradients);
    }
    return std::apply([](const auto&... gradients) { return FusedTensors(gradients...); },
                      std::to_array(tensors.gradients));
  }

 private:
  // Whether the engine takes these tensors.
  bool run(const CallParameters& parameters, Tensors& tensors, const FusedMask& mask) const {
    const at::Tensor& self = tensors.inputs[kSelf];
    const DType type = *engine_type(self.scalar_type());
    if (tensors.grad_output.scalar_type() != self.scalar_type()) return false;
    // Without a scale self and residual have the same gradient.
    const bool is_shared = mask[kSelf] && mask[kResidual] && !tensors.inputs[kScale].defined();
    if (mask[kSelf]) tensors.gradients[kSelf] = fresh_like(self);
    if (mask[kResidual] && !is_shared) tensors.gradients[kResidual] = fresh_like(self);
    if (mask[kGate]) tensors.gradients[kGate] = fresh_like(self);
    std::optional<Layout> layout = layout_of(tensors);
    if (!layout.has_value() && tensors.grad_output.sizes() == self.sizes()) {
      // As of a sum's gradient, which is one number everywhere.
      tensors.grad_output = fresh_like(self).copy_(tensors.grad_output);
      layout = layout_of(tensors);
    }
    if (!layout.has_value()) return false;

    const cpu::InstructionSet set = cpu::selected_instruction_set();
    const DType number = type == DType::kFloat64 ? type : DType::kFloat32;
    cpu::FusedBackwardCall call;
    call.forward.value = cpu::find_number_kernel(op->family, 0, number, set);
    call.forward.parameters = parameters.numbers;
    for (int i = 0; i < kFusedInputs; ++i) {
      if (!tensors.inputs[i].defined()) continue;
      const auto input = static_cast<FusedInput>(i);
      call.forward.inputs.add(input);
      if (tensors.inputs[i].scalar_type() != self.scalar_type()) call.forward.wide.add(input);
    }
    call.slope = cpu::find_number_kernel(op->family, 1, number, set);
    call.slope_of_value = op->activation->traits.saves == Saves::kOutput;

    at::Tensor sums[2];
    Backward(call, cpu::find_fused_kernels(type, set).backward, tensors, *layout)
        .run(mask[kScale], mask[kBias], sums[0], sums[1]);
    if (mask[kScale]) tensors.gradients[kScale] = sums[0].view(tensors.inputs[kScale].sizes());
    if (mask[kBias]) tensors.gradients[kBias] = sums[1].view(tensors.inputs[kBias].sizes());
    if (is_shared) tensors.gradients[kResidual] = tensors.gradients[kSelf];
    return true;
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(fastact, CPU, library) {
  for (const Operator* op : operators())
    if (op->is_fused) library.impl(fused_backward_name(*op).c_str(), BackwardKernel{op});
}

}  // namespace fastact

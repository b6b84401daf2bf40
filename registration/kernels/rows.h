// Shared by the CPU, CUDA and Meta kernels of row operators: checks, results, and the rows of
// tensors with any strides. Results are contiguous, as those of ATen's softmax.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <concepts>
#include <optional>
#include <span>

#include "registration/checks.h"
#include "registration/conversion.h"
#include "registration/operators/operator.h"
#include "registration/overlap.h"
#include "registration/row_vectors.h"

namespace fastact {

// The interface of a device to Rows.
template <class B>
concept IsRowBackend =
    requires(const at::Tensor& like, c10::MemoryFormat format, const Operator& op,
             const KernelId& id, const CallParameters& parameters, const RowOperands& operands) {
      // Returns uninitialized memory, contiguous in this format.
      { B::empty(like, format) } -> std::same_as<at::Tensor>;
      // Runs the kernel. `like` is on the device of the operands.
      B::run_rows(op, id, parameters, operands, like);
      // True if run_rows() accepts RowOperand::repeat > 1. Otherwise shared inputs are repeated in
      // memory.
      { B::kRepeats } -> std::convertible_to<bool>;
    };

// Returns the operands of a row kernel. The first `count` tensors contain rows and have one type
// and one shape, except that the size of a shared input along `dim` may divide theirs. With
// `has_output`, the first of them is the output. Each other tensor contains one
// value for each row, or is null if it is a row output that is not stored. Returns nothing if the
// dimensions besides `dim` cannot be merged into two in every tensor.
std::optional<RowOperands> row_operands(std::span<const at::Tensor* const> tensors, int count,
                                        bool has_output, int64_t dim);

template <IsRowBackend Backend>
struct Rows {
  static at::Tensor functional(c10::DispatchKeySet /*keys*/, const Operator& op,
                               TensorPointers tensors, const CallParameters& parameters) {
    const int64_t dim = check_rows(op, tensors, parameters);
    const at::Tensor& self = *tensors[op.last_input()];
    at::Tensor result =
        op.row_result == RowResult::kRow
            ? Backend::empty(self, c10::MemoryFormat::Contiguous)
            : numbers_of_rows(self, dim, number_type(op, self.scalar_type()), op.of_empty_row);
    compute_result(op, tensors, parameters, dim, result);
    return result;
  }

  static void several(c10::DispatchKeySet /*keys*/, const Operator& op, TensorPointers tensors,
                      const CallParameters& parameters, at::Tensor* results) {
    const int64_t dim = check_rows(op, tensors, parameters);
    const at::Tensor& self = *tensors[op.last_input()];
    const bool has_row = op.row_result == RowResult::kRow;
    const int first = has_row ? 1 : 0;
    if (has_row) results[0] = Backend::empty(self, c10::MemoryFormat::Contiguous);
    for (int i = first; i < op.results; ++i)
      results[i] = numbers_of_rows(self, dim, number_type(op, self.scalar_type()), op.of_empty_row);
    compute(op, tensors, parameters, dim, has_row ? results : nullptr,
            {results + first, static_cast<size_t>(op.results - first)});
  }

  static at::Tensor& out(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                         const CallParameters& parameters, at::Tensor& out) {
    const int64_t dim = check_rows(op, tensors, parameters);
    const at::Tensor& self = *tensors[op.last_input()];
    const c10::ScalarType type = row_result_type(op, self.scalar_type());
    check_out(op, tensors, type, out);
    for (int i = 0; i < op.num_inputs(); ++i) check_overlap(out, *tensors[i]);
    if (op.row_result == RowResult::kRow && out.scalar_type() == type &&
        out.sizes() == self.sizes()) {
      compute_result(op, tensors, parameters, dim, out);
      return out;
    }
    const at::Tensor result = functional(keys, op, tensors, parameters);
    at::native::resize_output(out, result.sizes());
    copy_converted(result, out);
    return out;
  }

 private:
  // Returns a tensor for one number per row: filled with `of_empty` if `self` is empty, and
  // uninitialized otherwise.
  static at::Tensor numbers_of_rows(const at::Tensor& self, int64_t dim, c10::ScalarType type,
                                    double of_empty) {
    at::Tensor numbers =
        at::empty_symint(shape_of_statistics(self.sym_sizes(), dim), self.options().dtype(type),
                         c10::MemoryFormat::Contiguous);
    if (self.numel() == 0) numbers.fill_(of_empty);
    return numbers;
  }

  static void compute_result(const Operator& op, TensorPointers tensors,
                             const CallParameters& parameters, int64_t dim, at::Tensor& result) {
    if (op.row_result != RowResult::kRow)
      return compute(op, tensors, parameters, dim, nullptr, {&result, 1});
    const auto indexed = std::ranges::find(op.inputs, InputKind::kIndexInRow, &Input::kind);
    if (indexed == op.inputs.end()) return compute(op, tensors, parameters, dim, &result, {});
    const at::Tensor at_index = numbers_of_rows(result, dim, result.scalar_type(), 0.0);
    compute(op, tensors, parameters, dim, &result, {&at_index, 1});
    const at::Tensor& index = *tensors[indexed - op.inputs.begin()];
    if (result.numel() == 0) return;
    // Scatters the bits as integers, because torch's scatter_ of bfloat16 on a CPU converts the
    // whole tensor to float and back (docs/dev/tuning.md).
    const c10::ScalarType bits = integer_of_size(result.element_size());
    result.view(bits).scatter_(dim, index, at_index.view(bits));
  }

  static c10::ScalarType integer_of_size(size_t bytes) {
    return bytes == 2 ? at::kShort : bytes == 4 ? at::kInt : at::kLong;
  }

  // True if the inputs that broadcast have the same size along the rows.
  static bool have_one_size_along_rows(const Operator& op, TensorPointers tensors,
                                       const at::Tensor& self, int64_t dim) {
    std::optional<int64_t> first;
    for (int i = 0; i < op.num_inputs(); ++i) {
      if (op.inputs[i].kind != InputKind::kBroadcast) continue;
      const at::Tensor vector = expanded_besides_rows(*tensors[i], self, dim);
      const int64_t size = vector.dim() == 0 ? 1 : vector.size(dim);
      if (first.value_or(size) != size) return false;
      first = size;
    }
    return true;
  }

  // `out` is null if the operator returns one value for each row. Stores the form's first row
  // outputs in `row_outputs`, and no others.
  static void compute(const Operator& op, TensorPointers tensors, const CallParameters& parameters,
                      int64_t dim, const at::Tensor* out, std::span<const at::Tensor> row_outputs) {
    const at::Tensor& self = *tensors[op.last_input()];
    if (self.numel() == 0) return;
    at::Tensor made[kMaxInputs];
    const at::Tensor* pointers[kMaxRowOperands];
    int count = 0;
    if (out != nullptr) pointers[count++] = out;
    const bool repeats = Backend::kRepeats && have_one_size_along_rows(op, tensors, self, dim);
    for (int i = 0; i < op.num_inputs(); ++i) {
      if (op.inputs[i].is_per_row()) continue;
      pointers[count] = tensors[i];
      if (op.inputs[i].kind == InputKind::kBroadcast) {
        made[i] = repeats ? expanded_besides_rows(*tensors[i], self, dim)
                          : repeated_along_rows(*tensors[i], self, dim).expand(self.sizes());
        pointers[count] = &made[i];
      }
      ++count;
    }
    int all = count;
    const FormInfo& form = row_families()[op.family].forms[op.form];
    const auto row_output_count = static_cast<size_t>(form.outputs - (out == nullptr ? 0 : 1));
    for (size_t k = 0; k < row_output_count; ++k)
      pointers[all++] = k < row_outputs.size() ? &row_outputs[k] : nullptr;
    for (int i = 0; i < op.num_inputs(); ++i) {
      if (!op.inputs[i].is_per_row()) continue;
      pointers[all] = tensors[i];
      if (op.inputs[i].kind == InputKind::kIndexInRow) {
        made[i] = self.gather(dim, *tensors[i]).to(type_of_statistics(self.scalar_type()));
        pointers[all] = &made[i];
      }
      ++all;
    }
    run(op, parameters, dim, out, {pointers, static_cast<size_t>(all)}, count);
  }

  // Runs the kernel. The first `count` operands contain rows. They are copied first if their
  // dimensions besides `dim` cannot be merged.
  static void run(const Operator& op, const CallParameters& parameters, int64_t dim,
                  const at::Tensor* out, std::span<const at::Tensor*> operands, int count) {
    const at::Tensor& first = *operands[0];
    const KernelId id = op.kernel_id(*engine_type(first.scalar_type()), parameters);
    if (const auto rows = row_operands(operands, count, out != nullptr, dim))
      return Backend::run_rows(op, id, parameters, *rows, first);
    at::Tensor copies[kMaxRowOperands];
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] == nullptr || operands[i]->is_contiguous()) continue;
      const bool is_out = out != nullptr && i == 0;
      copies[i] =
          is_out ? Backend::empty(*out, c10::MemoryFormat::Contiguous) : operands[i]->contiguous();
      operands[i] = &copies[i];
    }
    Backend::run_rows(op, id, parameters, *row_operands(operands, count, out != nullptr, dim),
                      *operands[0]);
    if (out != nullptr && copies[0].defined()) out->copy_(copies[0]);
  }
};

}  // namespace fastact

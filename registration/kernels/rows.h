// Shared by the CPU, CUDA and Meta kernels of row operators: checks, results, and the rows of
// tensors with any strides. Results are contiguous, as those of ATen's softmax.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

#include <concepts>
#include <optional>
#include <span>

#include "registration/checks.h"
#include "registration/conversion.h"
#include "registration/operators/operator.h"
#include "registration/overlap.h"

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
    };

// Returns the operands of a row kernel: tensors of one shape and type, the output first. Returns
// nothing if the dimensions besides `dim` do not merge to two in every tensor.
std::optional<RowOperands> row_operands(std::span<const at::Tensor* const> tensors, int64_t dim);

template <IsRowBackend Backend>
struct Rows {
  static at::Tensor functional(c10::DispatchKeySet /*keys*/, const Operator& op,
                               TensorPointers tensors, const CallParameters& parameters) {
    const int64_t dim = check_rows(op, tensors, parameters);
    at::Tensor out = Backend::empty(*tensors[op.last_input()], c10::MemoryFormat::Contiguous);
    compute(op, tensors, parameters, dim, out);
    return out;
  }

  static at::Tensor& out(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                         const CallParameters& parameters, at::Tensor& out) {
    const int64_t dim = check_rows(op, tensors, parameters);
    const at::Tensor& self = *tensors[op.last_input()];
    check_out(op, tensors, self.scalar_type(), out);
    for (int i = 0; i < op.num_inputs(); ++i) check_overlap(out, *tensors[i]);
    const bool is_direct = out.scalar_type() == self.scalar_type();
    if (is_direct && out.sizes() == self.sizes()) {
      compute(op, tensors, parameters, dim, out);
      return out;
    }
    const at::Tensor result = functional(keys, op, tensors, parameters);
    at::native::resize_output(out, result.sizes());
    copy_converted(result, out);
    return out;
  }

 private:
  static void compute(const Operator& op, TensorPointers tensors, const CallParameters& parameters,
                      int64_t dim, at::Tensor& out) {
    if (out.numel() == 0) return;
    const auto count = static_cast<size_t>(op.num_inputs()) + 1;
    const at::Tensor* pointers[1 + kMaxInputs] = {&out};
    at::Tensor expanded[kMaxInputs];
    for (int i = 0; i < op.num_inputs(); ++i) {
      pointers[1 + i] = tensors[i];
      if (op.inputs[i].kind != InputKind::kBroadcast) continue;
      expanded[i] = tensors[i]->expand(out.sizes());
      pointers[1 + i] = &expanded[i];
    }
    const KernelId id = op.kernel_id(*engine_type(out.scalar_type()), parameters);
    if (const auto operands = row_operands({pointers, count}, dim)) {
      Backend::run_rows(op, id, parameters, *operands, out);
      return;
    }
    at::Tensor copies[1 + kMaxInputs];
    copies[0] = out.is_contiguous() ? out : Backend::empty(out, c10::MemoryFormat::Contiguous);
    for (size_t i = 1; i < count; ++i) copies[i] = pointers[i]->contiguous();
    for (size_t i = 0; i < count; ++i) pointers[i] = &copies[i];
    Backend::run_rows(op, id, parameters, *row_operands({pointers, count}, dim), out);
    if (!copies[0].is_same(out)) out.copy_(copies[0]);
  }
};

}  // namespace fastact

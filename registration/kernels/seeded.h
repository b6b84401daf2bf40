// Shared by the CPU, CUDA and Meta kernels of operators with a seed: checks, and contiguous
// operands. The random bits of an element depend on its row-major index, not on strides. So the
// backward pass uses the same bits, even if a hook changed the layout of a saved tensor. Operands
// in other layouts are copied.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_like.h>

#include <concepts>
#include <span>

#include "ops/floating_point.h"
#include "registration/checks.h"
#include "registration/conversion.h"
#include "registration/operators/operator.h"

namespace fastact {

template <class B>
concept IsSeededBackend =
    requires(const Operator& op, const KernelId& id, const CallParameters& parameters,
             const at::Tensor& seed, const at::Tensor& out, std::span<const at::Tensor> inputs) {
      // Returns uninitialized memory with the strides of at::empty_like().
      { B::fresh_like(seed) } -> std::same_as<at::Tensor>;
      // Runs the kernel; out and the inputs are contiguous.
      B::run_seeded(op, id, parameters, seed, out, inputs);
    };

template <IsSeededBackend Backend>
struct Seeded {
  static at::Tensor functional(c10::DispatchKeySet /*keys*/, const Operator& op,
                               TensorPointers tensors, const CallParameters& parameters) {
    check_inputs(op, tensors, parameters);
    const int last = op.last_input();
    const at::Tensor& self = *tensors[last];
    const at::Tensor& seed = *tensors[op.num_inputs() - 1];
    check_seed(op, self, seed);
    at::Tensor result = Backend::fresh_like(self);
    const at::Tensor out =
        is_row_major(result) ? result : at::empty_like(self, at::MemoryFormat::Contiguous);
    const DefaultFloatingPoint environment;
    at::Tensor inputs[kMaxInputs];
    for (int i = 0; i <= last; ++i) {
      const at::Tensor& input = *tensors[i];
      TORCH_CHECK(input.sym_sizes() == self.sym_sizes(), "fastact::", op.name, ": expected ",
                  op.inputs[i].name, " to have ", op.inputs[last].name, "'s shape ",
                  self.sym_sizes(), ", but got ", input.sym_sizes());
      inputs[i] = row_major(converted(input, self.scalar_type()));
    }
    Backend::run_seeded(op, op.kernel_id(*engine_type(self.scalar_type()), parameters), parameters,
                        seed, out, {inputs, static_cast<size_t>(last + 1)});
    return out.is_same(result) ? result : result.copy_(out);
  }

 private:
  static void check_seed(const Operator& op, const at::Tensor& self, const at::Tensor& seed) {
    TORCH_CHECK(seed.scalar_type() == at::kLong && seed.sym_numel() == 1, "fastact::", op.name,
                ": expected seed to be one int64, but got ", seed.sym_numel(), " of the type ",
                seed.scalar_type());
    TORCH_CHECK(seed.device() == self.device(), "fastact::", op.name, ": expected seed to be on ",
                self.device(), ", but got ", seed.device());
  }

  // True if the tensor is contiguous; false if symbolic sizes do not decide it.
  static bool is_row_major(const at::Tensor& tensor) {
    return TORCH_GUARD_OR_FALSE(
        tensor.unsafeGetTensorImpl()->sym_is_contiguous(at::MemoryFormat::Contiguous));
  }

  static at::Tensor row_major(const at::Tensor& tensor) {
    return is_row_major(tensor) ? tensor : at::clone(tensor, at::MemoryFormat::Contiguous);
  }
};

}  // namespace fastact

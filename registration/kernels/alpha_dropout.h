// Shared by the CPU, CUDA and Meta kernels of SELU with alpha dropout: checks, and contiguous
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
#include "registration/operators/alpha_dropout.h"
#include "registration/operators/signature.h"

namespace fastact {

template <class B>
concept IsAlphaDropoutBackend =
    requires(const Operator& op, double p, const at::Tensor& seed, const at::Tensor& out,
             std::span<const at::Tensor> inputs) {
      // Returns uninitialized memory with the strides of at::empty_like().
      { B::fresh_like(seed) } -> std::same_as<at::Tensor>;
      // Runs the kernel; out and the inputs are contiguous.
      B::run(op, p, seed, out, inputs);
    };

template <IsAlphaDropoutBackend Backend>
struct AlphaDropoutKernels {
  static at::Tensor functional(c10::DispatchKeySet /*keys*/, const Operator& op,
                               TensorPointers tensors, const CallParameters& parameters) {
    const double p = parameters.numbers.values[0];
    const AlphaDropoutForm form = alpha_dropout_form(op);
    const int self_position = form == AlphaDropoutForm::kValue ? 0 : 1;
    const at::Tensor& self = *tensors[self_position];
    const at::Tensor& seed = *tensors[op.num_inputs() - 1];
    check(op, self, seed, p);
    at::Tensor result = Backend::fresh_like(self);
    at::Tensor out = result;
    if (!is_row_major(result)) out = at::empty_like(self, at::MemoryFormat::Contiguous);
    const DefaultFloatingPoint environment;
    at::Tensor inputs[2];
    int count = 0;
    if (form != AlphaDropoutForm::kValue) {
      const at::Tensor& g = *tensors[0];
      TORCH_CHECK(g.sym_sizes() == self.sym_sizes() && g.device() == self.device(),
                  "fastact::", op.name, ": expected grad_output to have self's shape ",
                  self.sym_sizes(), " and to be on ", self.device(), ", but got ", g.sym_sizes(),
                  " on ", g.device());
      inputs[count++] = row_major(converted(g, self.scalar_type()));
    }
    if (form != AlphaDropoutForm::kMask) inputs[count++] = row_major(self);
    Backend::run(op, p, seed, out, {inputs, static_cast<size_t>(count)});
    return out.is_same(result) ? result : result.copy_(out);
  }

 private:
  static void check(const Operator& op, const at::Tensor& self, const at::Tensor& seed, double p) {
    TORCH_CHECK_NOT_IMPLEMENTED(engine_type(self.scalar_type()).has_value(), "fastact::", op.name,
                                ": expected self to be float32, float64, bfloat16 or float16, but "
                                "got ",
                                self.scalar_type());
    TORCH_CHECK(seed.scalar_type() == at::kLong && seed.sym_numel() == 1, "fastact::", op.name,
                ": expected seed to be one int64, but got ", seed.sym_numel(), " of the type ",
                seed.scalar_type());
    TORCH_CHECK(seed.device() == self.device(), "fastact::", op.name, ": expected seed to be on ",
                self.device(), ", but got ", seed.device());
    TORCH_CHECK_VALUE(p > 0 && p < 1, "fastact::", op.name,
                      ": expected p to be between 0 and 1, but got ", p);
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

// What the CPU's, CUDA's and Meta's kernels of SELU with alpha dropout have in common: checks, and
// operands that lie densely in one order, which tells an element's position.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <concepts>
#include <span>

#include "registration/checks.h"
#include "registration/operators/alpha_dropout.h"
#include "registration/operators/signature.h"

namespace fastact {

template <class B>
concept IsAlphaDropoutBackend =
    requires(const Operator& op, double p, const at::Tensor& seed, const at::Tensor& out,
             std::span<const at::Tensor> inputs) {
      // The kernel; the inputs have out's strides.
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
    const at::Tensor out = at::empty_like(self);
    at::Tensor inputs[2];
    int count = 0;
    if (form != AlphaDropoutForm::kValue) {
      const at::Tensor& g = *tensors[0];
      TORCH_CHECK(g.sym_sizes() == self.sym_sizes() && g.device() == self.device(),
                  "fastact::", op.name, ": expected grad_output to have self's shape ",
                  self.sym_sizes(), " and to be on ", self.device(), ", but got ", g.sym_sizes(),
                  " on ", g.device());
      inputs[count++] = laid_out(g.to(self.scalar_type()), out);
    }
    if (form != AlphaDropoutForm::kMask) inputs[count++] = laid_out(self, out);
    Backend::run(op, p, seed, out, {inputs, static_cast<size_t>(count)});
    return out;
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

  static at::Tensor laid_out(const at::Tensor& tensor, const at::Tensor& like) {
    if (tensor.sym_strides() == like.sym_strides()) return tensor;
    return at::empty_like(like).copy_(tensor);
  }
};

}  // namespace fastact

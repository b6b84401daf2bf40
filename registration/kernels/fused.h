// Shared by the CPU, CUDA and Meta kernels of fused operators. Corresponds to pointwise.h for
// inputs that may be absent, or float beside a 16-bit type.
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>

#include "registration/checks.h"
#include "registration/composites/fused_gradients.h"
#include "registration/kernels/pointwise.h"
#include "registration/operators/fused.h"
#include "registration/operators/operator.h"
#include "registration/overlap.h"

namespace fastact {

// The inputs that are present, in the iterator's order.
struct FusedInputs {
  explicit FusedInputs(TensorPointers tensors) {
    const c10::ScalarType type = tensors[0]->scalar_type();
    for (int i = 0; i < kFusedInputs; ++i) {
      if (!tensors[i]->defined()) continue;
      present[count++] = tensors[i];
      set.add(static_cast<FusedInput>(i));
      if (tensors[i]->scalar_type() != type) float32.add(static_cast<FusedInput>(i));
    }
  }

  [[nodiscard]] std::span<const at::Tensor* const> tensors() const {
    return {present, static_cast<size_t>(count)};
  }

  const at::Tensor* present[kFusedInputs];
  int count = 0;
  FusedSet set;
  FusedSet float32;
};

template <class B>
concept IsFusedBackend =
    IsBackend<B> && requires(const Operator& op, DType type, const CallParameters& parameters,
                             const FusedInputs& inputs, at::TensorIteratorBase& iterator) {
      // Runs the kernel over the present operands as the iterator describes them. If there is a
      // second output, it is z, and has the strides of the first.
      B::run_fused(op, type, parameters, inputs, iterator);
    };

template <IsFusedBackend Backend>
struct FusedPointwise {
  static at::Tensor functional(c10::DispatchKeySet /*keys*/, const Operator& op,
                               TensorPointers tensors, const CallParameters& parameters) {
    check_fused(op, tensors, parameters);
    const FusedInputs inputs(tensors);
    at::Tensor out;
    if (lies_like_self(inputs)) out = Pointwise<Backend>::empty_like_dense(*tensors[0]);
    iterate(op, inputs, parameters, out);
    return out;
  }

  // Computes the result and z: in one pass if self is dense, and residual and gate have its shape
  // and layout. Otherwise z is computed separately, with the same bits.
  static void several(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                      const CallParameters& parameters, at::Tensor* results) {
    const Operator& forward = *op.called[kFusedForward];
    check_fused(forward, tensors, parameters);
    const FusedInputs inputs(tensors);
    const at::Tensor& self = *tensors[0];
    const auto has_its_size = [&](FusedInput input) {
      const at::Tensor& other = *tensors[static_cast<int>(input)];
      return !other.defined() || other.sizes() == self.sizes();
    };
    if (!lies_like_self(inputs) || !has_its_size(FusedInput::kResidual) ||
        !has_its_size(FusedInput::kGate)) {
      results[0] = functional(keys, forward, tensors, parameters);
      results[1] = fused_preactivation_of(tensors);
      return;
    }
    for (int i = 0; i < op.results; ++i) results[i] = Pointwise<Backend>::empty_like_dense(self);
    iterate(op, inputs, parameters, results[0], &results[1]);
  }

  static at::Tensor& out(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                         const CallParameters& parameters, at::Tensor& out) {
    check_fused(op, tensors, parameters);
    const c10::ScalarType type = tensors[0]->scalar_type();
    check_out(op, tensors, type, out);
    const FusedInputs inputs(tensors);
    for (int i = 0; i < inputs.count; ++i) check_overlap(out, *inputs.present[i]);
    if (out.scalar_type() == type) {
      iterate(op, inputs, parameters, out);
    } else {
      Pointwise<Backend>::write_as_another_type(functional(keys, op, tensors, parameters), out);
    }
    return out;
  }

 private:
  // Returns true if the result has the layout of a dense self. Then the layout is known without the
  // iterator, and the backend allocates the memory. A residual or a gate that does not broadcast
  // has the same layout.
  static bool lies_like_self(const FusedInputs& inputs) {
    const at::Tensor& self = *inputs.present[0];
    if (!self.is_non_overlapping_and_dense()) return false;
    return std::all_of(inputs.present + 1, inputs.present + inputs.count,
                       [&](const at::Tensor* other) {
                         if (other->sizes() == self.sizes())
                           return other->strides() == self.strides();
                         return at::is_expandable_to(other->sizes(), self.sizes());
                       });
  }

  // Runs the kernel through the iterator. If `preactivation` is not null, it is a second output, z.
  static void iterate(const Operator& op, const FusedInputs& inputs,
                      const CallParameters& parameters, at::Tensor& out,
                      const at::Tensor* preactivation = nullptr) {
    const at::Tensor& self = *inputs.present[0];
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false).check_all_same_dtype(false).declare_static_dtype_and_device(
        self.scalar_type(), self.device());
    if (out.defined()) {
      config.add_output(out);
    } else {
      config.add_owned_output(out);
    }
    if (preactivation != nullptr) config.add_output(*preactivation);
    for (int i = 0; i < inputs.count; ++i) config.add_const_input(*inputs.present[i]);
    at::TensorIterator iterator = config.build();
    if (!out.defined()) out = iterator.output();
    if (iterator.numel() == 0) return;
    Backend::run_fused(op, *engine_type(self.scalar_type()), parameters, inputs, iterator);
  }
};

}  // namespace fastact

// Shared by the CPU and CUDA kernels of the fused operators' gradients: selects the tensors that
// one pass over memory can take, and handles the others.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <concepts>
#include <optional>

#include "registration/checks.h"
#include "registration/operators/fused.h"
#include "registration/operators/operator.h"

namespace fastact {

// The tensors of the call: grad_output, the inputs, and their gradients.
struct FusedBackwardTensors {
  static constexpr int kCount = 1 + 2 * kFusedInputs;
  at::Tensor grad_output;
  at::Tensor inputs[kFusedInputs];
  at::Tensor gradients[kFusedInputs];

  [[nodiscard]] bool any_is_symbolic() const {
    for (int i = 0; i < kCount; ++i) {
      if ((*this)[i].defined() && (*this)[i].unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] const at::Tensor& operator[](int i) const {
    return i == 0              ? grad_output
           : i <= kFusedInputs ? inputs[i - 1]
                               : gradients[i - 1 - kFusedInputs];
  }
};

// A size, and the distance between neighbours in elements for each tensor.
struct FusedDimension {
  int64_t size = 1;
  int64_t strides[FusedBackwardTensors::kCount] = {};
};

// The tensors as [outer, channels, inner]. Scale and bias vary along the channels. If `inner` is 1,
// the channels are the columns of rows. Without scale and bias the tensors are rows. If scale and
// bias have one element, there is one channel.
struct FusedLayout {
  FusedDimension outer, channels, inner;
};

// Returns the layout, or nothing if the engines do not support it.
std::optional<FusedLayout> fused_layout(const FusedBackwardTensors& tensors);

// The interface of a device to FusedBackward.
template <class B>
concept IsFusedBackwardBackend = requires(
    const at::Tensor& self, const Operator& op, DType type, const CallParameters& parameters,
    const FusedBackwardTensors& tensors, const FusedLayout& layout, at::Tensor (&sums)[2]) {
  // Returns uninitialized memory with the strides of `self`.
  { B::fresh_like(self) } -> std::same_as<at::Tensor>;
  // Writes the gradients of self, residual and gate, and creates those of scale and bias (one
  // number per channel) if they are wanted. Returns false and does nothing if it does not
  // support the layout.
  { B::run_fused_backward(op, type, parameters, tensors, layout, sums) } -> std::same_as<bool>;
};

template <IsFusedBackwardBackend Backend>
struct FusedBackward {
  static void several(c10::DispatchKeySet /*keys*/, const Operator& op, TensorPointers operands,
                      const CallParameters& parameters, at::Tensor* results) {
    const Operator& forward = *op.called[kFusedForward];
    FusedBackwardTensors tensors;
    tensors.grad_output = *operands[0];
    for (int i = 0; i < kFusedInputs; ++i) tensors.inputs[i] = *operands[1 + i];
    check_fused(forward, operands + 1, parameters);
    const at::Tensor& self = tensors.inputs[kSelf];
    TORCH_CHECK(tensors.grad_output.device() == self.device(), "fastact::", op.name,
                ": expected grad_output to be on self's device, ", self.device(), ", but got ",
                tensors.grad_output.device());
    if (run(op, parameters, tensors)) {
      std::ranges::move(tensors.gradients, results);
    } else {
      op.composition(op, operands, parameters, results);
    }
  }

 private:
  // True if the gradient of an absent scale or bias is requested. Such a sum has no shape, and
  // the composition raises the error.
  static bool sums_absent_vector(const FusedBackwardTensors& tensors, const OutputMask& mask) {
    return (mask[kScale] && !tensors.inputs[kScale].defined()) ||
           (mask[kBias] && !tensors.inputs[kBias].defined());
  }

  // Returns true if the engine takes these tensors.
  static bool run(const Operator& op, const CallParameters& parameters,
                  FusedBackwardTensors& tensors) {
    const OutputMask& mask = parameters.output_mask;
    const at::Tensor& self = tensors.inputs[kSelf];
    const DType type = *engine_type(self.scalar_type());
    if (tensors.grad_output.scalar_type() != self.scalar_type() || tensors.any_is_symbolic() ||
        sums_absent_vector(tensors, mask)) {
      return false;
    }
    // Without a scale, residual has the same gradient as self. The kernel then writes one of them.
    const bool is_shared = mask[kSelf] && mask[kResidual] && !tensors.inputs[kScale].defined();
    for (const int i : {kSelf, kResidual, kGate}) {
      if (mask[i] && (i != kResidual || !is_shared))
        tensors.gradients[i] = Backend::fresh_like(self);
    }
    std::optional<FusedLayout> layout = fused_layout(tensors);
    if (!layout.has_value() && tensors.grad_output.sizes() == self.sizes() &&
        tensors.grad_output.strides() != self.strides()) {
      // The gradient of a sum, for example, is one number with strides of 0.
      tensors.grad_output = Backend::fresh_like(self).copy_(tensors.grad_output);
      layout = fused_layout(tensors);
    }
    at::Tensor sums[2];
    if (!layout.has_value() ||
        !Backend::run_fused_backward(op, type, parameters, tensors, *layout, sums)) {
      for (at::Tensor& gradient : tensors.gradients) gradient = at::Tensor();
      return false;
    }
    // In the vector's own strides, which may differ for several dimensions.
    const auto as_vector = [&](const at::Tensor& numbers, int input) {
      const at::Tensor& vector = tensors.inputs[input];
      return numbers.view(-1).as_strided(vector.sizes(), vector.strides());
    };
    if (mask[kScale]) tensors.gradients[kScale] = as_vector(sums[0], kScale);
    if (mask[kBias]) tensors.gradients[kBias] = as_vector(sums[1], kBias);
    // The results of an operator must not share memory.
    if (is_shared) tensors.gradients[kResidual] = tensors.gradients[kSelf].clone();
    return true;
  }
};

}  // namespace fastact

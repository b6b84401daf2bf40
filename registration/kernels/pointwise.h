// Shared by the CPU, CUDA and Meta kernels of operators whose inputs are all required: checks, type
// promotion, outputs with ATen's strides, and the choice between the dense path, which needs no
// iterator, and at::TensorIterator for everything else.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <concepts>

#include "registration/checks.h"
#include "registration/conversion.h"
#include "registration/operators/operator.h"
#include "registration/overlap.h"

namespace fastact {

// The interface of a device to Pointwise.
template <class B>
concept IsBackend =
    requires(const at::Tensor& like, c10::MemoryFormat format, const Operator& op,
             const KernelId& id, const CallParameters& parameters, const at::Tensor& out,
             TensorPointers tensors, at::TensorIteratorBase& iterator) {
      // Return uninitialized memory, contiguous in this format or with the strides of `like`.
      { B::empty(like, format) } -> std::same_as<at::Tensor>;
      { B::empty_strided(like) } -> std::same_as<at::Tensor>;
      // Returns true if ATen converts tensors of several types before it chooses the result's
      // strides.
      { B::converts_first(like) } -> std::same_as<bool>;
      // Run the kernel over operands that are all dense in the same order, or as the iterator
      // describes them.
      B::run_dense(op, id, parameters, out, tensors);
      B::run(op, id, parameters, iterator);
    };

// Returns which of the operator's inputs is at `position` in the iterator. If the strides of the
// first one do not determine the layout of a new result, those of the next one do.
inline int iterator_input(const Operator& op, int position) {
  return op.last_input_leads ? op.last_input() - position : position;
}

inline void add_inputs(at::TensorIteratorConfig& config, const Operator& op,
                       TensorPointers tensors) {
  for (int i = 0; i < op.num_inputs(); ++i) config.add_const_input(*tensors[iterator_input(op, i)]);
}

// Returns the iterator's position of a kernel operand: 0 is the result, 1 the schema's first
// tensor.
inline int iterator_operand(const Operator& op, int operand) {
  return operand == 0 ? 0 : 1 + iterator_input(op, operand - 1);
}

template <IsBackend Backend>
struct Pointwise {
  static at::Tensor functional(c10::DispatchKeySet /*keys*/, const Operator& op,
                               TensorPointers tensors, const CallParameters& parameters) {
    check_inputs(op, tensors, parameters);
    at::Tensor out;
    if (equally_dense(op, tensors)) {
      out = empty_like_dense(*tensors[op.last_input()]);
      Backend::run_dense(op, kernel_id(op, out.scalar_type(), parameters), parameters, out,
                         tensors);
    } else {
      iterate(op, tensors, parameters, out);
    }
    return out;
  }

  static at::Tensor& in_place(c10::DispatchKeySet /*keys*/, const Operator& op, at::Tensor& self,
                              const CallParameters& parameters) {
    const at::Tensor* tensors[] = {&self};
    check_inputs(op, tensors, parameters);
    if (self.is_non_overlapping_and_dense()) {
      Backend::run_dense(op, kernel_id(op, self.scalar_type(), parameters), parameters, self,
                         tensors);
    } else {
      at::assert_no_internal_overlap(self);
      iterate(op, tensors, parameters, self);
    }
    return self;
  }

  static at::Tensor& out(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                         const CallParameters& parameters, at::Tensor& out) {
    check_inputs(op, tensors, parameters);
    const c10::ScalarType type = promoted_type({tensors, static_cast<size_t>(op.num_inputs())});
    check_out(op, tensors, type, out);
    for (int i = 0; i < op.num_inputs(); ++i) check_overlap(out, *tensors[i]);
    if (out.scalar_type() == type && equally_dense(op, tensors) &&
        lies_like(out, *tensors[op.last_input()])) {
      Backend::run_dense(op, kernel_id(op, out.scalar_type(), parameters), parameters, out,
                         tensors);
    } else if (out.scalar_type() == type) {
      iterate(op, tensors, parameters, out);
    } else {
      write_as_another_type(functional(keys, op, tensors, parameters), out);
    }
    return out;
  }

  static void several(c10::DispatchKeySet /*keys*/, const Operator& op, TensorPointers tensors,
                      const CallParameters& parameters, at::Tensor* results) {
    check_inputs(op, tensors, parameters);
    const Promoted promoted({tensors, static_cast<size_t>(op.num_inputs())});
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false);
    for (int i = 0; i < op.results; ++i) config.add_owned_output(at::Tensor());
    add_inputs(config, op, promoted.tensors());
    at::TensorIterator iterator = config.build();
    if (iterator.numel() > 0)
      Backend::run(op, kernel_id(op, iterator.dtype(0), parameters), parameters, iterator);
    for (int i = 0; i < op.results; ++i) results[i] = iterator.output(i);
  }

  // Rounds to the result's type first, then to out's type, in ATen's order.
  static void write_as_another_type(const at::Tensor& result, at::Tensor& out) {
    if (at::native::resize_output(out, result.sizes()))
      out.as_strided_(result.sizes(), result.strides());
    copy_converted(result, out);
  }

  // Returns a tensor with the strides that at::TensorIterator chooses for dense operands.
  static at::Tensor empty_like_dense(const at::Tensor& self) {
    if (self.is_contiguous()) return Backend::empty(self, c10::MemoryFormat::Contiguous);
    if (self.is_contiguous(c10::MemoryFormat::ChannelsLast))
      return Backend::empty(self, c10::MemoryFormat::ChannelsLast);
    return Backend::empty_strided(self);
  }

 private:
  static KernelId kernel_id(const Operator& op, c10::ScalarType type,
                            const CallParameters& parameters) {
    return op.kernel_id(*engine_type(type), parameters);
  }

  // Returns true if every tensor is dense and element i in memory order is the same element in all
  // of them.
  static bool equally_dense(const Operator& op, TensorPointers tensors) {
    const at::Tensor& self = *tensors[op.last_input()];
    if (!self.is_non_overlapping_and_dense()) return false;
    return std::all_of(tensors, tensors + op.last_input(), [&](const at::Tensor* other) {
      return other->scalar_type() == self.scalar_type() && lies_like(*other, self);
    });
  }

  // Returns true if `other` has self's shape and, given that self is dense, self's order in memory.
  static bool lies_like(const at::Tensor& other, const at::Tensor& self) {
    return other.sizes() == self.sizes() &&
           ((other.is_contiguous() && self.is_contiguous()) || other.strides() == self.strides());
  }

  // Promotes, broadcasts, allocates or resizes the output, merges dimensions, and runs the kernel.
  // If `out` is defined, it has the promoted type of the inputs.
  static void iterate(const Operator& op, TensorPointers tensors, const CallParameters& parameters,
                      at::Tensor& out) {
    const c10::ScalarType type = tensors[op.last_input()]->scalar_type();
    const bool mixed =
        std::any_of(tensors, tensors + op.last_input(),
                    [&](const at::Tensor* other) { return other->scalar_type() != type; });
    if (mixed && Backend::converts_first(*tensors[op.last_input()])) {
      iterate(op, Promoted({tensors, static_cast<size_t>(op.num_inputs())}).tensors(), parameters,
              out);
      return;
    }
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false).promote_inputs_to_common_dtype(mixed);
    if (out.defined()) {
      config.add_output(out);
    } else {
      config.add_owned_output(out);
    }
    add_inputs(config, op, tensors);
    at::TensorIterator iterator = config.build();
    if (!out.defined()) out = iterator.output();
    if (iterator.numel() == 0) return;
    if (mixed) {
      // The iterator has converted nothing: ATen's GPU kernels read every type.
      iterate(op, Promoted({tensors, static_cast<size_t>(op.num_inputs())}).tensors(), parameters,
              out);
      return;
    }
    Backend::run(op, kernel_id(op, iterator.dtype(0), parameters), parameters, iterator);
  }
};

}  // namespace fastact

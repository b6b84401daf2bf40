// What the CPU's, CUDA's and Meta's kernels have in common: checks, type promotion, outputs with
// ATen's strides, and the choice between the dense path, which needs no iterator, and
// at::TensorIterator for everything else.
//
// A Backend has
//
//   // Contiguous in that format; with like's strides.
//   static at::Tensor empty(const at::Tensor& like, c10::MemoryFormat);
//   static at::Tensor empty_strided(const at::Tensor& like);
//
//   // Whether ATen converts tensors of several types before it chooses the result's strides.
//   static bool converts_first(const at::Tensor& self);
//
//   static void run_dense(const Family&, const KernelId&, const CallParameters&,
//                         const at::Tensor& out, TensorPointers);
//   static void run(const Family&, const KernelId&, const CallParameters&,
//                   at::TensorIteratorBase&);
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>

#include <algorithm>

#include "registration/checks.h"

namespace fastact {

// Which of D_order's tensors is the iterator's input at `position`. Where the first one's strides
// leave the layout of a new result open, the next one's decide.
inline int iterator_input(const Family& family, int order, int position) {
  return family.traits().self_leads ? order - position : position;
}

inline void add_inputs(at::TensorIteratorConfig& config, const Family& family, int order,
                       TensorPointers tensors) {
  for (int i = 0; i <= order; ++i)
    config.add_const_input(*tensors[iterator_input(family, order, i)]);
}

// Where the iterator has a kernel's operand: 0 is the result, 1 the schema's first tensor.
inline int iterator_operand(const Family& family, int order, int operand) {
  return operand == 0 ? 0 : 1 + iterator_input(family, order, operand - 1);
}

template <class Backend>
struct Pointwise {
  static at::Tensor functional(c10::DispatchKeySet /*keys*/, const Family& family, int order,
                               TensorPointers tensors, const CallParameters& parameters) {
    check_inputs(family, order, tensors, parameters);
    at::Tensor out;
    if (equally_dense(order, tensors)) {
      out = empty_like_dense(*tensors[order]);
      Backend::run_dense(family, kernel_id(order, out.scalar_type(), parameters), parameters, out,
                         tensors);
    } else {
      iterate(family, order, tensors, parameters, out);
    }
    return out;
  }

  static at::Tensor& in_place(c10::DispatchKeySet /*keys*/, const Family& family, at::Tensor& self,
                              const CallParameters& parameters) {
    const at::Tensor* tensors[] = {&self};
    check_inputs(family, 0, tensors, parameters);
    if (self.is_non_overlapping_and_dense()) {
      Backend::run_dense(family, kernel_id(0, self.scalar_type(), parameters), parameters, self,
                         tensors);
    } else {
      at::assert_no_internal_overlap(self);
      iterate(family, 0, tensors, parameters, self);
    }
    return self;
  }

  static at::Tensor& out(c10::DispatchKeySet keys, const Family& family, int order,
                         TensorPointers tensors, const CallParameters& parameters,
                         at::Tensor& out) {
    check_inputs(family, order, tensors, parameters);
    const c10::ScalarType type = promoted_type(order, tensors);
    check_out(family, order, tensors, type, out);
    check_overlap(order, tensors, out);
    if (out.scalar_type() == type && equally_dense(order, tensors) &&
        lies_like(out, *tensors[order])) {
      Backend::run_dense(family, kernel_id(order, out.scalar_type(), parameters), parameters, out,
                         tensors);
    } else if (out.scalar_type() == type) {
      iterate(family, order, tensors, parameters, out);
    } else {
      // Rounded to the result type first, then to out's: ATen's order.
      const at::Tensor result = functional(keys, family, order, tensors, parameters);
      if (at::native::resize_output(out, result.sizes()))
        out.as_strided_(result.sizes(), result.strides());
      out.copy_(result);
    }
    return out;
  }

 private:
  static KernelId kernel_id(int order, c10::ScalarType type, const CallParameters& parameters) {
    return {order, parameters.from_result, *engine_type(type)};
  }

  // Whether every tensor is dense, and element i of one is element i of all in memory order.
  static bool equally_dense(int order, TensorPointers tensors) {
    const at::Tensor& self = *tensors[order];
    if (!self.is_non_overlapping_and_dense()) return false;
    return std::all_of(tensors, tensors + order, [&](const at::Tensor* gradient) {
      return gradient->scalar_type() == self.scalar_type() && lies_like(*gradient, self);
    });
  }

  // Whether the other tensor has self's shape and, self being dense, its order in memory.
  static bool lies_like(const at::Tensor& other, const at::Tensor& self) {
    return other.sizes() == self.sizes() &&
           ((other.is_contiguous() && self.is_contiguous()) || other.strides() == self.strides());
  }

  // at::TensorIterator's choice of strides for dense operands.
  static at::Tensor empty_like_dense(const at::Tensor& self) {
    if (self.is_contiguous()) return Backend::empty(self, c10::MemoryFormat::Contiguous);
    if (self.is_contiguous(c10::MemoryFormat::ChannelsLast))
      return Backend::empty(self, c10::MemoryFormat::ChannelsLast);
    return Backend::empty_strided(self);
  }

  // at::TensorIterator's check, on the tensors of the call: a converted one has memory of its own.
  static void check_overlap(int order, TensorPointers tensors, const at::Tensor& out) {
    at::assert_no_internal_overlap(out);
    for (int i = 0; i <= order; ++i) {
      if (!tensors[i]->is_same(out)) at::assert_no_partial_overlap(out, *tensors[i]);
    }
  }

  // Promotes, broadcasts, allocates or resizes the output, merges dimensions, and runs. An output
  // that is defined has the type to which the inputs promote.
  static void iterate(const Family& family, int order, TensorPointers tensors,
                      const CallParameters& parameters, at::Tensor& out) {
    const c10::ScalarType type = tensors[order]->scalar_type();
    const bool mixed = std::any_of(tensors, tensors + order, [&](const at::Tensor* gradient) {
      return gradient->scalar_type() != type;
    });
    if (mixed && Backend::converts_first(*tensors[order])) {
      iterate(family, order, Promoted(order, tensors).tensors(), parameters, out);
      return;
    }
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false).promote_inputs_to_common_dtype(mixed);
    if (out.defined()) {
      config.add_output(out);
    } else {
      config.add_owned_output(out);
    }
    add_inputs(config, family, order, tensors);
    at::TensorIterator iterator = config.build();
    if (!out.defined()) out = iterator.output();
    if (iterator.numel() == 0) return;
    if (mixed) {
      // The iterator has converted nothing: ATen's kernels for a GPU read every type.
      iterate(family, order, Promoted(order, tensors).tensors(), parameters, out);
      return;
    }
    Backend::run(family, kernel_id(order, iterator.dtype(0), parameters), parameters, iterator);
  }
};

}  // namespace fastact

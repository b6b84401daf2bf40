// What the CPU and CUDA kernels have in common: checks, type promotion, outputs with ATen's
// strides, and the choice between the dense path, which needs no iterator, and at::TensorIterator
// for everything else.
//
// A Backend has
//   static at::Tensor empty(const at::Tensor& like, c10::MemoryFormat)       contiguous in that
//   format static at::Tensor empty_strided(const at::Tensor& like)                  with like's
//   strides static void run_dense(const Family&, const KernelId&, const CallParameters&, const
//   at::Tensor& out, TensorPointers) static void run(const Family&, const KernelId&, const
//   CallParameters&, at::TensorIteratorBase&)
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>

#include <algorithm>

#include "registration/checks.h"

namespace fastact {

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
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false).promote_inputs_to_common_dtype(mixed);
    if (out.defined()) {
      config.add_output(out);
    } else {
      config.add_owned_output(out);
    }
    for (int i = 0; i <= order; ++i) config.add_const_input(*tensors[i]);
    at::TensorIterator iterator = config.build();
    if (!out.defined()) out = iterator.output();
    if (iterator.numel() == 0) return;
    if (mixed && !iterator.device(0).is_cpu()) {
      // The iterator has converted nothing: ATen's other kernels read every type. Strides are
      // chosen by now, for the inputs as they were.
      at::Tensor converted[kTopOrder + 1];
      const at::Tensor* promoted[kTopOrder + 1];
      for (int i = 0; i <= order; ++i) {
        converted[i] = tensors[i]->to(iterator.common_dtype());
        promoted[i] = &converted[i];
      }
      iterate(family, order, promoted, parameters, out);
      return;
    }
    Backend::run(family, kernel_id(order, iterator.dtype(0), parameters), parameters, iterator);
  }
};

}  // namespace fastact

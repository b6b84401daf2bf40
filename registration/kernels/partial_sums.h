// The partial sums of a gradient that is a sum over the rows or images of a batch, on the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>

#include "ops/cpu/fused.h"
#include "registration/checks.h"

namespace fastact {

// Returns how many parts of this size cover `size`.
inline int64_t parts(int64_t size, int64_t part) { return (size + part - 1) / part; }

// A partial sum for each group and channel. ops/kernel.h describes the groups and the order.
class PartialSums {
 public:
  PartialSums(bool wanted, int64_t groups, int64_t channels) : channels_(channels) {
    if (!wanted) return;
    sums_ = at::empty({groups, channels}, at::kDouble);
    first_ = sums_.mutable_data_ptr<double>();
  }

  // Returns null if the sums are not wanted.
  [[nodiscard]] double* at(int64_t group, int64_t channel) const {
    return first_ == nullptr ? nullptr : first_ + group * channels_ + channel;
  }

  // Adds the groups. Returns one element of this type for each channel, or an undefined tensor if
  // the sums are not wanted. May be called once.
  [[nodiscard]] at::Tensor total(c10::ScalarType type, cpu::InstructionSet set) const {
    if (!sums_.defined()) return {};
    at::Tensor result = at::empty({channels_}, type);
    cpu::find_fused_kernels(*engine_type(type), set)
        .add_sums(first_, sums_.size(0), channels_, result.mutable_data_ptr());
    return result;
  }

 private:
  int64_t channels_;
  at::Tensor sums_;
  double* first_ = nullptr;
};

}  // namespace fastact

// The fused form over strided operands on the CPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cpu/fused_blocks.h"
#include "ops/cpu/strided.h"

namespace fastact::cpu::inline FASTACT_TARGET {

template <class Element>
class Forward {
 public:
  using T = OpMath<Element>;

  static void run(const FusedCall& call, char* const* data, const int64_t* strides, int64_t size0,
                  int64_t size1) {
    if (size0 == 0 || size1 == 0) return;
    Forward forward(call, data, strides, size0, size1);
    if (forward.has_dense_rows_) {
      forward.run_rows();
      return;
    }
    OperandSizes sizes = {.outputs = 1, .count = 1, .bytes = {kSize}};
    for (int i = 0; i < kFusedInputs; ++i) {
      const auto input = static_cast<FusedInput>(i);
      if (!call.inputs.has(input)) continue;
      sizes.bytes[sizes.count++] = call.float32.has(input) ? sizeof(T) : sizeof(Element);
    }
    cpu::run({&compute, &call, sizes}, data, strides, size0, size1);
  }

 private:
  static constexpr int64_t kSize = sizeof(Element);

  struct Rows {
    char* data = nullptr;
    int64_t stride = 0;  // bytes between rows

    [[nodiscard]] Element* at(int64_t row) const {
      return data == nullptr ? nullptr : reinterpret_cast<Element*>(data + row * stride);
    }
  };

  Forward(const FusedCall& call, char* const* data, const int64_t* strides, int64_t size0,
          int64_t size1)
      : call_(call), columns_(size0), rows_(size1) {
    int count = call.writes_preactivation ? 2 : 1;
    for (int i = 0; i < kFusedInputs; ++i) count += call.inputs.has(static_cast<FusedInput>(i));
    bool is_in_place = false;
    const auto take = [&](int operand) {
      has_dense_rows_ &= strides[operand] == kSize || size0 == 1;
      touch_ &= strides[count + operand] == size0 * kSize || size1 == 1;
      is_in_place |= operand > 0 && data[operand] == data[0];
      return Rows{data[operand], strides[count + operand]};
    };
    int next = 0;
    out_ = take(next++);
    if (call.writes_preactivation) preactivation_ = take(next++);
    for (int i = 0; i < kFusedInputs; ++i) {
      const auto input = static_cast<FusedInput>(i);
      if (!call.inputs.has(input)) continue;
      if (is_vector(i)) {
        vectors_[i == kBias] = {data[next], strides[next], strides[count + next],
                                call.float32.has(input)};
        is_in_place |= data[next] == data[0];
        ++next;
      } else {
        (i == kSelf ? self_ : i == kResidual ? residual_ : gate_) = take(next++);
      }
    }
    const bool is_large = size0 * size1 * kSize >= kStreamedBytes;
    fetches_ = is_large;
    streams_ = is_large && !is_in_place && reinterpret_cast<intptr_t>(data[0]) % kSize == 0;
  }

  void run_rows() {
    const bool has_vectors = vectors_[0].data != nullptr || vectors_[1].data != nullptr;
    const bool repeat = touch_ && rows_ > 1 && has_vectors && vectors_[0].stride1 == 0 &&
                        vectors_[1].stride1 == 0 && columns_ < kRepeatedRow;
    int64_t repeats = repeat ? std::min(kBlock / columns_, rows_) : 1;
    // Rounds the number of repeated rows so that they fill whole cache lines, if possible.
    int64_t even = 1;
    while (even * columns_ * kSize % kCacheLine != 0) even *= 2;
    if (repeats > even) repeats -= repeats % even;
    Preactivation<Element> preactivation(vectors_[0], vectors_[1], residual_.data != nullptr,
                                         columns_, repeats);
    for_each_block(preactivation, repeats);
    if (streams_) finish_stream();
  }

  // Visits blocks of contiguous rows, or of parts of one row.
  void for_each_block(Preactivation<Element>& preactivation, int64_t repeats) const {
    const int64_t height = repeats > 1                       ? repeats
                           : touch_ && columns_ <= kShortRow ? kBlock / columns_
                                                             : 1;
    for (int64_t row = 0; row < rows_; row += height) {
      const int64_t rows = std::min(height, rows_ - row);
      if (rows > 1 || columns_ <= kBlock) {
        block(preactivation, row, rows, 0, columns_);
        continue;
      }
      // If z is self, the row is one block, unless its memory has to be prefetched.
      const int64_t step = preactivation.is_self() && !fetches_ ? columns_ : kBlock;
      // The first block ends at a cache line, and later blocks start at one.
      const int64_t head =
          streams_ ? (kCacheLine - reinterpret_cast<intptr_t>(out_.at(row)) % kCacheLine) %
                         kCacheLine / kSize
                   : 0;
      if (head > 0) block(preactivation, row, 1, 0, head);
      for (int64_t start = head; start < columns_; start += step)
        block(preactivation, row, 1, start, std::min(step, columns_ - start));
    }
  }

  // Computes `columns` columns of `rows` rows. With several rows, `columns` is the whole row.
  void block(Preactivation<Element>& preactivation, int64_t row, int64_t rows, int64_t start,
             int64_t columns) const {
    const int64_t n = rows * columns;
    const auto at = [&](const Rows& operand) {
      return operand.data == nullptr ? nullptr : operand.at(row) + start;
    };
    const Element* const self = at(self_);
    const Element* const residual = at(residual_);
    const Element* const gate = at(gate_);
    Element* const out = at(out_);
    if (fetches_) {
      for (const Element* input : {self, residual, gate})
        if (input != nullptr) fetch(input + n, n);
    }
    alignas(kCacheLine) Block<Element> sums;
    const T* z = sums;
    if constexpr (kIs16Bit<Element>) {
      preactivation.make(self, residual, row, rows, start, columns, sums);
      if (preactivation_.data != nullptr) apply<Rounded<Element>>(n, at(preactivation_), sums);
    } else {
      T* const to = preactivation_.data != nullptr ? at(preactivation_) : sums;
      if (preactivation.is_self() && preactivation_.data == nullptr) {
        z = self;
      } else {
        preactivation.make(self, residual, row, rows, start, columns, to);
        if (to != sums) apply<Rounded<Element>>(n, to, to);  // makes NaNs canonical
        z = to;
      }
    }
    alignas(kCacheLine) Element rounded[kBlock];
    const bool streams = streams_ && reinterpret_cast<intptr_t>(out) % kCacheLine == 0;
    finish(call_, z, gate, n, streams ? rounded : out);
    if (streams)
      stream(reinterpret_cast<const char*>(rounded), reinterpret_cast<char*>(out), n * kSize);
  }

  // Writes f(z) * gate.
  static void finish(const FusedCall& call, const T* z, const Element* gate, int64_t n,
                     Element* out) {
    // Inputs are only read, but the array has one pointer type for inputs and output.
    char* const data[] = {reinterpret_cast<char*>(out),
                          const_cast<char*>(reinterpret_cast<const char*>(z)),
                          const_cast<char*>(reinterpret_cast<const char*>(gate))};
    (gate == nullptr ? call.activation.value : call.activation.gated)(call.parameters, data, n);
  }

  // Prefetches what the next block reads. A prefetch beyond the end is harmless because it is not
  // an access.
  static void fetch(const Element* from, int64_t n) {
    const auto* const first = reinterpret_cast<const char*>(from);
    for (int64_t line = 0; line < n * kSize; line += kCacheLine) __builtin_prefetch(first + line);
  }

  // DenseKernel::compute for one row of gathered operands.
  static void compute(const void* erased, char* const* data, int64_t n, Pace /*pace*/) {
    const auto& call = *static_cast<const FusedCall*>(erased);
    int64_t strides[2 * kFusedOperands] = {kSize};
    int next = 1;
    for (int i = 0; i < kFusedInputs; ++i) {
      const auto input = static_cast<FusedInput>(i);
      if (call.inputs.has(input))
        strides[next++] = call.float32.has(input) ? static_cast<int64_t>(sizeof(T)) : kSize;
    }
    Forward(call, data, strides, n, 1).run_rows();
  }

  const FusedCall& call_;
  int64_t columns_;
  int64_t rows_;
  bool has_dense_rows_ = true;
  bool touch_ = true;  // whether consecutive rows are contiguous
  bool fetches_ = false;
  bool streams_ = false;
  Rows out_, preactivation_, self_, residual_, gate_;
  VectorOperand vectors_[2];  // scale, bias
};

}  // namespace fastact::cpu::inline FASTACT_TARGET

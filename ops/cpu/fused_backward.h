// The gradients of the fused form over a tile on the CPU, and the tile's sums.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cpu/fused_blocks.h"
#include "ops/cpu/lanes.h"

namespace fastact::cpu::inline FASTACT_TARGET {

template <class Element>
class Backward {
 public:
  using T = OpMath<Element>;

  // The function that FusedBackwardKernel points to.
  static void run(const FusedBackwardCall& call, const FusedTile& tile) {
    Backward(call, tile).run();
  }

 private:
  static constexpr int64_t kSize = sizeof(Element);

  Backward(const FusedBackwardCall& call, const FusedTile& tile)
      : call_(call),
        tile_(tile),
        height_(height_of(tile)),
        preactivation_(vector(kScale), vector(kBias), tile.inputs[kResidual].data != nullptr,
                       tile.columns, tile.vectors_along_columns ? height_ : 1) {}

  // Returns how many rows share a block.
  static int64_t height_of(const FusedTile& tile) {
    bool touch = true;
    const auto look_at = [&](const FusedRows& rows) {
      touch &= rows.data == nullptr || rows.stride == tile.columns * kSize;
    };
    look_at(tile.grad_output);
    for (int i = 0; i < kFusedInputs; ++i) {
      if (!is_vector(i)) look_at(tile.inputs[i]);
      look_at(tile.gradients[i]);
    }
    return touch && tile.columns <= kShortRow ? std::min(kBlock / tile.columns, tile.rows) : 1;
  }

  [[nodiscard]] VectorOperand vector(int input) const {
    const bool is_float32 = call_.forward.float32.has(static_cast<FusedInput>(input));
    const FusedRows& rows = tile_.inputs[input];
    const int64_t step = is_float32 ? sizeof(T) : sizeof(Element);
    return tile_.vectors_along_columns ? VectorOperand{rows.data, step, 0, is_float32}
                                       : VectorOperand{rows.data, 0, rows.stride, is_float32};
  }

  void run() {
    const bool wants_scale = tile_.scale_sums != nullptr;
    const bool wants_bias = tile_.bias_sums != nullptr;
    const bool along_columns = tile_.vectors_along_columns;
    const int64_t sums = along_columns ? tile_.columns : tile_.rows;
    if (along_columns) {
      std::fill_n(scale_sums_, wants_scale ? sums : 0, T(0));
      std::fill_n(bias_sums_, wants_bias ? sums : 0, T(0));
    } else {
      if (wants_scale) std::fill_n(tile_.scale_sums, sums, 0.0);
      if (wants_bias) std::fill_n(tile_.bias_sums, sums, 0.0);
    }
    for (int64_t row = 0; row < tile_.rows; row += height_) {
      const int64_t rows = std::min(height_, tile_.rows - row);
      for (int64_t start = 0; start < tile_.columns; start += kBlock)
        block(row, rows, start, std::min(kBlock, tile_.columns - start));
    }
    if (!along_columns) return;
    if (wants_scale) std::copy_n(scale_sums_, sums, tile_.scale_sums);
    if (wants_bias) std::copy_n(bias_sums_, sums, tile_.bias_sums);
  }

  // Computes `columns` columns of `rows` rows. With several rows, `columns` is the whole row.
  void block(int64_t row, int64_t rows, int64_t start, int64_t columns) {
    const int64_t n = rows * columns;
    const auto at = [&](const FusedRows& operand) -> Element* {
      if (operand.data == nullptr) return nullptr;
      return reinterpret_cast<Element*>(operand.data + row * operand.stride) + start;
    };
    const Element* const self = at(tile_.inputs[kSelf]);
    const Element* const residual = at(tile_.inputs[kResidual]);
    const Element* const gate = at(tile_.inputs[kGate]);
    const Element* const grad_output = at(tile_.grad_output);
    Element* const self_gradient = at(tile_.gradients[kSelf]);
    Element* const residual_gradient = at(tile_.gradients[kResidual]);
    Element* const gate_gradient = at(tile_.gradients[kGate]);
    const bool scales = tile_.inputs[kScale].data != nullptr;

    alignas(kCacheLine) Block<Element> preactivation;
    alignas(kCacheLine) Block<Element> value;
    alignas(kCacheLine) Block<Element> incoming;
    alignas(kCacheLine) Block<Element> slopes;
    const T* z = preactivation;
    bool is_self = false;
    if constexpr (!kIs16Bit<Element>) {
      is_self = preactivation_.is_self();
      if (is_self) z = self;
    }
    if (!is_self) preactivation_.make(self, residual, row, rows, start, columns, preactivation);

    if (call_.slope_of_value) {
      call(call_.forward.activation.value, n, value, z);
      if (gate_gradient != nullptr)
        apply<Product<Element, Element, T>>(n, gate_gradient, grad_output, value);
    } else if (gate_gradient != nullptr) {
      call(call_.forward.activation.gated, n, gate_gradient, z, grad_output);
    }
    if (self_gradient == nullptr && residual_gradient == nullptr && tile_.scale_sums == nullptr &&
        tile_.bias_sums == nullptr) {
      return;
    }
    const T* g = incoming;
    if (gate != nullptr) {
      apply<Product<T, Element, Element>>(n, incoming, grad_output, gate);
    } else if constexpr (kIs16Bit<Element>) {
      apply<Product<T, Element>>(n, incoming, grad_output);
    } else {
      g = grad_output;
    }
    // If this gradient is itself a result, it is written to the result directly.
    Element* const gradient =
        !scales && self_gradient != nullptr ? self_gradient : residual_gradient;
    T* slope = slopes;
    if constexpr (!kIs16Bit<Element>) {
      if (gradient != nullptr) slope = gradient;
    }
    call(call_.forward.activation.slope, n, slope, g, call_.slope_of_value ? value : z);
    if constexpr (kIs16Bit<Element>) {
      if (gradient != nullptr) apply<Rounded<Element>>(n, gradient, slopes);
    }
    for (int64_t i = 0; i < rows; ++i) {
      const T* const of_row = slope + i * columns;
      if (tile_.bias_sums != nullptr)
        add(row + i, start, columns, tile_.bias_sums, bias_sums_,
            [&](int64_t j) { return of_row[j]; });
    }
    if (tile_.scale_sums != nullptr) {
      // The compute values of self. They may overwrite `preactivation`, which is no longer needed.
      const T* numbers = preactivation;
      if constexpr (kIs16Bit<Element>) {
        apply<Product<T, Element>>(n, preactivation, self);
      } else {
        numbers = self;
      }
      for (int64_t i = 0; i < rows; ++i) {
        const T* const of_row = slope + i * columns;
        const T* const self_of_row = numbers + i * columns;
        add(row + i, start, columns, tile_.scale_sums, scale_sums_,
            [&](int64_t j) { return of_row[j] * self_of_row[j]; });
      }
    }
    if (!scales || self_gradient == nullptr) return;
    preactivation_.multiply_by_scale(row, rows, start, columns, slope, slopes);
    apply<Rounded<Element>>(n, self_gradient, slopes);
  }

  template <class Output, class... Inputs>
  void call(DenseFunction function, int64_t n, Output* out, const Inputs*... inputs) const {
    char* const data[] = {reinterpret_cast<char*>(out),
                          const_cast<char*>(reinterpret_cast<const char*>(inputs))...};
    function(call_.forward.parameters, data, n);
  }

  // Adds each value to the sum of its column, or the sum of all values to the sum of the row.
  template <class Term>
  void add(int64_t row, int64_t start, int64_t n, double* sums, T* column_sums,
           const Term& term) const {
    if (tile_.vectors_along_columns) {
      T* const to = column_sums + start;
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) to[i] += term(i);
      return;
    }
    sums[row] += static_cast<double>(sum_in_lanes<T>(n, term));
  }

  const FusedBackwardCall& call_;
  const FusedTile& tile_;
  int64_t height_;
  Preactivation<Element> preactivation_;
  alignas(kCacheLine) T scale_sums_[kTileColumns];
  alignas(kCacheLine) T bias_sums_[kTileColumns];
};

}  // namespace fastact::cpu::inline FASTACT_TARGET

// Blocks of the fused form on the CPU: the pre-activation z of a block of elements, in compute
// values. fused.cpp is compiled once for each instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ops/cpu/fused.h"
#include "ops/cpu/loop.h"
#include "ops/cpu/vector.h"
#include "ops/forms/fused.h"

namespace fastact::cpu::inline FASTACT_TARGET {

// Elements in a block. The compute values of a block stay in the L1 cache.
inline constexpr int64_t kBlock = kSumBlock;
// Scale and bias are read this many at a time. A constant operand reuses one group.
inline constexpr int64_t kGroup = 64;
// Rows with fewer elements share a block if they are contiguous.
inline constexpr int64_t kShortRow = kBlock / 2;
// Below this row length, scale and bias are copied repeatedly, so that several rows count as one.
inline constexpr int64_t kRepeatedRow = kBlock / 4;

template <class Element>
using Block = OpMath<Element>[kBlock];

// ---- Auxiliary computations on compute values, as forms

template <class Element>
struct Rounded {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<T>;
  FASTACT_INLINE explicit Rounded(const double* /*parameters*/) {}
  FASTACT_INLINE T evaluate(T x) const { return x; }
};

template <class Output, class... Factors>
struct Product {
  using Outputs = Elements<Output>;
  using Inputs = Elements<Factors...>;
  FASTACT_INLINE explicit Product(const double* /*parameters*/) {}
  FASTACT_INLINE auto evaluate(OpMath<Factors>... factors) const { return (... * factors); }
};

template <class F, class Output, class... Inputs>
void apply(int64_t n, Output* to, const Inputs*... inputs) {
  // Inputs are only read, but the array has one pointer type for inputs and output.
  char* const data[] = {reinterpret_cast<char*>(to),
                        const_cast<char*>(reinterpret_cast<const char*>(inputs))...};
  Loop<F>::run_dense({}, data, n);
}

// ---- Scale and bias

// A scale or bias operand beside the rows of elements.
struct VectorOperand {
  const char* data = nullptr;  // null: absent
  int64_t stride0 = 0;         // bytes between columns
  int64_t stride1 = 0;         // bytes between rows
  bool is_float32 = false;
};

// Compute values of a vector operand for a contiguous span of elements, in groups. `step` is the
// distance from one group to the next.
template <class T>
struct Groups {
  const T* first;
  int64_t step;  // 0: the same group again
};

template <class Element>
class VectorNumbers {
 public:
  using T = OpMath<Element>;

  // `columns` is the length of a row. `neutral` is the value of an absent operand. If `repeats` is
  // above 1, that many rows are treated as one row; their vectors are equal.
  VectorNumbers(const VectorOperand& operand, T neutral, int64_t columns, int64_t repeats)
      : operand_(operand) {
    const bool is_constant = operand.data == nullptr || operand.stride0 == 0 || columns == 1;
    const bool has_equal_rows = operand.data == nullptr || operand.stride1 == 0;
    if (is_constant) {
      kind_ = has_equal_rows ? Kind::kConstant : Kind::kConstantInRow;
      if (has_equal_rows) fill(operand.data == nullptr ? neutral : number_at(operand.data));
    } else if (has_equal_rows && columns * repeats <= kTileColumns &&
               (repeats > 1 || !lies_as_numbers())) {
      kind_ = Kind::kCopied;
      copy(operand.data, columns);
      const int64_t all = columns * repeats;
      for (int64_t done = columns; done < all; done *= 2)
        std::copy_n(numbers_, std::min(done, all - done), numbers_ + done);
    } else {
      kind_ = lies_as_numbers() ? Kind::kInPlace : Kind::kCopiedByBlock;
    }
  }

  // Returns the values for columns [start, start + n) of `row`, where n is at most a block. The
  // pointer is valid until the next call.
  Groups<T> at(int64_t row, int64_t start, int64_t n) {
    const char* const from = operand_.data + row * operand_.stride1 + start * operand_.stride0;
    switch (kind_) {
      case Kind::kConstant:
        return {numbers_, 0};
      case Kind::kConstantInRow:
        fill(number_at(operand_.data + row * operand_.stride1), std::min(n, kGroup));
        return {numbers_, 0};
      case Kind::kCopied:
        return {numbers_ + start, kGroup};
      case Kind::kInPlace:
        return {reinterpret_cast<const T*>(from), kGroup};
      case Kind::kCopiedByBlock:
        break;
    }
    copy(from, n);
    return {numbers_, kGroup};
  }

 private:
  enum class Kind : uint8_t { kConstant, kConstantInRow, kCopied, kInPlace, kCopiedByBlock };

  [[nodiscard]] bool is_number() const { return !kIs16Bit<Element> || operand_.is_float32; }
  [[nodiscard]] bool lies_as_numbers() const {
    return is_number() && operand_.stride0 == static_cast<int64_t>(sizeof(T));
  }
  [[nodiscard]] T number_at(const char* from) const {
    return is_number() ? *reinterpret_cast<const T*>(from)
                       : widen(*reinterpret_cast<const Element*>(from));
  }
  void fill(T number, int64_t n = kGroup) { std::fill_n(numbers_, n, number); }
  void copy(const char* from, int64_t n) {
    if (!is_number() && operand_.stride0 == static_cast<int64_t>(sizeof(Element))) {
      apply<Product<T, Element>>(n, numbers_, reinterpret_cast<const Element*>(from));
    } else {
      for (int64_t i = 0; i < n; ++i) numbers_[i] = number_at(from + i * operand_.stride0);
    }
  }

  VectorOperand operand_;
  Kind kind_;
  alignas(kCacheLine) T numbers_[kTileColumns];
};

// ---- The pre-activation z

template <bool Scales, bool Adds, class Element>
FASTACT_INLINE void group_preactivation(const Element* self, const OpMath<Element>* scale,
                                        const OpMath<Element>* bias, const Element* residual,
                                        int64_t n, OpMath<Element>* z) {
  using T = OpMath<Element>;
  // Without a scale, uses no fma, because fma is a function call on the baseline.
  const auto sum = [&](T x, T r, int64_t i) {
    T y;
    if constexpr (Scales) {
      y = fma(x, scale[i], bias[i]);
    } else {
      y = x + bias[i];
    }
    if constexpr (Adds) y = y + r;
    return y;
  };
  int64_t start = 0;
  if constexpr (std::is_same_v<Element, Float16>) {
    for (; start + kHalves <= n; start += kHalves) {
      alignas(kCacheLine) float x[kHalves];
      alignas(kCacheLine) float r[kHalves] = {};
      widen_halves(self + start, x);
      if constexpr (Adds) widen_halves(residual + start, r);
      FASTACT_ONE_VECTOR
      for (int i = 0; i < kHalves; ++i) z[start + i] = sum(x[i], r[i], start + i);
    }
  }
  FASTACT_INDEPENDENT_ITERATIONS
  for (int64_t i = start; i < n; ++i) {
    if constexpr (Adds) {
      z[i] = sum(widen(self[i]), widen(residual[i]), i);
    } else {
      z[i] = sum(widen(self[i]), T(0), i);
    }
  }
}

// Writes z with the bits of fused_preactivation(). The neutral values used there for absent
// operands change no bit.
template <bool Scales, bool Adds, class Element>
void make_preactivation(const Element* self, Groups<OpMath<Element>> scale,
                        Groups<OpMath<Element>> bias, const Element* residual, int64_t n,
                        OpMath<Element>* z) {
  int64_t start = 0;
  for (; start + kGroup <= n; start += kGroup) {
    group_preactivation<Scales, Adds>(self + start, scale.first, bias.first,
                                      Adds ? residual + start : residual, kGroup, z + start);
    scale.first += scale.step;
    bias.first += bias.step;
  }
  group_preactivation<Scales, Adds>(self + start, scale.first, bias.first,
                                    Adds ? residual + start : residual, n - start, z + start);
}

// Computes z for rows, including their scale and bias.
template <class Element>
class Preactivation {
 public:
  using T = OpMath<Element>;

  Preactivation(const VectorOperand& scale, const VectorOperand& bias, bool adds, int64_t columns,
                int64_t repeats)
      : scales_(scale.data != nullptr),
        adds_(adds),
        is_self_(!kIs16Bit<Element> && !scales_ && !adds && bias.data == nullptr),
        repeats_(repeats),
        scale_(scale, T(1), columns, repeats),
        bias_(bias, T(-0.0), columns, repeats) {}

  // Returns true if z equals self and self holds compute values, so that z need not be computed.
  [[nodiscard]] bool is_self() const { return is_self_; }

  // Computes `columns` columns of a row from `start` on, or `rows` whole rows that are contiguous.
  void make(const Element* self, const Element* residual, int64_t row, int64_t rows, int64_t start,
            int64_t columns, T* z) {
    if (repeats_ > 1) {
      columns *= rows;
      rows = 1;
    }
    for (int64_t i = 0; i < rows; ++i) {
      const Groups<T> scale = scale_.at(row + i, start, columns);
      const Groups<T> bias = bias_.at(row + i, start, columns);
      const auto function = scales_ ? adds_ ? &make_preactivation<true, true, Element>
                                            : &make_preactivation<true, false, Element>
                            : adds_ ? &make_preactivation<false, true, Element>
                                    : &make_preactivation<false, false, Element>;
      function(self + i * columns, scale, bias, adds_ ? residual + i * columns : nullptr, columns,
               z + i * columns);
    }
  }

  // Multiplies compute values of the same elements by scale.
  void multiply_by_scale(int64_t row, int64_t rows, int64_t start, int64_t columns, const T* from,
                         T* to) {
    if (repeats_ > 1) {
      columns *= rows;
      rows = 1;
    }
    for (int64_t i = 0; i < rows; ++i) {
      Groups<T> scale = scale_.at(row + i, start, columns);
      for (int64_t left = columns; left > 0; left -= kGroup) {
        const int64_t n = std::min(left, kGroup);
        FASTACT_INDEPENDENT_ITERATIONS
        for (int64_t j = 0; j < n; ++j) to[j] = from[j] * scale.first[j];
        from += n;
        to += n;
        scale.first += scale.step;
      }
    }
  }

 private:
  bool scales_;
  bool adds_;
  bool is_self_;
  int64_t repeats_;
  VectorNumbers<Element> scale_;
  VectorNumbers<Element> bias_;
};

inline bool is_vector(int input) {
  return input == static_cast<int>(FusedInput::kScale) ||
         input == static_cast<int>(FusedInput::kBias);
}

inline constexpr int kSelf = static_cast<int>(FusedInput::kSelf);
inline constexpr int kScale = static_cast<int>(FusedInput::kScale);
inline constexpr int kBias = static_cast<int>(FusedInput::kBias);
inline constexpr int kResidual = static_cast<int>(FusedInput::kResidual);
inline constexpr int kGate = static_cast<int>(FusedInput::kGate);

}  // namespace fastact::cpu::inline FASTACT_TARGET

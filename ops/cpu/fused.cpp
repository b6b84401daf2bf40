#include "ops/cpu/fused.h"

#include <algorithm>
#include <type_traits>

#include "ops/cpu/loop.h"
#include "ops/cpu/strided.h"
#include "ops/cpu/vector.h"
#include "ops/forms/fused.h"

namespace fastact::cpu::inline FASTACT_TARGET {
namespace {

// Elements in a block. The compute values of a block stay in the L1 cache.
constexpr int64_t kBlock = kSumBlock;
// Scale and bias are read this many at a time. A constant operand reuses one group.
constexpr int64_t kGroup = 64;
// Rows with fewer elements share a block if they are contiguous.
constexpr int64_t kShortRow = kBlock / 2;
// Below this row length, scale and bias are copied repeatedly, so that several rows count as one.
constexpr int64_t kRepeatedRow = kBlock / 4;

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

// ---- The forward pass

bool is_vector(int input) {
  return input == static_cast<int>(FusedInput::kScale) ||
         input == static_cast<int>(FusedInput::kBias);
}

constexpr int kSelf = static_cast<int>(FusedInput::kSelf);
constexpr int kScale = static_cast<int>(FusedInput::kScale);
constexpr int kBias = static_cast<int>(FusedInput::kBias);
constexpr int kResidual = static_cast<int>(FusedInput::kResidual);
constexpr int kGate = static_cast<int>(FusedInput::kGate);

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

// ---- Gradients

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

  // Adds each value to the sum of its column, or adds all values in lanes, halves the lanes
  // repeatedly, and adds the result to the sum of the row.
  template <class Term>
  void add(int64_t row, int64_t start, int64_t n, double* sums, T* column_sums,
           const Term& term) const {
    if (tile_.vectors_along_columns) {
      T* const to = column_sums + start;
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) to[i] += term(i);
      return;
    }
    // Lanes at and beyond n are zero.
    int64_t width = kSumLanes;
    while (width / 2 >= n) width /= 2;
    alignas(kCacheLine) T lanes[kSumLanes];
    std::fill_n(lanes, width, T(0));
    for (int64_t i = 0; i < n; i += width) {
      const int64_t in_lanes = std::min(width, n - i);
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t lane = 0; lane < in_lanes; ++lane) lanes[lane] += term(i + lane);
    }
    for (int64_t half = width / 2; half > 0; half /= 2) {
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    sums[row] += static_cast<double>(lanes[0]);
  }

  const FusedBackwardCall& call_;
  const FusedTile& tile_;
  int64_t height_;
  Preactivation<Element> preactivation_;
  alignas(kCacheLine) T scale_sums_[kTileColumns];
  alignas(kCacheLine) T bias_sums_[kTileColumns];
};

template <class Element>
void round_sums(const double* sums, int64_t n, void* elements) {
  auto* const to = static_cast<Element*>(elements);
  using Narrow = std::conditional_t<kIs16Bit<Element>, float, double>;
  for (int64_t i = 0; i < n; ++i) to[i] = round_to<Element>(static_cast<Narrow>(sums[i]));
}

template <class Element>
constexpr FusedKernels kKernels = {&Forward<Element>::run, &Backward<Element>::run,
                                   &round_sums<Element>};

}  // namespace

FusedKernels fused_kernels(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return kKernels<float>;
    case DType::kFloat64:
      return kKernels<double>;
    case DType::kBFloat16:
      return kKernels<BFloat16>;
    case DType::kFloat16:
      return kKernels<Float16>;
  }
  return {};
}

}  // namespace fastact::cpu::inline FASTACT_TARGET

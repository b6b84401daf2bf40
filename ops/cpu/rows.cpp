#include "ops/cpu/rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

namespace fastact::cpu {
namespace {

// Copies an n x rows block of elements of Size bytes, which compiles to one move an element.
template <int Size>
void copy_elements(const char* from, int64_t from_element, int64_t from_row, char* to,
                   int64_t to_element, int64_t to_row, int64_t n, int64_t rows) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(to + i * to_element + row * to_row, from + i * from_element + row * from_row,
                  Size);
    }
  }
}

void copy_block(int64_t size, const char* from, int64_t from_element, int64_t from_row, char* to,
                int64_t to_element, int64_t to_row, int64_t n, int64_t rows) {
  const auto copy = size == 2   ? &copy_elements<2>
                    : size == 4 ? &copy_elements<4>
                                : &copy_elements<8>;
  copy(from, from_element, from_row, to, to_element, to_row, n, rows);
}

// Writes each of n / repeat elements `repeat` times.
template <int Size>
void repeat_elements(const char* from, int64_t from_element, int64_t repeat, char* to, int64_t n) {
  for (int64_t i = 0; i < n; i += repeat, from += from_element) {
    for (int64_t k = 0; k < repeat; ++k) std::memcpy(to + (i + k) * Size, from, Size);
  }
}

void repeat_block(int64_t size, const char* from, int64_t from_element, int64_t from_row,
                  int64_t repeat, char* to, int64_t to_row, int64_t n, int64_t rows) {
  const auto write = size == 2   ? &repeat_elements<2>
                     : size == 4 ? &repeat_elements<4>
                                 : &repeat_elements<8>;
  for (int64_t row = 0; row < rows; ++row)
    write(from + row * from_row, from_element, repeat, to + row * to_row, n);
}

class Rows {
 public:
  Rows(const RowsCall& call, Parallel parallel)
      : call_(call), operands_(call.operands), parallel_(parallel) {
    if (repeats_in_kernel()) repeat_ = operands_.operands[operands_.count - 1].repeat;
    int64_t repeated = 0;
    int64_t strided = 0;
    for (int i = 0; i < operands_.count; ++i) {
      if (!is_gathered(i)) continue;
      ++(operands_.operands[i].repeat > 1 ? repeated : strided);
    }
    if (strided + repeated == 0) return;
    panel_ = std::min(kRowPanel, operands_.inner);
    // Strided rows share cache lines, so several are gathered together. Repeated elements only have
    // to stay in the cache.
    constexpr int64_t kInCache = 65536;
    if (strided == 0)
      panel_ = std::clamp<int64_t>(kInCache / (repeated * buffer_stride()), 1, panel_);
    for (int i = 0; i < operands_.count; ++i) {
      if (!is_gathered(i)) continue;
      buffers_[i] =
          std::make_unique_for_overwrite<char[]>(static_cast<size_t>(panel_ * buffer_stride()));
    }
  }

  // Computes `count` rows with one outer index.
  void run(int64_t row, int64_t count) const {
    const int64_t outer = row / operands_.inner;
    const int64_t inner = row % operands_.inner;
    const int64_t together = std::min(panel_, count);
    for (int64_t done = 0; done < count; done += together)
      run_panel(outer, inner + done, std::min(together, count - done));
  }

 private:
  // True if the kernel itself repeats the elements of the shared inputs: if the runs are long.
  [[nodiscard]] bool repeats_in_kernel() const {
    constexpr int64_t kShortestRun = 16;
    return operands_.n > kLongestFixedRow &&
           operands_.operands[operands_.count - 1].repeat >= kShortestRun &&
           std::all_of(operands_.operands, operands_.operands + operands_.count,
                       [&](const RowOperand& operand) {
                         return operand.repeat == 1 ||
                                operand.element_stride == operands_.element_size;
                       });
  }
  [[nodiscard]] bool is_gathered(int i) const {
    const RowOperand& operand = operands_.operands[i];
    if (operand.repeat > 1 && repeat_ == 1) return true;
    return operand.element_stride != operands_.element_size && operands_.n > 1;
  }
  // One cache line more than a row, so that no two rows are 4 KiB apart.
  [[nodiscard]] int64_t buffer_stride() const { return operands_.n * operands_.element_size + 64; }
  [[nodiscard]] char* address(int i, int64_t outer, int64_t inner) const {
    const RowOperand& operand = operands_.operands[i];
    if (operand.data == nullptr) return nullptr;
    return operand.data + outer * operand.outer_stride + inner * operand.inner_stride;
  }

  void run_panel(int64_t outer, int64_t inner, int64_t count) const {
    const int64_t size = operands_.element_size;
    char* data[kMaxRowOperands];
    int64_t strides[kMaxRowOperands];
    for (int i = 0; i < operands_.count + operands_.numbers; ++i) {
      const RowOperand& operand = operands_.operands[i];
      data[i] = address(i, outer, inner);
      strides[i] = operand.inner_stride;
      if (buffers_[i] == nullptr) continue;
      if (operand.repeat > 1) {
        repeat_block(size, data[i], operand.element_stride, operand.inner_stride, operand.repeat,
                     buffers_[i].get(), buffer_stride(), operands_.n, count);
      } else if (i >= operands_.outputs) {
        copy_block(size, data[i], operand.element_stride, operand.inner_stride, buffers_[i].get(),
                   size, buffer_stride(), operands_.n, count);
      }
      data[i] = buffers_[i].get();
      strides[i] = buffer_stride();
    }
    call_.kernel(call_.parameters, data, strides, operands_.n, count, repeat_, parallel_);
    if (operands_.outputs > 0 && buffers_[0] != nullptr) {
      const RowOperand& out = operands_.operands[0];
      copy_block(size, buffers_[0].get(), size, buffer_stride(), address(0, outer, inner),
                 out.element_stride, out.inner_stride, operands_.n, count);
    }
  }

  const RowsCall& call_;
  const RowOperands& operands_;
  Parallel parallel_;
  std::unique_ptr<char[]> buffers_[kMaxRowOperands];
  int64_t repeat_ = 1;  // the kernel's argument; 1 if buffers contain the repeated elements
  // The rows that are computed together: all of them if no operand needs a buffer.
  int64_t panel_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

void run_rows(const RowsCall& call, int64_t first, int64_t count, Parallel parallel) {
  const Rows rows(call, parallel);
  const int64_t inner = call.operands.inner;
  for (int64_t row = first; row < first + count;) {
    const int64_t together = std::min(inner - row % inner, first + count - row);
    rows.run(row, together);
    row += together;
  }
}

}  // namespace fastact::cpu

#include "ops/cpu/strided.h"

#include <cstring>

#include "ops/cpu/engine.h"
#include "ops/cpu/vector.h"

namespace fastact::cpu::inline FASTACT_TARGET {
namespace {

// Elements gathered at a time. The blocks of all operands stay in the L1 cache.
constexpr int64_t kBlock = 512;

// Calls f with an unsigned integer of `size` bytes, which represents an element of any type.
template <class Function>
void with_element(int64_t size, const Function& f) {
  if (size == 2) {
    f(uint16_t{});
  } else if (size == 4) {
    f(uint32_t{});
  } else {
    f(uint64_t{});
  }
}

// Load and store an element by memcpy(), which compiles to one move. An access through an integer
// type would not alias the element's type, so the compiler could reorder it with the accesses of
// the kernels.
template <class Element>
FASTACT_INLINE Element load_element(const char* from) {
  Element element;
  std::memcpy(&element, from, sizeof element);
  return element;
}
template <class Element>
FASTACT_INLINE void store_element(char* to, Element element) {
  std::memcpy(to, &element, sizeof element);
}

// Calls visit(address, n) for each span along the first dimension that covers elements [start,
// start + count) of a block of rows of size0 elements.
template <class Visit>
void for_each_span(char* base, int64_t stride0, int64_t stride1, int64_t size0, int64_t start,
                   int64_t count, const Visit& visit) {
  int64_t row = start / size0;
  int64_t column = start - row * size0;
  for (int64_t left = count; left > 0; ++row, column = 0) {
    const int64_t left_in_row = size0 - column;
    const int64_t n = left_in_row < left ? left_in_row : left;
    visit(base + row * stride1 + column * stride0, n);
    left -= n;
  }
}

template <class Element>
void gather(char* base, int64_t stride0, int64_t stride1, int64_t size0, int64_t start,
            int64_t count, char* to) {
  constexpr int64_t kSize = sizeof(Element);
  for_each_span(base, stride0, stride1, size0, start, count, [&](const char* from, int64_t n) {
    char* const run = to;
    if (stride0 == kSize) {
      std::memcpy(run, from, static_cast<size_t>(n * kSize));
    } else if (stride0 == 0) {
      const auto element = load_element<Element>(from);
      for (int64_t i = 0; i < n; ++i) store_element(run + i * kSize, element);
    } else if (stride0 == 2 * kSize) {  // every second element: a vector shuffle
      for (int64_t i = 0; i < n; ++i)
        store_element(run + i * kSize, load_element<Element>(from + 2 * i * kSize));
    } else {
      for (int64_t i = 0; i < n; ++i)
        store_element(run + i * kSize, load_element<Element>(from + i * stride0));
    }
    to += n * kSize;
  });
}

template <class Element>
void scatter(const char* from, char* base, int64_t stride0, int64_t stride1, int64_t size0,
             int64_t start, int64_t count) {
  constexpr int64_t kSize = sizeof(Element);
  for_each_span(base, stride0, stride1, size0, start, count, [&](char* to, int64_t n) {
    const char* const run = from;
    if (stride0 == kSize) {
      std::memcpy(to, run, static_cast<size_t>(n * kSize));
    } else {
      for (int64_t i = 0; i < n; ++i)
        store_element(to + i * stride0, load_element<Element>(run + i * kSize));
    }
    from += n * kSize;
  });
}

class Strided {
 public:
  Strided(const DenseKernel& kernel, char* const* data, const int64_t* strides, int64_t size0,
          int64_t size1)
      : kernel_(kernel), data_(data), strides_(strides), size0_(size0), size1_(size1) {}

  void run() const {
    bool dense_rows = true;
    for (int i = 0; i < kernel_.sizes.count; ++i)
      dense_rows &= strides_[i] == kernel_.sizes.bytes[i];
    // A short row does not justify a call of its own: gathered rows share one.
    if (dense_rows && (size1_ == 1 || size0_ >= kBlock / 4)) {
      for (int64_t row = 0; row < size1_; ++row) {
        char* pointers[kMaxOperands];
        for (int i = 0; i < kernel_.sizes.count; ++i)
          pointers[i] = data_[i] + row * strides_[kernel_.sizes.count + i];
        // The hardware prefetcher does not know where the next row begins.
        if (row + 1 < size1_) fetch_row(pointers);
        dense(pointers);
      }
    } else {
      gathered();
    }
  }

 private:
  void compute(char* const* data, int64_t n, Pace pace = Pace::kAtOnce) const {
    kernel_.compute(kernel_.form, data, n, pace);
  }

  // Computes a row whose operands are all contiguous.
  void dense(char* const* data) const {
    // Paces other than kAtOnce require one output and elements of equal size.
    if (size0_ * kernel_.sizes.bytes[0] < kStreamedBytes || kernel_.sizes.outputs > 1 ||
        !kernel_.sizes.are_equal()) {
      compute(data, size0_);
      return;
    }
    const int64_t size = kernel_.sizes.bytes[0];
    bool in_place = false;
    for (int i = 1; i < kernel_.sizes.count; ++i) in_place |= data[i] == data[0];
    const bool aligned = reinterpret_cast<intptr_t>(data[0]) % size == 0;
    if (aligned && !in_place) {
      // The first part ends at a cache line, where the rest begins.
      const int64_t past_line = reinterpret_cast<intptr_t>(data[0]) % kCacheLine;
      const int64_t head = (kCacheLine - past_line) % kCacheLine;
      compute(data, head / size);
      char* rest[kMaxOperands];
      for (int i = 0; i < kernel_.sizes.count; ++i) rest[i] = data[i] + head;
      compute(rest, size0_ - head / size, Pace::kStreaming);
      finish_stream();
    } else {
      // Without prefetching, stepping only costs time (docs/dev/tuning.md).
      compute(data, size0_, kernel_.sizes.count > 2 ? Pace::kFetching : Pace::kAtOnce);
    }
  }

  // Always inline: GCC 12 drops the call of a function that only prefetches.
  FASTACT_INLINE void fetch_row(char* const* data) const {
    for (int64_t line = 0; line < kStep && line < size0_ * kernel_.sizes.bytes[0];
         line += kCacheLine)
      for (int i = kernel_.sizes.outputs; i < kernel_.sizes.count; ++i)
        __builtin_prefetch(data[i] + strides_[kernel_.sizes.count + i] + line);
  }

  // Computes operands with any strides, a block at a time through small buffers. The form always
  // runs on contiguous elements, and no tensor is copied. A block does not extend beyond the end of
  // a long row. Operands that are contiguous within a block are read and written in place. PReLU
  // with 32 x 32 channels: 0.21 instead of 1.04 ns an element (Zen 5, docs/dev/tuning.md).
  void gathered() const {
    // One cache line more than a block, so that no two buffers are 4 KiB apart.
    constexpr int64_t kBuffer = kBlock * 8 + kCacheLine;
    alignas(kCacheLine) char buffers[kMaxOperands * kBuffer];
    const int operands = kernel_.sizes.count;
    const bool long_rows = size1_ == 1 || size0_ >= kBlock / 4;
    bool dense_in_block[kMaxOperands];
    for (int i = 0; i < operands; ++i) {
      const int64_t size = kernel_.sizes.bytes[i];
      const bool rows_touch = size1_ == 1 || strides_[operands + i] == size0_ * size;
      dense_in_block[i] = strides_[i] == size && (long_rows || rows_touch);
    }
    const int64_t total = size0_ * size1_;
    for (int64_t start = 0, count = 0; start < total; start += count) {
      const int64_t row = start / size0_;
      const int64_t column = start - row * size0_;
      const int64_t left = long_rows ? size0_ - column : total - start;
      count = left < kBlock ? left : kBlock;
      char* pointers[kMaxOperands];
      for (int i = 0; i < operands; ++i) {
        if (dense_in_block[i]) {
          pointers[i] = data_[i] + row * strides_[operands + i] + column * kernel_.sizes.bytes[i];
          continue;
        }
        pointers[i] = buffers + i * kBuffer;
        if (i < kernel_.sizes.outputs) continue;
        with_element(kernel_.sizes.bytes[i], [&]<class Element>(Element) {
          gather<Element>(data_[i], strides_[i], strides_[operands + i], size0_, start, count,
                          pointers[i]);
        });
      }
      compute(pointers, count);
      for (int i = 0; i < kernel_.sizes.outputs; ++i) {
        if (dense_in_block[i]) continue;
        with_element(kernel_.sizes.bytes[i], [&]<class Element>(Element) {
          scatter<Element>(pointers[i], data_[i], strides_[i], strides_[operands + i], size0_,
                           start, count);
        });
      }
    }
  }

  const DenseKernel& kernel_;
  char* const* data_;
  const int64_t* strides_;
  int64_t size0_;
  int64_t size1_;
};

}  // namespace

void run(const DenseKernel& kernel, char* const* data, const int64_t* strides, int64_t size0,
         int64_t size1) {
  Strided(kernel, data, strides, size0, size1).run();
}

}  // namespace fastact::cpu::inline FASTACT_TARGET

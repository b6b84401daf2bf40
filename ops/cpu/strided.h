// Splits strided operands into contiguous spans, which a kernel computes. Nothing here depends on
// the form, so this code is compiled once for each instruction set.
#pragma once

#include <cstdint>

#include "ops/forms/form.h"

namespace fastact::cpu::inline FASTACT_TARGET {

// Prefetch distance and step in bytes. Calls prefetch if they have more than one input and the
// output is large enough for non-temporal stores (kStreamedBytes): the hardware prefetcher does not
// keep up with two input streams and one output stream. Smaller operands may be cached. SELU's
// backward, 2^24 float32: 0.34 instead of 0.75 ns an element (Zen 5, docs/dev/tuning.md).
inline constexpr int64_t kFetchAhead = 2048;
inline constexpr int64_t kStep = 1024;
inline constexpr int64_t kCacheLine = 64;

// How a kernel walks over contiguous elements. The last two are for large operands, in steps of
// kStep bytes.
enum class Pace : uint8_t {
  kAtOnce,
  kFetching,   // prefetches the inputs
  kStreaming,  // also writes the output with non-temporal stores: each step is computed in the L1
               // cache and written from there. The output is aligned to a cache line and no input.
};

// Prefetches the inputs' bytes that are read two steps later, if enough bytes are left.
template <int Operands>
FASTACT_INLINE void fetch_ahead(char* const* data, int64_t start, int64_t left) {
  if (Operands == 2 || left < kFetchAhead + kStep) return;
  for (int64_t line = start + kFetchAhead; line < start + kFetchAhead + kStep; line += kCacheLine)
    for (int i = 1; i < Operands; ++i) __builtin_prefetch(data[i] + line);
}

// A kernel over contiguous elements: computes element i of each output from element i of each
// input. `data` points to the outputs, then the inputs. An output may be the same memory as an
// input.
struct DenseKernel {
  void (*compute)(const void* form, char* const* data, int64_t elements, Pace pace);
  const void* form;
  const OperandSizes& sizes;
};

// Runs the kernel over a size0 x size1 block of elements, like Kernel in engine.h.
void run(const DenseKernel& kernel, char* const* data, const int64_t* strides, int64_t size0,
         int64_t size1);

}  // namespace fastact::cpu::inline FASTACT_TARGET

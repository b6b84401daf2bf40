// The way of strided operands to a form: blocks of rows are cut into runs of dense elements, which
// a kernel computes. Nothing here depends on the form, so it is compiled once for each instruction
// set.
#pragma once

#include <cstdint>

#include "ops/forms/form.h"

namespace fastact::cpu::inline FASTACT_TARGET {

// Where there is more than one input and the output is as large as one that is streamed
// (kStreamedBytes), these bytes are fetched into the caches so long before they are read, in steps
// of so many: the hardware's own prefetch does not keep up with two streams in and one out. Smaller
// ones may be in a cache.
// SELU's backward, 2^24 float32: 0.34 instead of 0.75 ns an element (Zen 5, docs/tuning.md).
inline constexpr int64_t kFetchAhead = 2048;
inline constexpr int64_t kStep = 1024;
inline constexpr int64_t kCacheLine = 64;

// How a kernel goes over dense elements. The last two are for many, in steps of kStep bytes.
enum class Pace : uint8_t {
  kAtOnce,
  kFetching,   // the inputs are fetched ahead
  kStreaming,  // and the output, which is none of the inputs and aligned to a cache line, goes
               // around the caches: each step is computed in the L1 cache and written from there
};

// The inputs' bytes that are read two steps on, if there are so many left.
template <int Operands>
FASTACT_INLINE void fetch_ahead(char* const* data, int64_t start, int64_t left) {
  if (Operands == 2 || left < kFetchAhead + kStep) return;
  for (int64_t line = start + kFetchAhead; line < start + kFetchAhead + kStep; line += kCacheLine)
    for (int i = 1; i < Operands; ++i) __builtin_prefetch(data[i] + line);
}

// A kernel over dense elements: element i of each output from element i of each input. `data` are
// the outputs, then the inputs. An output may be one of the inputs.
struct DenseKernel {
  void (*compute)(const void* form, char* const* data, int64_t elements, Pace pace);
  const void* form;
  const OperandSizes& sizes;
};

// Runs it over a size0 x size1 block of elements, as Kernel in engine.h describes it.
void run(const DenseKernel& kernel, char* const* data, const int64_t* strides, int64_t size0,
         int64_t size1);

}  // namespace fastact::cpu::inline FASTACT_TARGET

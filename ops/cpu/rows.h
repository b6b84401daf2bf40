// Runs the kernels of row forms (ops/forms/row_form.h).
#pragma once

#include <cstdint>

#include "ops/cpu/engine.h"
#include "ops/kernel.h"

namespace fastact::cpu {

// Calls task(state, i) for each i below `count`, on several threads, and returns when all calls
// have returned.
using Parallel = void (*)(int64_t count, void (*task)(void* state, int64_t index), void* state);

// Threads share a row in parts of this many elements. Each part is a subtree of the row's tree.
inline constexpr int64_t kRowPart = 16384;
// Below this length, sharing is slower: 28 instead of 24 us for 50,257 float32 (two threads of a
// Zen 4).
inline constexpr int64_t kLeastShared = 65536;

// Rows of at most this many elements have kernels of their own (ops/cpu/short_rows.h).
inline constexpr int kLongestFixedRow = 256;

// Computes `rows` rows of n > 0 contiguous elements. data[i] points to the first row of operand i,
// in the order of ops/forms/row_form.h. strides[i] is the distance in bytes from row to row. An
// output may be the same memory as an input, element for element. No other overlap is allowed. A
// row output may be null. `repeat` neighbouring elements of a row share an element of each shared
// input; it is 1 for rows of at most kLongestFixedRow elements. The threads of `parallel`, if it is
// not null, share each row of more than kRowPart elements. The calling thread computes all others.
using RowFunction = void (*)(const Parameters& parameters, char* const* data,
                             const int64_t* strides, int64_t n, int64_t rows, int64_t repeat,
                             Parallel parallel);
using RowKernel = InDefaultFloatingPoint<RowFunction>;

// Returns a kernel, or null if the family has no such form. `family` is an index into
// row_families().
FASTACT_OPS_API RowKernel find_row_kernel(int family, const KernelId& id, InstructionSet set);

// Rows that are not contiguous are gathered into buffers, this many neighbours at a time: 16
// float32 elements are one cache line.
inline constexpr int64_t kRowPanel = 16;

struct RowsCall {
  RowKernel kernel;
  Parameters parameters;
  RowOperands operands;
};

// Computes rows [first, first + count).
FASTACT_OPS_API void run_rows(const RowsCall& call, int64_t first, int64_t count,
                              Parallel parallel = nullptr);

}  // namespace fastact::cpu

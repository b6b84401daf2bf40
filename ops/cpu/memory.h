// Memory for large results.
#pragma once

#include <cstddef>

#include "ops/export.h"

namespace fastact::cpu {

// The smallest result placed in huge pages. malloc() reuses smaller blocks, whose pages are already
// mapped.
inline constexpr size_t kLeastHugeBytes = size_t{4} << 20;

// Returns memory in huge pages, aligned to 64 bytes. A page fault then maps 2 MiB instead of 4 KiB.
// Page faults take most of the time of a call on a large tensor. The memory is a mapping of its
// own, so the advice to the system ends with the mapping and never affects memory of malloc().
//
// Returns null if `bytes` is less than kLeastHugeBytes, on systems other than Linux, if the
// environment variable FASTACT_HUGE_PAGES is 0, or if the system is out of memory.
FASTACT_OPS_API void* allocate_in_huge_pages(size_t bytes);

// Frees memory of allocate_in_huge_pages(). May be called on any thread. Keeps a few blocks for
// later results of the same size.
FASTACT_OPS_API void free_in_huge_pages(void* data);

}  // namespace fastact::cpu

// Memory for large results.
#pragma once

#include <cstddef>

#include "ops/export.h"

namespace fastact::cpu {

// malloc() recycles smaller blocks, so their pages are there already.
inline constexpr size_t kLeastHugeBytes = size_t{4} << 20;

// Returns memory in huge pages, aligned to 64 bytes: a page fault then brings 2 MiB instead of
// 4 KiB, which is most of the time of a call on a large tensor. It is a mapping of its own, so that
// the advice to the system ends with it and never reaches memory of malloc().
//
// Null if there are fewer than kLeastHugeBytes, on other systems than Linux, with the environment
// variable FASTACT_HUGE_PAGES=0, or if the system has no memory.
FASTACT_OPS_API void* allocate_in_huge_pages(size_t bytes);

// Frees such memory, on any thread. A few blocks are kept for the next results of their size.
FASTACT_OPS_API void free_in_huge_pages(void* data);

}  // namespace fastact::cpu

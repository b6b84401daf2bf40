// What the CPU engine asks of the system for large outputs.
#pragma once

#include <cstddef>

#include "ops/export.h"

namespace fastact::cpu {

// Asks for huge pages for memory that has not been written to yet: a page fault then brings 2 MiB
// instead of 4 KiB, which is most of the time of a call on a large tensor. Only advice: what the
// system refuses, or the environment variable FASTACT_HUGE_PAGES=0 forbids, changes nothing. The
// contents of the memory are not touched.
FASTACT_OPS_API void advise_huge_pages(void* data, size_t bytes);

}  // namespace fastact::cpu

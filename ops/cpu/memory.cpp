#include "ops/cpu/memory.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace fastact::cpu {
namespace {

// x86-64's; elsewhere the advice is about whole multiples of it, which is right as well.
constexpr uintptr_t kHugePage = uintptr_t{2} << 20;

// Smaller blocks are mostly recycled by the C library (its threshold for blocks of their own grows
// to 32 MiB), so that their pages are there already.
constexpr size_t kLeastBytes = size_t{4} << 20;

bool wanted() {
  static const bool value = [] {
    const char* setting =
        std::getenv("FASTACT_HUGE_PAGES");  // NOLINT(concurrency-mt-unsafe): read once
    return setting == nullptr || std::string_view(setting) != "0";
  }();
  return value;
}

}  // namespace

void advise_huge_pages(void* data, size_t bytes) {
#if defined(__linux__)
  if (bytes < kLeastBytes || !wanted()) return;
  // The whole pages inside.
  const uintptr_t before = (kHugePage - reinterpret_cast<uintptr_t>(data) % kHugePage) % kHugePage;
  if (bytes <= before) return;
  const size_t inside = (bytes - before) / kHugePage * kHugePage;
  // A kernel without huge pages says no, and nothing is lost.
  if (inside > 0) (void)madvise(static_cast<char*>(data) + before, inside, MADV_HUGEPAGE);
#else
  (void)data;
  (void)bytes;
#endif
}

}  // namespace fastact::cpu

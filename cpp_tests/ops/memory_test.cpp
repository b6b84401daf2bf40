// Memory for large results (ops/cpu/memory.h).
#include "ops/cpu/memory.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace fastact::testing {
namespace {

// A new mapping consists of zeros, so a marker shows that the block was kept.
TEST(MemoryTest, KeepsAFreeBlockForTheNextResult) {
  constexpr size_t kBytes = cpu::kLeastHugeBytes + 100;
  constexpr unsigned char kMarker = 0xa5;
  void* first = cpu::allocate_in_huge_pages(kBytes);
  if (first == nullptr) GTEST_SKIP() << "no huge pages here";
  // More often than the number of blocks that may be kept.
  for (int i = 0; i < 40; ++i) {
    static_cast<unsigned char*>(first)[kBytes - 1] = kMarker;
    cpu::free_in_huge_pages(first);
    first = cpu::allocate_in_huge_pages(kBytes);
    ASSERT_NE(first, nullptr);
    ASSERT_EQ(static_cast<unsigned char*>(first)[kBytes - 1], kMarker) << "call " << i;
    static_cast<unsigned char*>(first)[kBytes - 1] = 0;
  }
  cpu::free_in_huge_pages(first);
}

}  // namespace
}  // namespace fastact::testing

#include "ops/cpu/memory.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string_view>
#include <type_traits>

namespace fastact::cpu {

#if defined(__linux__)

namespace {

// The size of a huge page on x86-64. Elsewhere, advice about multiples of it is valid as well.
constexpr size_t kHugePage = size_t{2} << 20;
// The unit of a mapping's length, a multiple of the page size of every system.
constexpr size_t kPage = size_t{64} << 10;

// The most free memory that is kept. glibc's malloc() keeps the same amount before it returns some.
constexpr size_t kMostKept = size_t{64} << 20;

// Header at the start of a mapping. The result follows it, aligned to 64 bytes like torch's memory.
struct alignas(64) Block {
  size_t length;  // of the mapping
};

void unmap(Block* block) { (void)munmap(block, block->length); }

// Returns a mapping aligned to a huge page, or null.
Block* map(size_t length) {
  void* const mapped =
      mmap(nullptr, length + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const first = static_cast<char*>(mapped);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(first) % kHugePage) % kHugePage;
  if (before > 0) (void)munmap(first, before);
  (void)munmap(first + before + length, kHugePage - before);
  // On a kernel without huge pages, madvise() fails, which is harmless.
  (void)madvise(first + before, length / kHugePage * kHugePage, MADV_HUGEPAGE);
  return new (first + before) Block{length};
}

// Free blocks. Uses no lock: if another thread held it during fork(), the child would never see it
// released.
class Kept {
 public:
  // Returns a block of this length, or null.
  Block* take(size_t length) {
    for (std::atomic<Block*>& slot : slots_) {
      Block* const block = slot.exchange(nullptr);
      if (block == nullptr) continue;
      if (block->length == length) {
        bytes_ -= length;
        return block;
      }
      put_back(slot, block);
    }
    return nullptr;
  }

  // Keeps the block instead of the oldest one, and unmaps other blocks beyond kMostKept bytes.
  void put(Block* block) {
    if (block->length > kMostKept) {
      unmap(block);
      return;
    }
    bytes_ += block->length;
    const size_t own = next_++;
    drop(slots_[own % kSlots].exchange(block));
    for (size_t i = 1; i <= kSlots && bytes_ > kMostKept; ++i)
      drop(slots_[(own + i) % kSlots].exchange(nullptr));
  }

 private:
  static constexpr size_t kSlots = kMostKept / kLeastHugeBytes;

  // Returns the block to its slot, or unmaps it if another thread has filled the slot.
  void put_back(std::atomic<Block*>& slot, Block* block) {
    Block* expected = nullptr;
    if (!slot.compare_exchange_strong(expected, block)) drop(block);
  }

  void drop(Block* block) {
    if (block == nullptr) return;
    bytes_ -= block->length;
    unmap(block);
  }

  std::atomic<Block*> slots_[kSlots] = {};
  std::atomic<size_t> bytes_ = 0;
  std::atomic<size_t> next_ = 0;
};

// Constant-initialised and never destroyed: results may outlive the destructors of statics.
constinit Kept kept;
static_assert(std::is_trivially_destructible_v<Kept>);

bool wanted() {
  static const bool value = [] {
    const char* setting =
        std::getenv("FASTACT_HUGE_PAGES");  // NOLINT(concurrency-mt-unsafe): read once
    return setting == nullptr || std::string_view(setting) != "0";
  }();
  return value;
}

}  // namespace

void* allocate_in_huge_pages(size_t bytes) {
  if (bytes < kLeastHugeBytes || bytes > SIZE_MAX / 2 || !wanted()) return nullptr;
  const size_t length = (sizeof(Block) + bytes + kPage - 1) / kPage * kPage;
  Block* block = kept.take(length);
  if (block == nullptr) block = map(length);
  return block == nullptr ? nullptr : block + 1;
}

void free_in_huge_pages(void* data) { kept.put(static_cast<Block*>(data) - 1); }

#else

void* allocate_in_huge_pages(size_t /*bytes*/) { return nullptr; }

void free_in_huge_pages(void* /*data*/) {}

#endif

}  // namespace fastact::cpu

#include "registration/keys/cpu_memory.h"

#include <c10/core/CPUAllocator.h>

#include "ops/cpu/memory.h"

namespace fastact {
namespace {

// Large blocks in huge pages, others from torch's allocator: a tensor's storage keeps its
// allocator, and may be resized to any size.
class LargeResults final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    // One that the program has put in the place of torch's own takes everything.
    c10::Allocator* const torchs = c10::GetCPUAllocator();
    void* const data =
        torchs == c10::GetDefaultCPUAllocator() ? cpu::allocate_in_huge_pages(bytes) : nullptr;
    // Where there is no memory, torch's allocator says so.
    if (data == nullptr) return torchs->allocate(bytes);
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &release, c10::Device(c10::kCPU)};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void release(void* data) {
    c10::profiledCPUMemoryReporter().Delete(data);
    cpu::free_in_huge_pages(data);
  }
};

}  // namespace

c10::Allocator* allocator_for(const at::Tensor& like) {
  // Never destroyed: results may outlive the destructors of statics.
  static c10::Allocator* const large = new LargeResults;
  return like.nbytes() < cpu::kLeastHugeBytes ? c10::GetCPUAllocator() : large;
}

}  // namespace fastact

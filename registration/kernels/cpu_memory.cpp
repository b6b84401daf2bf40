#include "registration/kernels/cpu_memory.h"

#include <c10/core/CPUAllocator.h>

#include "ops/cpu/memory.h"

namespace fastact {
namespace {

// Allocates large blocks in huge pages, and smaller ones by torch's allocator. Smaller ones occur
// because a tensor's storage keeps its allocator when it is resized.
class LargeResults final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    // If the program has replaced torch's allocator, its allocator provides all memory.
    c10::Allocator* const torchs = c10::GetCPUAllocator();
    void* const data =
        torchs == c10::GetDefaultCPUAllocator() ? cpu::allocate_in_huge_pages(bytes) : nullptr;
    // If the system is out of memory, torch's allocator raises the error.
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

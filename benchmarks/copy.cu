// Kernels that only copy the bytes that an activation moves, for comparison: 16 bytes per thread.
#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr int kThreads = 128;

__global__ void copy(const uint4* from, uint4* to, int64_t packets) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < packets) to[i] = from[i];
}

// Reads two streams and writes one, like a backward pass.
__global__ void merge(const uint4* a, const uint4* b, uint4* to, int64_t packets) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < packets) {
    const uint4 x = a[i];
    const uint4 y = b[i];
    to[i] = make_uint4(x.x ^ y.x, x.y ^ y.y, x.z ^ y.z, x.w ^ y.w);
  }
}

unsigned blocks(int64_t packets) {
  return static_cast<unsigned>((packets + kThreads - 1) / kThreads);
}

}  // namespace

// Pointers are 16-byte aligned. Sizes are in bytes and multiples of 16. Returns a cudaError_t.
extern "C" int copy_bytes(const void* from, void* to, int64_t bytes, cudaStream_t stream) {
  const int64_t packets = bytes / 16;
  copy<<<blocks(packets), kThreads, 0, stream>>>(static_cast<const uint4*>(from),
                                                 static_cast<uint4*>(to), packets);
  return cudaGetLastError();
}

extern "C" int merge_bytes(const void* a, const void* b, void* to, int64_t bytes,
                           cudaStream_t stream) {
  const int64_t packets = bytes / 16;
  merge<<<blocks(packets), kThreads, 0, stream>>>(
      static_cast<const uint4*>(a), static_cast<const uint4*>(b), static_cast<uint4*>(to), packets);
  return cudaGetLastError();
}

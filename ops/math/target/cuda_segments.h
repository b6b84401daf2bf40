// Segment tables on a GPU. Both passes of nvcc read this file, because both parse the kernels.
#pragma once

#include "ops/math/target/target.h"

namespace fastact::inline FASTACT_TARGET {

// A table in pairs: 16 pairs fill the 32 banks of shared memory exactly once. The alignment is for
// the copy to shared memory, which moves 16 bytes at a time. GELU: 0.933 of copy speed, in quads
// 0.894 (H200, docs/dev/tuning.md).
template <int Size>
struct alignas(16) PackedSegments {
  float2 values[kSegmentCoefficients / 2 + 1][Size];
};

template <int Size>
constexpr PackedSegments<Size> packed(const SegmentTable<Size>& table) {
  PackedSegments<Size> result{};
  for (int i = 0; i < Size; ++i) {
    const auto& c = table.coefficients;
    result.values[0][i] = {table.centers[i], c[0][i]};
    for (int k = 1; k < kSegmentCoefficients; k += 2)
      result.values[(k + 1) / 2][i] = {c[k][i], c[k + 1][i]};
  }
  return result;
}

template <const auto& kTable>
__device__ const auto kPackedSegments = packed(kTable);

// The copy of a thread block, in shared memory. Its addresses are an index plus a constant.
template <const auto& kTable>
__device__ __forceinline__ auto& shared_segments() {
  __shared__ decltype(packed(kTable)) segments;
  return segments;
}

// Returns a segment from the values of a packed table in any memory.
template <int Size>
__device__ __forceinline__ Segment
segment_from(const float2 (&values)[kSegmentCoefficients / 2 + 1][Size], uint32_t index) {
  const float2 first = values[0][index];
  Segment segment{first.x, {first.y}};
#pragma unroll
  for (int k = 1; k < kSegmentCoefficients; k += 2) {
    const float2 pair = values[(k + 1) / 2][index];
    segment.coefficients[k] = pair.x;
    segment.coefficients[k + 1] = pair.y;
  }
  return segment;
}

}  // namespace fastact::inline FASTACT_TARGET

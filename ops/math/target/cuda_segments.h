// Segment tables on a GPU. Both passes of nvcc read this file, because both parse the kernels.
#pragma once

#include <type_traits>

#include "ops/math/target/target.h"

namespace fastact::inline FASTACT_TARGET {

// A table in the layout of shared memory. Tables of up to 32 segments are stored in pairs: 16 pairs
// fill the 32 banks exactly once. GELU runs at 0.933 of copy speed with pairs, and at 0.894 with
// quads (H200, docs/dev/tuning.md). Tables of 48 segments are stored as single numbers, because
// then at most two segments share a bank, and with pairs three do. The alignment is for the copy to
// shared memory, which moves 16 bytes at a time.
template <int Size, int Coefficients>
struct alignas(16) PackedSegments {
  static constexpr bool kInPairs = Size <= 32;
  static constexpr int kColumns = kInPairs ? Coefficients / 2 + 1 : Coefficients + 1;

  std::conditional_t<kInPairs, float2, float> values[kColumns][Size];
};

template <class Table>
constexpr auto packed(const Table& table) {
  using Shape = TableShape<Table>;
  PackedSegments<Shape::kSize, Shape::kCoefficients> result{};
  for (int i = 0; i < Shape::kSize; ++i) {
    const auto& c = table.coefficients;
    if constexpr (decltype(result)::kInPairs) {
      result.values[0][i] = {table.centers[i], c[0][i]};
      for (int k = 1; k < Shape::kCoefficients; k += 2) {
        const bool is_pair = k + 1 < Shape::kCoefficients;
        result.values[(k + 1) / 2][i] = {c[k][i], is_pair ? c[k + 1][i] : 0.0f};
      }
    } else {
      result.values[0][i] = table.centers[i];
      for (int k = 0; k < Shape::kCoefficients; ++k) result.values[k + 1][i] = c[k][i];
    }
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

// Returns a segment from a packed table in any memory.
template <int Size, int Coefficients>
__device__ __forceinline__ SegmentOf<Coefficients> segment_from(
    const PackedSegments<Size, Coefficients>& table, uint32_t index) {
  SegmentOf<Coefficients> segment;
  if constexpr (PackedSegments<Size, Coefficients>::kInPairs) {
    const float2 first = table.values[0][index];
    segment.center = first.x;
    segment.coefficients[0] = first.y;
#pragma unroll
    for (int k = 1; k < Coefficients; k += 2) {
      const float2 pair = table.values[(k + 1) / 2][index];
      segment.coefficients[k] = pair.x;
      if (k + 1 < Coefficients) segment.coefficients[k + 1] = pair.y;
    }
  } else {
    segment.center = table.values[0][index];
#pragma unroll
    for (int k = 0; k < Coefficients; ++k) segment.coefficients[k] = table.values[k + 1][index];
  }
  return segment;
}

}  // namespace fastact::inline FASTACT_TARGET

// Transposes small matrices in vector registers. Compiled once for each instruction set.
#pragma once

#include <cstdint>
#include <utility>

#include "ops/math/target/target.h"

namespace fastact::cpu::inline FASTACT_TARGET {

// A matrix of kSize x kSize elements, which fills vector registers.
template <class T>
class TransposeTile {
#if defined(__AVX512F__)
  static constexpr int kBytes = 64;
#elif defined(__AVX2__)
  static constexpr int kBytes = 32;
#else
  static constexpr int kBytes = 16;
#endif
  using Vector [[gnu::vector_size(kBytes), gnu::may_alias]] = T;

 public:
  static constexpr int kSize = kBytes / static_cast<int>(sizeof(T));

  // The rows are aligned to vectors. The strides are in elements.
  static FASTACT_INLINE void transpose(const T* from, int64_t from_stride, T* to,
                                       int64_t to_stride) {
    transpose(from, from_stride, to, to_stride, Indices{});
  }

 private:
  using Indices = std::make_integer_sequence<int, kSize>;
  // The elements in a lane of 128 bits. A shuffle within lanes is one instruction.
  static constexpr int kLane = 16 / static_cast<int>(sizeof(T));
  static constexpr int kLanes = kSize / kLane;

  template <int... I>
  static FASTACT_INLINE void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride,
                                       std::integer_sequence<int, I...> indices) {
    TransposeTile tile;
    ((tile.rows_[I] = *reinterpret_cast<const Vector*>(from + I * from_stride)), ...);
    tile.template exchange<1>(indices);
    ((*reinterpret_cast<Vector*>(to + I * to_stride) = tile.rows_[place_of(I)]), ...);
  }

  // The row in which exchange() leaves a column.
  static constexpr int place_of(int column) {
    return kLane == 4 ? (column & ~3) | (column & 1) << 1 | (column >> 1 & 1) : column;
  }

  // Shuffles each pair of rows Distance apart, then twice Distance apart, and so on. Together, the
  // steps transpose the tile, except that column c ends in row place_of(c).
  template <int Distance, int... I>
  FASTACT_INLINE void exchange(std::integer_sequence<int, I...> indices) {
    if constexpr (Distance < kSize) {
      (exchange_rows<I, Distance>(indices), ...);
      exchange<2 * Distance>(indices);
    }
  }
  template <int Row, int Distance, class Sequence>
  FASTACT_INLINE void exchange_rows(Sequence indices) {
    if constexpr ((Row & Distance) == 0) {
      const Vector first = rows_[Row];
      const Vector second = rows_[Row + Distance];
      rows_[Row] = shuffled<Distance, 0>(first, second, indices);
      rows_[Row + Distance] = shuffled<Distance, 1>(first, second, indices);
    }
  }

  template <int Distance, int Half, int... J>
  static FASTACT_INLINE Vector shuffled(Vector first, Vector second,
                                        std::integer_sequence<int, J...>) {
    return __builtin_shufflevector(first, second, source<Distance, Half>(J)...);
  }

  // The index of a shuffled row's element j in both rows, one after the other.
  template <int Distance, int Half>
  static constexpr int source(int j) {
    const int lane = j / kLane;
    const int k = j % kLane;
    if constexpr (Distance < kLane) {
      // Interleaves groups of Distance elements from half of each lane.
      const int group = k / Distance;
      return group % 2 * kSize + lane * kLane + Half * (kLane / 2) + group / 2 * Distance +
             k % Distance;
    } else {
      // The even or the odd lanes.
      return lane / (kLanes / 2) * kSize + (lane % (kLanes / 2) * 2 + Half) * kLane + k;
    }
  }

  Vector rows_[kSize];
};

}  // namespace fastact::cpu::inline FASTACT_TARGET

// The order in which the elements of a row are added. It depends on the length of the row alone:
//
// - The row is split into tiles of 1,024 elements.
// - In a tile, lane l of 256 starts at +0 and adds elements l, l + 256, l + 512 and l + 768.
// - A binary tree adds the lanes, neighbours first: ((0 + 1) + (2 + 3)) + ...
// - A binary tree adds the tiles in the same way.
//
// Sums of the type RowSum also add the rounding errors of the trees' additions, in a second number.
// Softmax has errors of up to 3.1 instead of 6.5 ULP with them (docs/dev/tuning.md).
//
// A missing element, lane or tile counts as +0. Adding +0 changes no sum but -0. A sum is -0 only
// if all of its terms are negative products that underflow, and no result depends on its sign. So
// any thread, warp or block may compute any tile, and a row has the same sum if zeros follow it.
//
// The order is part of the promise on bits: a change of it changes results.
#pragma once

#include <cstdint>

#include "ops/math/arithmetic.h"

namespace fastact::inline FASTACT_TARGET {

inline constexpr int kRowTile = 1024;
inline constexpr int kRowLanes = 256;

FASTACT_INLINE int64_t tiles_of_row(int64_t n) { return (n + kRowTile - 1) / kRowTile; }

// high + low, where `low` is the sum of the rounding errors of the additions.
template <class T>
struct RowSum {
  RowSum() = default;
  FASTACT_INLINE explicit RowSum(T value) : high(value), low(T{0}) {}
  FASTACT_INLINE RowSum(T its_high, T its_low) : high(its_high), low(its_low) {}

  T high;
  T low;
};

// Returns the sum without its errors.
template <class T>
FASTACT_INLINE T value_of(T sum) {
  return sum;
}
template <class T>
FASTACT_INLINE T value_of(const RowSum<T>& sum) {
  return sum.high;
}

// Returns the rounding error of `sum`, which is a + b rounded. The error is exact (Knuth's
// two-sum), so the order of a and b changes nothing.
template <class T>
FASTACT_INLINE T error_of_sum(const T& a, const T& b, const T& sum) {
  const T added = sum - a;
  return (a - (sum - added)) + (b - added);
}

template <class T>
FASTACT_INLINE RowSum<T> operator+(const RowSum<T>& a, const RowSum<T>& b) {
  const T high = a.high + b.high;
  return RowSum<T>(high, (a.low + b.low) + error_of_sum(a.high, b.high, high));
}

// Adds the sums of a row's tiles, which add() takes from the first to the last, by the tree. It
// stores one sum for each subtree that is not yet complete. Sum is T or RowSum<T>.
template <class Sum>
class TileTree {
 public:
  FASTACT_INLINE void add(Sum sum) {
    int level = 0;
    for (; (count_ >> level & 1) != 0; ++level) sum = subtrees_[level] + sum;
    subtrees_[level] = sum;
    ++count_;
  }

  FASTACT_INLINE Sum total() const {
    Sum sum(0);
    bool is_first = true;
    for (int level = 0; count_ >> level != 0; ++level) {
      if ((count_ >> level & 1) == 0) continue;
      sum = is_first ? subtrees_[level] : subtrees_[level] + sum;
      is_first = false;
    }
    return sum;
  }

 private:
  // Enough for every row: 2^53 elements.
  static constexpr int kLevels = 44;

  Sum subtrees_[kLevels];
  int64_t count_ = 0;
};

}  // namespace fastact::inline FASTACT_TARGET

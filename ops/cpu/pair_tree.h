// Combines neighbours by the binary tree of ops/math/row_order.h, in vector registers. Compiled
// once for each instruction set.
#pragma once

#include <type_traits>
#include <utility>

#include "ops/cpu/vector_register.h"
#include "ops/math/row_order.h"

namespace fastact::cpu::inline FASTACT_TARGET {

// Stands for the larger of two numbers instead of their sum.
struct Largest {};

// Adds numbers of type T by the tree. Sum is T, RowSum<T> or Largest.
//
// A step takes two vectors and adds neighbours. The first steps do so within lanes of 128 bits,
// where a shuffle is one instruction, and the others add neighbouring lanes. After kSteps steps,
// kSize vectors have become one, and their sums are in order again.
template <class T, class Sum, int Bytes = kRegisterBytes>
class PairTree {
  using Register = VectorRegister<T, Bytes>;
  using Vector = typename Register::Vector;
  using Indices = std::make_integer_sequence<int, Register::kSize>;
  static constexpr bool kHasLow = std::is_same_v<Sum, RowSum<T>>;

  struct Sums {
    Vector high;
    Vector low;  // if kHasLow
  };

  static constexpr int kSize = Register::kSize;
  static constexpr int kLane = Register::kLane;

  static constexpr int log2(int n) { return n == 1 ? 0 : 1 + log2(n / 2); }
  static constexpr int kSteps = log2(kSize);
  static constexpr int kStepsInLanes = log2(kLane);

 public:
  // Returns the sum of `Count` numbers, a power of two. `from` is aligned to 64 bytes.
  template <int Count>
  static FASTACT_INLINE Sum total(const T* from) {
    static_assert(Count >= kSize);
    constexpr int kVectors = Count / kSize;
    // From here on, a vector is added to itself, so every sum occurs at least twice.
    const Sums sums = reduced<kSize, log2(kVectors)>(subtree<kVectors>(from));
    if constexpr (kHasLow) {
      return Sum(sums.high[0], sums.low[0]);
    } else {
      return sums.high[0];
    }
  }

  // Writes the sums of 16 rows of 16 numbers, one row after the other, and the lower parts that
  // RowSum has. All pointers are aligned to 64 bytes.
  static FASTACT_INLINE void totals_of_rows(const T* rows, T* to, T* to_low) {
    for (int row = 0; row < 16; row += kSize) {
      const Sums sums = subtree<16>(rows + row * 16);
      *reinterpret_cast<Vector*>(to + row) = in_order(sums.high, Indices());
      if constexpr (kHasLow)
        *reinterpret_cast<Vector*>(to_low + row) = in_order(sums.low, Indices());
    }
  }

 private:
  // Combines `Vectors` vectors to one.
  template <int Vectors>
  static FASTACT_INLINE Sums subtree(const T* from) {
    if constexpr (Vectors == 1) {
      return {*reinterpret_cast<const Vector*>(from), Vector{}};
    } else {
      constexpr int kHalf = Vectors / 2;
      return step<log2(kHalf)>(subtree<kHalf>(from), subtree<kHalf>(from + kHalf * kSize));
    }
  }

  // Adds the `Values` different numbers of a vector, after `Step` steps.
  template <int Values, int Step>
  static FASTACT_INLINE Sums reduced(const Sums& sums) {
    if constexpr (Values == 1) {
      return sums;
    } else {
      return reduced<Values / 2, Step + 1>(step<Step>(sums, sums));
    }
  }

  template <int Step>
  static FASTACT_INLINE Sums step(const Sums& a, const Sums& b) {
    const Vector first = chosen<Step, 0>(a.high, b.high);
    const Vector second = chosen<Step, 1>(a.high, b.high);
    if constexpr (std::is_same_v<Sum, Largest>) return {first > second ? first : second, Vector{}};
    Sums sums = {first + second, Vector{}};
    if constexpr (kHasLow) {
      sums.low = (chosen<Step, 0>(a.low, b.low) + chosen<Step, 1>(a.low, b.low)) +
                 error_of_sum(first, second, sums.high);
    }
    return sums;
  }

  // Returns the first or second number of each pair.
  template <int Step, int Which>
  static FASTACT_INLINE Vector chosen(const Vector& a, const Vector& b) {
    return shuffled<Step % kSteps, Which>(a, b, Indices());
  }

  template <int Step, int Which, int... I>
  static FASTACT_INLINE Vector shuffled(const Vector& a, const Vector& b,
                                        std::integer_sequence<int, I...> /*indices*/) {
    return Register::template shuffled<source<Step, Which>(I)...>(a, b);
  }

  // Returns the index, in a followed by b, of element i of the shuffled vector.
  template <int Step, int Which>
  static constexpr int source(int i) {
    if constexpr (Step < kStepsInLanes) {
      const int k = i % kLane;
      return k / (kLane / 2) * kSize + i / kLane * kLane + k % (kLane / 2) * 2 + Which;
    } else {
      constexpr int kHalf = Register::kLanes / 2;
      const int lane = i / kLane;
      return lane / kHalf * kSize + (lane % kHalf * 2 + Which) * kLane + i % kLane;
    }
  }

  // Orders the sums of 16 vectors, which took four steps.
  template <int... I>
  static FASTACT_INLINE Vector in_order(const Vector& sums,
                                        std::integer_sequence<int, I...> /*indices*/) {
    if constexpr (4 % kSteps == 0) {
      return sums;
    } else {
      static_assert(4 % kSteps == 1);
      return Register::template shuffled<place_of(I)...>(sums, sums);
    }
  }

  // Returns the place where step 0 leaves the sum of pair i of two vectors.
  static constexpr int place_of(int i) {
    constexpr int kHalf = kLane / 2;
    const int of_vector = i % (kSize / 2);
    return of_vector / kHalf * kLane + i / (kSize / 2) * kHalf + of_vector % kHalf;
  }
};

}  // namespace fastact::cpu::inline FASTACT_TARGET

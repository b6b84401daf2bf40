// The exponentials of the elements of a row, relative to that of its largest element.
#pragma once

#include "ops/math/exponential.h"
#include "ops/math/row_order.h"

namespace fastact::inline FASTACT_TARGET {

// Computes e^x 2^(kScaleBits - k) for the elements x of a row, where k is the integer nearest to
// largest / ln2. So no result overflows, and every result that is not 0 is a normal number.
//
// The error of e^(x - largest) would grow with |x - largest|, because the difference is rounded.
// Therefore x itself is reduced: x = n ln2 + r. In a row far from 0, `largest` is subtracted from
// every x first. There the difference is exact (Sterbenz's lemma) unless its exponential is 0.
template <class T>
class RowExponential {
  static constexpr bool kIsFloat = sizeof(T) == 4;
  static constexpr int kMantissaBits = kIsFloat ? 23 : 52;
  static constexpr int kScaleBits = kIsFloat ? 32 : 64;

 public:
  // 2^kScaleBits.
  static constexpr T kScale = static_cast<T>(kIsFloat ? 0x1p32 : 0x1p64);

  RowExponential() = default;  // k = 0
  FASTACT_INLINE explicit RowExponential(T largest)
      : origin_(magnitude(largest) < kFar ? T{0} : largest),
        k_(fma(largest - origin_, kLog2E<T>, kRounder) - kRounder),
        shifter_(kShifter - k_) {}

  // For x <= largest. The result is 0 if e^x 2^-k is below half of the smallest subnormal number.
  // The error is below 0.9 ULP in float (8 rows of 4 million elements, against double).
  FASTACT_INLINE T operator()(T x) const {
    const T t = x - origin_;
    const T shifted = fma(t, kLog2E<T>, shifter_);
    const T n = shifted - shifter_;
    const T r = fma(n, -kLn2Low<T>, fma(n, -kLn2High<T>, t));
    T power;
    if constexpr (kIsFloat) {
      power = fma(r, polynomial<kExponentialQuotientFloat>(r), T{1});
    } else {
      power = T{1} + fma(r * r, exponential_tail(r), r);
    }
    return shifted < kLowest ? T{0} : power * from_bits(to_bits(shifted) << kMantissaBits);
  }

  // Returns e^largest 2^-k in two parts. The error of their sum is below 0.2 ULP in float.
  FASTACT_INLINE RowSum<T> at_largest(T largest) const {
    const T rough = fma(k_, -kLn2High<T>, largest - origin_);
    const T r = fma(k_, -kLn2Low<T>, rough);
    const T r_low = fma(k_, -kLn2Low<T>, rough - r);
    const T linear = T{1} + r;
    const T tail = fma(r * r, exponential_tail(r), ((T{1} - linear) + r) + r_low);
    const T high = linear + tail;
    return RowSum<T>(high, (linear - high) + tail);
  }

  // Calls visit(member) for each member. All depend on the row.
  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    visit(origin_);
    visit(k_);
    visit(shifter_);
  }

 private:
  // At least twice the distance at which the exponential is 0.
  static constexpr T kFar = static_cast<T>(kIsFloat ? 0x1p8 : 0x1p11);
  // Adding it rounds to an integer. Adding kShifter instead leaves the integer, the scale and the
  // exponent's bias in the low bits of the sum.
  static constexpr T kRounder = static_cast<T>(kIsFloat ? 0x1.8p23 : 0x1.8p52);
  static constexpr T kShifter = kRounder + static_cast<T>(kScaleBits + (kIsFloat ? 127 : 1023));
  // 2^-150 and 2^-1075 are half of the smallest subnormal number. An element whose n is lower by
  // one still has a result, because e^largest may be below 2^k.
  static constexpr T kLowest = kShifter - static_cast<T>(kIsFloat ? 151 : 1076);

  T origin_ = T{0};
  T k_ = T{0};
  T shifter_ = kShifter;
};

}  // namespace fastact::inline FASTACT_TARGET

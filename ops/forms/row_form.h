// The contract between a row form, which defines what a kernel computes along a row, and the row
// engines (ops/cpu/row_loop.h, ops/cuda/rows.cuh). A row form computes a row of each output from a
// row of each input. Between the inputs and the outputs it has reductions along the row:
//
//   template <class Element>
//   struct Form {
//     using T = OpMath<Element>;
//     using Outputs = Elements<Element>;
//     using Inputs = Elements<Element>;  // one to three
//     using Sum = T;  // or RowSum<T>
//     // In this order. A maximum is that of the first values, and ignores NaN.
//     static constexpr Reduction kReductions[] = {Reduction::kMaximum, Reduction::kSum};
//     // The reduction that replaces the first value of each element, or -1.
//     static constexpr int kReplacedBy = 1;
//     // What pads the first input beyond the end of a row; 0 pads the others. accumulate() of
//     // padding changes no sum.
//     static constexpr T kBeyondEnd = -infinity;
//     // Optional: what pads the first input after the first reduction.
//     T beyond_end() const;
//     // Optional: the number of trailing inputs that all rows usually share, such as weight and
//     // bias. The default is 0.
//     static constexpr int kShared = 1;
//
//     Form(const double* parameters, int64_t n);  // for rows of n elements
//     // Adds an element's terms to the sums of reduction R, and returns the first value, which
//     // reduction kReplacedBy may replace.
//     template <int R> T accumulate(T* sums, T first, T... others) const;
//     // Takes the results of reduction R: sums, or a maximum as the first one.
//     template <int R> void finish(const Sum* totals);
//     auto evaluate(T first, T... others) const;  // as in form.h
//     // Calls visit(member) for each member that finish() sets. All are of type T.
//     template <class Visit> void each_number(const Visit& visit);
//   };
//
// Sums have the order of ops/math/row_order.h. Results depend on the row alone, because a form
// knows neither the position of an element nor other rows.
#pragma once

#include <concepts>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#include "ops/forms/form.h"
#include "ops/math/row_order.h"

namespace fastact::inline FASTACT_TARGET {

enum class Reduction : uint8_t {
  kMaximum,
  kSum,
  kTwoSums,      // in one pass
  kFourSums,     // in one pass
  kSumAndCount,  // a sum and a count, in one pass
};

// The largest number of results of any reduction.
inline constexpr int kMaxSums = 4;

template <class T>
inline constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

template <class F>
inline constexpr int kNumReductions = static_cast<int>(std::size(F::kReductions));

constexpr int sums_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kTwoSums:
    case Reduction::kSumAndCount:
      return 2;
    case Reduction::kFourSums:
      return 4;
    default:
      return 1;
  }
}
template <class F, int R>
inline constexpr int kSumsOf = sums_of(F::kReductions[R]);
// The largest number of results of any reduction of this form.
template <class F>
inline constexpr int kMostSums = [] {
  int most = 1;
  for (const Reduction reduction : F::kReductions)
    most = sums_of(reduction) > most ? sums_of(reduction) : most;
  return most;
}();

// The type in which sum S of reduction R is added: counts are exact.
template <class F, int R, int S>
using SumOf = std::conditional_t<S == 1 && F::kReductions[R] == Reduction::kSumAndCount,
                                 typename F::T, typename F::Sum>;

// The number S, known at compile time. GPU code cannot convert a std::integral_constant.
template <int S>
struct SumIndex {
  // NOLINTNEXTLINE(google-explicit-constructor): it is a number
  FASTACT_INLINE constexpr operator int() const { return S; }
};

// Calls visit(SumIndex<S>()) for each sum S of reduction R.
template <class F, int R, class Visit>
FASTACT_INLINE void for_each_sum(const Visit& visit) {
  [&]<int... S>(std::integer_sequence<int, S...> /*sums*/) {
    (visit(SumIndex<S>()), ...);
  }(std::make_integer_sequence<int, kSumsOf<F, R>>());
}

// True if a reduction before this one has replaced the first value.
template <class F, int R>
inline constexpr bool kIsReplacedBefore = F::kReplacedBy >= 0 && F::kReplacedBy < R;

// True if reduction R pads the first input anew.
template <class F, int R>
inline constexpr bool kPadsAgain = R > 0 && requires(const F& form) { form.beyond_end(); };

template <class F>
concept IsRowForm =
    HasOperands<F> && std::constructible_from<F, const double*, int64_t> && CanEvaluate<F> &&
    F::Outputs::kCount == 1 && F::Inputs::kCount <= 3 && kNumReductions<F> >= 1;

// The inputs that differ from row to row.
template <class F>
inline constexpr int kInputsOfRow = [] {
  if constexpr (requires { F::kShared; }) {
    return F::Inputs::kCount - F::kShared;
  } else {
    return F::Inputs::kCount;
  }
}();

// The inputs after the first one, counted from 1.
template <class F>
struct OtherInputs {
  // Calls form.accumulate<R>() with the value get(i) of each.
  template <int R, class T, class Get>
  static FASTACT_INLINE T accumulate(const F& form, T* sums, T first, const Get& get) {
    return accumulate<R>(form, sums, first, get, Indices());
  }
  template <class T, class Get>
  static FASTACT_INLINE auto evaluate(const F& form, T first, const Get& get) {
    return evaluate(form, first, get, Indices());
  }

 private:
  using Indices = std::make_integer_sequence<int, F::Inputs::kCount - 1>;

  template <int R, class T, class Get, int... I>
  static FASTACT_INLINE T accumulate(const F& form, T* sums, T first, const Get& get,
                                     std::integer_sequence<int, I...> /*indices*/) {
    return form.template accumulate<R>(sums, first, get(1 + I)...);
  }
  template <class T, class Get, int... I>
  static FASTACT_INLINE auto evaluate(const F& form, T first, const Get& get,
                                      std::integer_sequence<int, I...> /*indices*/) {
    return form.evaluate(first, get(1 + I)...);
  }
};

}  // namespace fastact::inline FASTACT_TARGET

// The contract between a row form, which defines what a kernel computes along a row, and the row
// engines (ops/cpu/row_loop.h, ops/cuda/rows.cuh). A row form computes a row of each output from a
// row of each input. Between the inputs and the outputs it has reductions along the row:
//
//   template <class Element>
//   struct Form {
//     using T = OpMath<Element>;
//     using Outputs = Elements<Element>;
//     using Inputs = Elements<Element>;  // one or two
//     using Sum = T;  // or RowSum<T>
//     // In this order. A maximum is that of the first values, and ignores NaN.
//     static constexpr Reduction kReductions[] = {Reduction::kMaximum, Reduction::kSum};
//     // The reduction that replaces the first value of each element, or -1.
//     static constexpr int kReplacedBy = 1;
//     // What pads the first input beyond the end of a row; 0 pads the others. accumulate() of
//     // padding changes no sum.
//     static constexpr T kBeyondEnd = -infinity;
//
//     explicit Form(const double* parameters);
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

#include "ops/forms/form.h"
#include "ops/math/row_order.h"

namespace fastact::inline FASTACT_TARGET {

enum class Reduction : uint8_t {
  kMaximum,
  kSum,
  kSumAndCount,  // in one pass; the count is the second sum
};

// The most results of a reduction.
inline constexpr int kMaxSums = 2;

template <class T>
inline constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

template <class F>
inline constexpr int kNumReductions = static_cast<int>(std::size(F::kReductions));

template <class F, int R>
inline constexpr int kSumsOf = F::kReductions[R] == Reduction::kSumAndCount ? 2 : 1;

// The type in which sum S of reduction R is added: counts are exact.
template <class F, int R, int S>
using SumOf = std::conditional_t<S == 1 && F::kReductions[R] == Reduction::kSumAndCount,
                                 typename F::T, typename F::Sum>;

// True if a reduction before this one has replaced the first value.
template <class F, int R>
inline constexpr bool kIsReplacedBefore = F::kReplacedBy >= 0 && F::kReplacedBy < R;

template <class F>
concept IsRowForm = HasOperands<F> && std::constructible_from<F, const double*> && CanEvaluate<F> &&
                    F::Outputs::kCount == 1 && F::Inputs::kCount <= 2 && kNumReductions<F> >= 1;

}  // namespace fastact::inline FASTACT_TARGET

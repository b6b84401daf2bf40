// The contract between a row form, which defines what a kernel computes along a row, and the row
// engines (ops/cpu/row_loop.h, ops/cuda/rows.cuh). A row form computes a row of each output from a
// row of each input. Between the inputs and the outputs it has reductions along the row:
//
//   template <class Element>
//   struct Form {
//     using T = OpMath<Element>;
//     using Outputs = Elements<Element>;  // or Elements<>
//     using Inputs = Elements<Element>;   // one to three
//     // Optional: one value for each row, such as its mean.
//     using RowOutputs = Elements<Element>;
//     using RowInputs = Elements<T, T>;
//     using Sum = T;  // or RowSum<T>
//     // In this order. A maximum is that of the first values, and ignores NaN.
//     static constexpr Reduction kReductions[] = {Reduction::kMaximum, Reduction::kSum};
//     // The reduction that replaces the first value of each element, or -1.
//     static constexpr int kReplacedBy = 1;
//     // What pads the first input beyond the end of a row; 0 pads the others. accumulate() of
//     // padding changes no sum that affects a result.
//     static constexpr T kBeyondEnd = -infinity;
//     // Optional: what pads the first input after the first reduction, or, with RowInputs, always.
//     T beyond_end() const;
//     // Optional: the number of trailing inputs that all rows usually share, such as weight and
//     // bias. The default is 0.
//     static constexpr int kShared = 1;
//     // Optional: whether accumulate() takes the shared inputs, too. The default is false.
//     static constexpr bool kAddsShared = true;
//
//     Form(const double* parameters, int64_t n);  // for rows of n elements
//     // If the form has RowInputs: takes them, before the first reduction.
//     void start(T... row_inputs);
//     // Adds an element's terms to the sums of reduction R, and returns the first value, which
//     // reduction kReplacedBy may replace. Takes no shared inputs unless kAddsShared is true.
//     template <int R> T accumulate(T* sums, T first, T... others) const;
//     // Takes the results of reduction R: sums, or a maximum as the first one.
//     template <int R> void finish(const Sum* totals);
//     auto evaluate(T first, T... others) const;  // as in form.h, if it has Outputs
//     auto row_results() const;                   // a Tuple, if it has RowOutputs
//     // Calls visit(member) for each member that start() or finish() sets. All are of type T.
//     template <class Visit> void each_number(const Visit& visit);
//   };
//
// A kernel's operands are the outputs, the inputs, the row outputs and the row inputs, in this
// order. A row output whose address is null is not stored.
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
  kThreeSums,    // in one pass
  kSumAndCount,  // a sum and a count, in one pass
};

// The largest number of results of any reduction.
inline constexpr int kMaxSums = 3;

template <class T>
inline constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

template <class F>
inline constexpr int kNumReductions = static_cast<int>(std::size(F::kReductions));

constexpr int sums_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kTwoSums:
    case Reduction::kSumAndCount:
      return 2;
    case Reduction::kThreeSums:
      return 3;
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

template <class F>
constexpr auto row_outputs_of() {
  if constexpr (requires { typename F::RowOutputs; }) {
    return typename F::RowOutputs();
  } else {
    return Elements<>();
  }
}
template <class F>
constexpr auto row_inputs_of() {
  if constexpr (requires { typename F::RowInputs; }) {
    return typename F::RowInputs();
  } else {
    return Elements<>();
  }
}
template <class F>
using RowOutputsOf = decltype(row_outputs_of<F>());
template <class F>
using RowInputsOf = decltype(row_inputs_of<F>());
template <class F>
inline constexpr int kRowOutputs = RowOutputsOf<F>::kCount;
template <class F>
inline constexpr int kRowInputs = RowInputsOf<F>::kCount;
template <class F>
inline constexpr int kRowNumbers = kRowOutputs<F> + kRowInputs<F>;

// True if the form writes an element for each element of the inputs.
template <class F>
inline constexpr bool kHasElements = F::Outputs::kCount == 1;

// True if reduction R pads the first input anew.
template <class F, int R>
inline constexpr bool kPadsAgain =
    (R > 0 || kRowInputs<F> > 0) && requires(const F& form) { form.beyond_end(); };

template <class F>
concept IsRowForm =
    HasOperands<F> && std::constructible_from<F, const double*, int64_t> &&
    F::Outputs::kCount <= 1 && F::Inputs::kCount <= 3 && kNumReductions<F> >= 1 &&
    (CanEvaluate<F> || !kHasElements<F>) && kOperandsOf<F> + kRowNumbers<F> <= kMaxRowOperands;

// The inputs that differ from row to row.
template <class F>
inline constexpr int kInputsOfRow = [] {
  if constexpr (requires { F::kShared; }) {
    return F::Inputs::kCount - F::kShared;
  } else {
    return F::Inputs::kCount;
  }
}();

// True if accumulate() takes the shared inputs.
template <class F>
inline constexpr bool kAddsShared = [] {
  if constexpr (requires { F::kAddsShared; }) {
    return F::kAddsShared;
  } else {
    return false;
  }
}();

// Calls form.start() with the numbers at address(k) for each row input k.
template <class F, class Address>
FASTACT_INLINE void start_row(F& form, const Address& address) {
  if constexpr (kRowInputs<F> > 0) {
    [&]<class... E, int... K>(Elements<E...>, std::integer_sequence<int, K...> /*numbers*/) {
      form.start(widen(*reinterpret_cast<const E*>(address(K)))...);
    }(RowInputsOf<F>(), std::make_integer_sequence<int, kRowInputs<F>>());
  }
}

// Stores each row output k at address(k), if that is not null.
template <class F, class Address>
FASTACT_INLINE void store_row_results(const F& form, const Address& address) {
  if constexpr (kRowOutputs<F> > 0) {
    const auto results = form.row_results();
    const auto store = [](char* to, const auto& result) {
      if (to != nullptr) *reinterpret_cast<std::remove_cvref_t<decltype(result)>*>(to) = result;
    };
    [&]<class... E, int... K>(Elements<E...>, std::integer_sequence<int, K...> /*numbers*/) {
      (store(address(K), round_to<E>(at<K>(results))), ...);
    }(RowOutputsOf<F>(), std::make_integer_sequence<int, kRowOutputs<F>>());
  }
}

// The inputs after the first one, counted from 1.
template <class F>
struct OtherInputs {
  // Calls form.accumulate<R>() with the value get(i) of each that it takes.
  template <int R, class T, class Get>
  static FASTACT_INLINE T accumulate(const F& form, T* sums, T first, const Get& get) {
    constexpr int kTaken = kAddsShared<F> ? F::Inputs::kCount : kInputsOfRow<F>;
    return accumulate<R>(form, sums, first, get, std::make_integer_sequence<int, kTaken - 1>());
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

// Rows of kShortestFixedRow to kLongestFixedRow elements that row_panels.h does not compute, in
// loops of fixed length, which the compiler unrolls: docs/dev/tuning.md.
#pragma once

#include <cstdint>

#include "ops/cpu/row_parts.h"

namespace fastact::cpu::inline FASTACT_TARGET {

inline constexpr int kShortestFixedRow = 33;
inline constexpr int kLongestFixedRow = 256;

// Computes rows of at most `Size` elements, which is a power of two. Elements beyond the end have
// the values that change no result.
template <class F, class Element, int Inputs, int Size>
class ShortRows {
  using T = OpMath<Element>;
  using Sum = typename F::Sum;
  static constexpr int kLanes = 16;

 public:
  static void run(const Parameters& parameters, char* const* data, const int64_t* strides,
                  int64_t n, int64_t rows) {
    alignas(64) T values[Inputs][Size];
    for (int input = 0; input < Inputs; ++input)
      for (int64_t i = n; i < Size; ++i) values[input][i] = beyond_end(input);
    for (int64_t row = 0; row < rows; ++row) {
      for (int input = 0; input < Inputs; ++input) {
        load(reinterpret_cast<const Element*>(data[1 + input] + row * strides[1 + input]),
             values[input], n);
      }
      if constexpr (F::kReplacedBy >= 0 || kPadsAgain<F, kNumReductions<F> - 1>) {
        for (int64_t i = n; i < Size; ++i) values[0][i] = beyond_end(0);
      }
      F form(parameters.values, n);
      reduce<0>(form, values, n);
      auto* const out = reinterpret_cast<Element*>(data[0] + row * strides[0]);
      if (n == Size) {
        write(form, values, out, Size);
      } else {
        write(form, values, out, n);
      }
    }
  }

 private:
  static T beyond_end(int input) { return input == 0 ? F::kBeyondEnd : T{0}; }

  static FASTACT_INLINE void load(const Element* from, T* to, int64_t n) {
    if constexpr (std::is_same_v<Element, Float16>) {
      widen_row(from, to, n);
    } else if (n == Size) {
      // The vectors that are read next must not have been written one element at a time.
      FASTACT_ONE_VECTOR
      for (int64_t i = 0; i < Size; ++i) to[i] = widen(from[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = widen(from[i]);
    }
  }

  template <int R>
  static FASTACT_INLINE void reduce(F& form, T (&values)[Inputs][Size], int64_t n) {
    if constexpr (R < kNumReductions<F>) {
      if constexpr (kPadsAgain<F, R>) {
        for (int64_t i = n; i < Size; ++i) values[0][i] = form.beyond_end();
      }
      Sum totals[kMaxSums];
      if constexpr (F::kReductions[R] == Reduction::kMaximum) {
        totals[0] = Sum(maximum_of(values[0]));
      } else {
        add<R>(form, values, totals);
      }
      form.template finish<R>(totals);
      reduce<R + 1>(form, values, n);
    }
  }

  static FASTACT_INLINE T maximum_of(const T (&values)[Size]) {
    alignas(64) T lanes[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      T maximum = values[lane];
      for (int i = kLanes; i < Size; i += kLanes) maximum = larger(values[lane + i], maximum);
      lanes[lane] = maximum;
    }
    return maximum_of_lanes(lanes);
  }

  template <int R>
  static FASTACT_INLINE void add(const F& the_form, T (&values)[Inputs][Size], Sum* totals) {
    constexpr int kSums = kSumsOf<F, R>;
    const F form = the_form;
    alignas(64) T lanes[kSums][Size];
    FASTACT_INDEPENDENT_ITERATIONS
    FASTACT_ONE_VECTOR
    for (int i = 0; i < Size; ++i) {
      T sums[kSums] = {};
      const T first = OtherInputs<F>::template accumulate<R>(
          form, sums, values[0][i], [&](int input) { return values[input][i]; });
      if constexpr (F::kReplacedBy == R) values[0][i] = first;
      for (int s = 0; s < kSums; ++s) lanes[s][i] = sums[s];
    }
    add_lanes<F, R, Size>(lanes, totals);
  }

  // `values` may be overwritten.
  static FASTACT_INLINE void write(const F& the_form, T (&values)[Inputs][Size], Element* out,
                                   int64_t n) {
    constexpr bool kConverts = std::is_same_v<Element, Float16>;
    using Result = std::conditional_t<kConverts, T, Element>;
    const F form = the_form;
    Result* to;
    if constexpr (kConverts) {
      to = values[0];
    } else {
      to = out;
    }
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; ++i) {
      to[i] = round_to<Result>(OtherInputs<F>::evaluate(
          form, values[0][i], [&](int input) { return values[input][i]; }));
    }
    if constexpr (kConverts) narrow_row(values[0], out, n);
  }
};

template <class F, class Element, int Inputs>
void run_short_rows(const Parameters& parameters, char* const* data, const int64_t* strides,
                    int64_t n, int64_t rows) {
  const auto run = n <= 64    ? &ShortRows<F, Element, Inputs, 64>::run
                   : n <= 128 ? &ShortRows<F, Element, Inputs, 128>::run
                              : &ShortRows<F, Element, Inputs, kLongestFixedRow>::run;
  run(parameters, data, strides, n, rows);
}

}  // namespace fastact::cpu::inline FASTACT_TARGET

// Rows of kShortestFixedRow to kLongestFixedRow elements that row_panels.h does not compute, in
// loops of fixed length, which the compiler unrolls: docs/dev/tuning.md.
#pragma once

#include <cstdint>

#include "ops/cpu/row_parts.h"
#include "ops/cpu/rows.h"

namespace fastact::cpu::inline FASTACT_TARGET {

inline constexpr int kShortestFixedRow = 33;

// Computes rows of at most `Size` elements, which is a power of two. Elements beyond the end have
// the values that change no result. Several rows are computed together, because each step of a row
// waits for the one before.
template <class F, class Element, int Inputs, int Size>
class ShortRows {
  using T = OpMath<Element>;
  using Sum = typename F::Sum;
  static constexpr int kLanes = 16;
  static constexpr int kTogether = 4;

 public:
  static void run(const Parameters& parameters, char* const* data, const int64_t* strides,
                  int64_t n, int64_t rows) {
    const F initial(parameters.values, n);
    Row group[kTogether] = {Row(initial), Row(initial), Row(initial), Row(initial)};
    const NumbersOfRows<F> numbers(data, strides);
    char* const* const from = data + F::Outputs::kCount;
    const int64_t* const distances = strides + F::Outputs::kCount;
    const auto load_row = [&](Row& to, int64_t row, int input) {
      to.load(reinterpret_cast<const Element*>(from[input] + row * distances[input]), input, n);
    };
    const auto is_shared = [&](int input) {
      return input >= kInputsOfRow<F> && distances[input] == 0;
    };
    const int used = static_cast<int>(rows < kTogether ? rows : kTogether);
    for (int k = 0; k < used; ++k) {
      for (int input = 0; input < Inputs; ++input) {
        for (int64_t i = n; i < Size; ++i) group[k].values[input][i] = beyond_end(input);
        if (is_shared(input)) load_row(group[k], 0, input);
      }
    }
    for (int64_t row = 0; row < rows; row += kTogether) {
      const int count = static_cast<int>(rows - row < kTogether ? rows - row : kTogether);
      for (int k = 0; k < count; ++k) {
        for (int input = 0; input < Inputs; ++input)
          if (!is_shared(input)) load_row(group[k], row + k, input);
        if constexpr (F::kReplacedBy >= 0 || kPadsAgain<F, kNumReductions<F> - 1>) {
          for (int64_t i = n; i < Size; ++i) group[k].values[0][i] = beyond_end(0);
        }
        group[k].form = initial;
        numbers.start(group[k].form, row + k);
      }
      reduce<0>(group, n, count);
      for (int k = 0; k < count; ++k) {
        numbers.store(group[k].form, row + k);
        if constexpr (kHasElements<F>) {
          auto* const out = reinterpret_cast<Element*>(data[0] + (row + k) * strides[0]);
          if (n == Size) {
            write(group[k], out, Size);
          } else {
            write(group[k], out, n);
          }
        }
      }
    }
  }

 private:
  struct Pointers {
    const T* rows[Inputs];
  };

  struct Row {
    explicit Row(const F& initial) : form(initial) {}

    // Takes a row of an input: as a pointer to the caller's memory if no element is converted,
    // padded or replaced, else as a copy in `values`.
    FASTACT_INLINE void load(const Element* from, int input, int64_t n) {
      T* const to = values[input];
      if constexpr (std::is_same_v<Element, T>) {
        // A form may write to the first input.
        if (n == Size && (F::kReplacedBy < 0 || input > 0)) {
          loaded.rows[input] = from;
          return;
        }
      }
      loaded.rows[input] = to;
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

    FASTACT_INLINE Pointers inputs() const {
      if constexpr (std::is_same_v<Element, T>) {
        return loaded;
      } else {
        Pointers pointers = {};
        for (int input = 0; input < Inputs; ++input) pointers.rows[input] = values[input];
        return pointers;
      }
    }

    F form;
    alignas(64) T values[Inputs][Size];
    Pointers loaded;
  };

  static T beyond_end(int input) { return input == 0 ? F::kBeyondEnd : T{0}; }

  // Computes the reductions of the first `count` rows.
  template <int R>
  static FASTACT_INLINE void reduce(Row* rows, int64_t n, int count) {
    if constexpr (R < kNumReductions<F>) {
      Sum totals[kTogether][kMaxSums];
      for (int k = 0; k < count; ++k) {
        if constexpr (kPadsAgain<F, R>) {
          for (int64_t i = n; i < Size; ++i) rows[k].values[0][i] = rows[k].form.beyond_end();
        }
        if constexpr (F::kReductions[R] == Reduction::kMaximum) {
          totals[k][0] = Sum(maximum_of(rows[k].inputs().rows[0]));
        } else {
          add<R>(rows[k], totals[k]);
        }
      }
      for (int k = 0; k < count; ++k) rows[k].form.template finish<R>(totals[k]);
      reduce<R + 1>(rows, n, count);
    }
  }

  static FASTACT_INLINE T maximum_of(const T* values) {
    alignas(64) T lanes[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      T maximum = values[lane];
      for (int i = kLanes; i < Size; i += kLanes) maximum = larger(values[lane + i], maximum);
      lanes[lane] = maximum;
    }
    return maximum_of_lanes(lanes);
  }

  template <int R>
  static FASTACT_INLINE void add(Row& row, Sum* totals) {
    constexpr int kSums = kSumsOf<F, R>;
    const F form = row.form;
    const Pointers inputs = row.inputs();
    alignas(64) T lanes[kSums][Size];
    FASTACT_INDEPENDENT_ITERATIONS
    FASTACT_ONE_VECTOR
    for (int i = 0; i < Size; ++i) {
      T sums[kSums] = {};
      const T first = OtherInputs<F>::template accumulate<R>(
          form, sums, inputs.rows[0][i], [&](int input) { return inputs.rows[input][i]; });
      if constexpr (F::kReplacedBy == R) row.values[0][i] = first;
      for (int s = 0; s < kSums; ++s) lanes[s][i] = sums[s];
    }
    add_lanes<F, R, Size>(lanes, totals);
  }

  // `values` may be overwritten.
  static FASTACT_INLINE void write(Row& row, Element* out, int64_t n) {
    constexpr bool kConverts = std::is_same_v<Element, Float16>;
    using Result = std::conditional_t<kConverts, T, Element>;
    const F form = row.form;
    const Pointers inputs = row.inputs();
    Result* to;
    if constexpr (kConverts) {
      to = row.values[0];
    } else {
      to = out;
    }
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; ++i) {
      to[i] = round_to<Result>(OtherInputs<F>::evaluate(
          form, inputs.rows[0][i], [&](int input) { return inputs.rows[input][i]; }));
    }
    if constexpr (kConverts) narrow_row(row.values[0], out, n);
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

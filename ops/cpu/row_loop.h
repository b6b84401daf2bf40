// The CPU kernel of a row form. Compiled once for each instruction set. The compiler vectorises the
// loops over the lanes of a tile, so every instruction set adds in the order of
// ops/math/row_order.h.
#pragma once

#include <cstdint>

#include "ops/cpu/row_panels.h"
#include "ops/cpu/row_parts.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/short_rows.h"

namespace fastact::cpu::inline FASTACT_TARGET {

template <class F, class Element, class... In>
class RowLoopOf {
  using T = OpMath<Element>;
  using Sum = typename F::Sum;
  static constexpr int kInputs = sizeof...(In);
  static_assert(IsRowForm<F> && (std::is_same_v<In, Element> && ...));

  // Float16 rows are converted as a whole before and after the computation.
  static constexpr bool kConverts = std::is_same_v<Element, Float16>;
  using Source = std::conditional_t<kConverts, T, Element>;
  static constexpr bool kReplaces = F::kReplacedBy >= 0;

  // A row. `kept` has the first values that a reduction replaced. It may be the memory of the
  // output or of the first input.
  struct Row {
    Source* out;
    const Source* inputs[kInputs];
    T* kept;
    int64_t n;
  };

 public:
  static void run(const Parameters& parameters, char* const* data, const int64_t* strides,
                  int64_t n, int64_t rows) {
    using Panels = RowPanels<F, Element, kInputs>;
    if (n <= Panels::kLongest && rows >= kPanelRows) {
      const int64_t in_panels = rows - rows % kPanelRows;
      Panels::run(parameters, data, strides, n, in_panels);
      char* rest[1 + kInputs];
      for (int i = 0; i <= kInputs; ++i) rest[i] = data[i] + in_panels * strides[i];
      return run(parameters, rest, strides, n, rows - in_panels);
    }
    if (kShortestRow <= n && n <= kShortRow)
      return run_short_rows<F, Element, kInputs>(parameters, data, strides, n, rows);
    constexpr int kBuffers = kConverts ? kInputs : (kReplaces && !std::is_same_v<T, Element>);
    RowBuffers<T, kBuffers> buffers(n);
    for (int64_t r = 0; r < rows; ++r) {
      auto* const out = reinterpret_cast<Element*>(data[0] + r * strides[0]);
      const auto input = [&](int i) {
        return reinterpret_cast<const Element*>(data[1 + i] + r * strides[1 + i]);
      };
      Row row;
      row.n = n;
      if constexpr (kConverts) {
        for (int i = 0; i < kInputs; ++i) {
          widen_row(input(i), buffers[i], n);
          row.inputs[i] = buffers[i];
        }
        row.out = buffers[0];
        row.kept = buffers[0];
      } else {
        for (int i = 0; i < kInputs; ++i) row.inputs[i] = input(i);
        row.out = out;
        if constexpr (std::is_same_v<T, Element>) {
          row.kept = out;
        } else {
          row.kept = buffers[0];
        }
      }
      F form(parameters.values);
      reduce<0>(form, row);
      write(form, row);
      if constexpr (kConverts) narrow_row(row.out, out, n);
    }
  }

 private:
  // Returns the first value of element i before reduction R.
  template <int R>
  static FASTACT_INLINE T first_value(const Row& row, int64_t i) {
    if constexpr (kIsReplacedBefore<F, R>) {
      return row.kept[i];
    } else {
      return widen(row.inputs[0][i]);
    }
  }

  template <int R>
  static FASTACT_INLINE void accumulate(const F& form, const Row& row, int64_t i, T* sums) {
    T first = first_value<R>(row, i);
    if constexpr (kInputs == 1) {
      first = form.template accumulate<R>(sums, first);
    } else {
      first = form.template accumulate<R>(sums, first, widen(row.inputs[1][i]));
    }
    if constexpr (F::kReplacedBy == R) row.kept[i] = first;
  }

  template <int R>
  static void reduce(F& form, const Row& row) {
    if constexpr (R < kNumReductions<F>) {
      if constexpr (F::kReductions[R] == Reduction::kMaximum) {
        const Sum maximum(maximum_of<R>(row));
        form.template finish<R>(&maximum);
      } else {
        Sum sums[kMaxSums];
        if (row.n <= kRowTile) {
          add_tile<R>(form, row, 0, sums);
        } else {
          add_tiles<R>(form, row, sums);
        }
        form.template finish<R>(sums);
      }
      reduce<R + 1>(form, row);
    }
  }

  template <int R>
  static void add_tiles(const F& form, const Row& row, Sum* totals) {
    constexpr int kSums = kSumsOf<F, R>;
    TileTree<Sum> trees[kSums];
    for (int64_t start = 0; start < row.n; start += kRowTile) {
      add_tile<R>(form, row, start, totals);
      for (int s = 0; s < kSums; ++s) trees[s].add(totals[s]);
    }
    for (int s = 0; s < kSums; ++s) totals[s] = trees[s].total();
  }

  template <int R>
  static void add_tile(const F& form, const Row& row, int64_t start, Sum* totals) {
    if (start + kRowTile <= row.n) {
      add_full_tile<R>(form, row, start, totals);
    } else {
      add_last_tile<R>(form, row, start, totals);
    }
  }

  // The copies of the form and the row let the compiler keep their members in registers.
  template <int R>
  static void add_full_tile(const F& the_form, const Row& the_row, int64_t start, Sum* totals) {
    constexpr int kSums = kSumsOf<F, R>;
    const F form = the_form;
    const Row row = the_row;
    alignas(64) T lanes[kSums][kRowLanes];
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t lane = 0; lane < kRowLanes; ++lane) {
      T sums[kSums] = {};
      accumulate<R>(form, row, start + lane, sums);
      accumulate<R>(form, row, start + lane + kRowLanes, sums);
      accumulate<R>(form, row, start + lane + int64_t{2} * kRowLanes, sums);
      accumulate<R>(form, row, start + lane + int64_t{3} * kRowLanes, sums);
      for (int s = 0; s < kSums; ++s) lanes[s][lane] = sums[s];
    }
    add_lanes<F, R, kRowLanes>(lanes, totals);
  }

  template <int R>
  static void add_last_tile(const F& the_form, const Row& the_row, int64_t start, Sum* totals) {
    constexpr int kSums = kSumsOf<F, R>;
    const F form = the_form;
    const Row row = the_row;
    const int64_t n = row.n - start;
    alignas(64) T lanes[kSums][kRowLanes] = {};
    const int64_t started = n < kRowLanes ? n : kRowLanes;
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t lane = 0; lane < started; ++lane) {
      T sums[kSums] = {};
      accumulate<R>(form, row, start + lane, sums);
      for (int s = 0; s < kSums; ++s) lanes[s][lane] = sums[s];
    }
    for (int64_t round = kRowLanes; round < n; round += kRowLanes) {
      const int64_t count = n - round < kRowLanes ? n - round : kRowLanes;
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t lane = 0; lane < count; ++lane) {
        T sums[kSums];
        for (int s = 0; s < kSums; ++s) sums[s] = lanes[s][lane];
        accumulate<R>(form, row, start + round + lane, sums);
        for (int s = 0; s < kSums; ++s) lanes[s][lane] = sums[s];
      }
    }
    if (n < kShortestRow) {
      add_lanes<F, R, 32>(lanes, totals);
    } else {
      add_lanes<F, R, kRowLanes>(lanes, totals);
    }
  }

  // The maximum does not depend on the order, so the number of lanes is free.
  template <int R>
  static T maximum_of(const Row& the_row) {
    constexpr int kWide = 64;
    constexpr int kFew = 16;
    const Row row = the_row;
    alignas(64) T lanes[kWide];
    int64_t start = 0;
    if (row.n >= kRowTile) {
      for (T& lane : lanes) lane = kMinusInfinity<T>;
      for (; start + kRowTile <= row.n; start += kRowTile) {
        FASTACT_INDEPENDENT_ITERATIONS
        for (int64_t lane = 0; lane < kWide; ++lane) {
          T maximum = lanes[lane];
          for (int64_t i = 0; i < kRowTile; i += kWide)
            maximum = larger(first_value<R>(row, start + lane + i), maximum);
          lanes[lane] = maximum;
        }
      }
      fold_maxima<32>(lanes);
      fold_maxima<kFew>(lanes);
    } else {
      for (int64_t lane = 0; lane < kFew; ++lane) lanes[lane] = kMinusInfinity<T>;
    }
    for (; start + kFew <= row.n; start += kFew) {
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t lane = 0; lane < kFew; ++lane)
        lanes[lane] = larger(first_value<R>(row, start + lane), lanes[lane]);
    }
    for (int64_t lane = 0; lane < row.n - start; ++lane)
      lanes[lane] = larger(first_value<R>(row, start + lane), lanes[lane]);
    return maximum_of_lanes(lanes);
  }

  static void write(const F& the_form, const Row& the_row) {
    constexpr int kLast = kNumReductions<F>;
    const F form = the_form;
    const Row row = the_row;
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < row.n; ++i) {
      const T first = first_value<kLast>(row, i);
      if constexpr (kInputs == 1) {
        row.out[i] = round_to<Source>(form.evaluate(first));
      } else {
        row.out[i] = round_to<Source>(form.evaluate(first, widen(row.inputs[1][i])));
      }
    }
  }
};

template <class F, class Outputs, class Inputs>
struct RowLoopFrom;
template <class F, class Element, class... In>
struct RowLoopFrom<F, Elements<Element>, Elements<In...>> {
  using type = RowLoopOf<F, Element, In...>;
};

template <class F>
class RowLoop : public RowLoopFrom<F, typename F::Outputs, typename F::Inputs>::type {};

}  // namespace fastact::cpu::inline FASTACT_TARGET

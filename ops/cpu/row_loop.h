// The CPU kernel of a row form. Compiled once for each instruction set. The compiler vectorises the
// loops over the lanes of a tile, so every instruction set adds in the order of
// ops/math/row_order.h.
#pragma once

#include <cstdint>
#include <utility>

#include "ops/cpu/row_memory.h"
#include "ops/cpu/row_panels.h"
#include "ops/cpu/row_parts.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/short_rows.h"
#include "ops/cpu/strided.h"

namespace fastact::cpu::inline FASTACT_TARGET {

template <class F>
class RowLoop {
  using Element = FirstOf<typename F::Inputs>;
  using T = OpMath<Element>;
  using Sum = typename F::Sum;
  static constexpr int kInputs = F::Inputs::kCount;
  static constexpr int kFirstInput = F::Outputs::kCount;
  static constexpr int kOperands = kOperandsOf<F> + kRowNumbers<F>;
  static_assert(IsRowForm<F> && kAllAre<F, Element>);

  // Float16 rows are converted as a whole before and after the computation.
  static constexpr bool kConverts = std::is_same_v<Element, Float16>;
  using Source = std::conditional_t<kConverts, T, Element>;
  static constexpr bool kReplaces = F::kReplacedBy >= 0;
  // True if elements of the shared inputs may repeat. Those of Float16 are repeated in a buffer.
  static constexpr bool kHasRuns = !kConverts && kInputsOfRow<F> < kInputs;

  using Row = RowMemory<F, Source>;
  using Others = OthersAt<F, Source>;
  using OthersOfRun = OthersInRun<F, Source>;
  using Buffers = RowBuffers<T, kConverts ? kInputs : (kReplaces && !std::is_same_v<T, Element>)>;

 public:
  static void run(const Parameters& parameters, char* const* data, const int64_t* strides,
                  int64_t n, int64_t rows, int64_t repeat, Parallel parallel) {
    using Panels = RowPanels<F, Element, kInputs>;
    if (n <= Panels::kLongest && rows >= kPanelRows) {
      const int64_t in_panels = rows - rows % kPanelRows;
      Panels::run(parameters, data, strides, n, in_panels);
      char* rest[kOperands];
      for (int i = 0; i < kOperands; ++i)
        rest[i] = data[i] == nullptr ? nullptr : data[i] + in_panels * strides[i];
      return run(parameters, rest, strides, n, rows - in_panels, repeat, parallel);
    }
    if (kShortestFixedRow <= n && n <= kLongestFixedRow)
      return run_short_rows<F, Element, kInputs>(parameters, data, strides, n, rows);
    Buffers buffers(n);
    const NumbersOfRows<F> numbers(data, strides);
    const bool is_dense = rows == 1 || strides[kFirstInput] == n * int64_t{sizeof(Element)};
    for (int64_t r = 0; r < rows; ++r) {
      char* operands[kOperandsOf<F>];
      for (int i = 0; i < kOperandsOf<F>; ++i) operands[i] = data[i] + r * strides[i];
      F form(parameters.values, n);
      numbers.start(form, r);
      if (parallel != nullptr && n > kRowPart) {
        run_shared(form, operands, n, repeat, buffers, parallel);
      } else {
        convert(operands, 0, n, repeat, buffers);
        Row row = part_of(operands, 0, n, repeat, buffers);
        row.is_followed = is_dense;
        reduce<0>(form, row);
        write(form, row, operands, 0);
      }
      numbers.store(form, r);
    }
  }

 private:
  // Elements [start, start + n).
  static Row part_of(char* const* operands, int64_t start, int64_t n, int64_t repeat,
                     Buffers& buffers) {
    Row row = {};
    row.n = n;
    row.start = start;
    row.repeat = kConverts ? 1 : repeat;
    if constexpr (kConverts) {
      row.out = buffers[0] + start;
      for (int i = 0; i < kInputs; ++i) row.inputs[i] = buffers[i] + start;
    } else {
      if constexpr (kHasElements<F>) row.out = reinterpret_cast<Element*>(operands[0]) + start;
      for (int i = 0; i < kInputs; ++i) {
        const bool is_repeated = repeat > 1 && i >= kInputsOfRow<F>;
        row.inputs[i] =
            reinterpret_cast<const Element*>(operands[kFirstInput + i]) + (is_repeated ? 0 : start);
      }
    }
    if constexpr (std::is_same_v<T, Source>) {
      static_assert(kHasElements<F> || !kReplaces);
      row.kept = row.out;
    } else if constexpr (kReplaces) {
      row.kept = buffers[0] + start;
    }
    return row;
  }

  static void convert(char* const* operands, int64_t start, int64_t n, int64_t repeat,
                      Buffers& buffers) {
    if constexpr (kConverts) {
      for (int i = 0; i < kInputs; ++i) {
        const auto* const from = reinterpret_cast<const Element*>(operands[kFirstInput + i]);
        if (repeat > 1 && i >= kInputsOfRow<F>) {
          widen_runs(from, start, start + n, repeat, buffers[i]);
        } else {
          widen_row(from + start, buffers[i] + start, n);
        }
      }
    }
  }

  static void write(const F& form, const Row& row, char* const* operands, int64_t start) {
    if constexpr (kHasElements<F>) write(form, row);
    if constexpr (kHasElements<F> && kConverts)
      narrow_row(row.out, reinterpret_cast<Element*>(operands[0]) + start, row.n);
  }

  // Several threads compute the parts of a row.
  static void run_shared(F& form, char* const* operands, int64_t n, int64_t repeat,
                         Buffers& buffers, Parallel parallel) {
    const int64_t parts = (n + kRowPart - 1) / kRowPart;
    const auto size = [n](int64_t i) {
      return n - i * kRowPart < kRowPart ? n - i * kRowPart : kRowPart;
    };
    const auto part = [&](int64_t i) {
      return part_of(operands, i * kRowPart, size(i), repeat, buffers);
    };
    if constexpr (kConverts) {
      share(parallel, parts,
            [&](int64_t i) { convert(operands, i * kRowPart, size(i), repeat, buffers); });
    }
    Totals totals(parts);
    reduce_shared<0>(form, part, parts, totals, parallel);
    share(parallel, parts, [&](int64_t i) { write(form, part(i), operands, i * kRowPart); });
  }

  // Per part: both numbers of each sum, or a maximum.
  using Totals = RowBuffers<T, 2 * kMostSums<F>>;

  template <int R, class PartOf>
  static void reduce_shared(F& form, const PartOf& part, int64_t parts, Totals& totals,
                            Parallel parallel) {
    if constexpr (R < kNumReductions<F>) {
      constexpr int kSums = kSumsOf<F, R>;
      share(parallel, parts, [&](int64_t i) {
        Sum sums[kMaxSums];
        results_of<R>(form, part(i), sums);
        for (int s = 0; s < kSums; ++s)
          store_sum(sums[s], &totals[2 * s][i], &totals[2 * s + 1][i]);
      });
      Sum results[kMaxSums];
      for (int s = 0; s < kSums; ++s) {
        if constexpr (F::kReductions[R] == Reduction::kMaximum) {
          T maximum = totals[0][0];
          for (int64_t i = 1; i < parts; ++i) maximum = larger(totals[0][i], maximum);
          results[0] = Sum(maximum);
        } else {
          TileTree<Sum> tree;
          for (int64_t i = 0; i < parts; ++i)
            tree.add(stored_sum<Sum>(totals[2 * s][i], totals[2 * s + 1][i]));
          results[s] = tree.total();
        }
      }
      form.template finish<R>(results);
      reduce_shared<R + 1>(form, part, parts, totals, parallel);
    }
  }

  // Returns the first value of element i before reduction R.
  template <int R>
  static FASTACT_INLINE T first_value(const Row& row, int64_t i) {
    if constexpr (kIsReplacedBefore<F, R>) {
      return row.kept[i];
    } else {
      return widen(row.inputs[0][i]);
    }
  }

  template <int R, class From = Others>
  static FASTACT_INLINE void accumulate(const F& form, const Row& row, int64_t i, T* sums,
                                        const From& others = {}) {
    const T first = OtherInputs<F>::template accumulate<R>(
        form, sums, first_value<R>(row, i), [&](int input) { return others(row, input, i); });
    if constexpr (F::kReplacedBy == R) row.kept[i] = first;
  }

  template <int R>
  static void reduce(F& form, const Row& row) {
    if constexpr (R < kNumReductions<F>) {
      Sum results[kMaxSums];
      results_of<R>(form, row, results);
      form.template finish<R>(results);
      reduce<R + 1>(form, row);
    }
  }

  // Computes the results of reduction R.
  template <int R>
  static void results_of(const F& form, const Row& row, Sum* results) {
    if constexpr (F::kReductions[R] == Reduction::kMaximum) {
      results[0] = Sum(maximum_of<R>(row));
    } else if (row.n <= kRowTile) {
      add_tile<R>(form, row, 0, results);
    } else {
      add_tiles<R>(form, row, results);
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
    constexpr int kSums = kSumsOf<F, R>;
    alignas(64) T lanes[kSums][kRowLanes];
    const int64_t n = row.n - start < kRowTile ? row.n - start : kRowTile;
    if (kHasRuns && kAddsShared<F> && row.repeat > 1) {
      if constexpr (kHasRuns && kAddsShared<F>) add_runs<R>(form, row, start, n, lanes);
    } else if (n == kRowTile) {
      if constexpr (R == 0) fetch_ahead(row, start);
      if constexpr (R == 0 && kInputsOfRow<F> > 1 && !kConverts) {
        // Reads each input in the order of memory: four streams for each are too many for the
        // hardware prefetcher (docs/dev/tuning.md). Later reductions read from the cache.
        add_part<R>(form, row, start, kRowTile, lanes);
      } else {
        add_rounds<R, 4>(form, row, start, kRowLanes, lanes);
      }
    } else if (n == 3 * kRowLanes) {  // 768 is a common size
      add_rounds<R, 3>(form, row, start, kRowLanes, lanes);
    } else {
      add_part<R>(form, row, start, n, lanes);
    }
    if (n < kShortestFixedRow) {
      add_lanes<F, R, 32>(lanes, totals);
    } else {
      add_lanes<F, R, kRowLanes>(lanes, totals);
    }
  }

  // Prefetches what the first reduction reads 16 KiB later, if the form has one input for each row.
  // The four elements of a lane are 256 elements apart, and the hardware prefetcher does not keep
  // up. Forms with two inputs were slower with it, so add_tile() reads theirs in the order of
  // memory (docs/dev/tuning.md). Float16 rows are in a buffer. A prefetch beyond the end is
  // harmless because it is not an access.
  static FASTACT_INLINE void fetch_ahead(const Row& row, int64_t start) {
    if constexpr (kInputsOfRow<F> == 1 && !kConverts) {
      if (!row.is_followed) return;
      constexpr int64_t kAhead = 16384;
      const auto* const from = reinterpret_cast<const char*>(row.inputs[0] + start) + kAhead;
      for (int64_t line = 0; line < int64_t{kRowTile * sizeof(Element)}; line += kCacheLine)
        __builtin_prefetch(from + line);
    }
  }

  // Adds a tile of n elements, of any length.
  template <int R, size_t Sums>
  static void add_part(const F& the_form, const Row& the_row, int64_t start, int64_t n,
                       T (&lanes)[Sums][kRowLanes]) {
    const F form = the_form;
    const Row row = the_row;
    const int64_t started = n < kRowLanes ? n : kRowLanes;
    for (size_t s = 0; s < Sums; ++s)
      for (int64_t lane = started; lane < kRowLanes; ++lane) lanes[s][lane] = T{0};
    add_rounds<R, 1>(form, row, start, started, lanes);
    for (int64_t round = kRowLanes; round < n; round += kRowLanes) {
      const int64_t count = n - round < kRowLanes ? n - round : kRowLanes;
      add_round<R>(form, row, start + round, 0, count, lanes, Others());
    }
  }

  // The same for a row with repeated elements of the shared inputs.
  template <int R, size_t Sums>
  static void add_runs(const F& the_form, const Row& the_row, int64_t start, int64_t n,
                       T (&lanes)[Sums][kRowLanes]) {
    const F form = the_form;
    const Row row = the_row;
    for (size_t s = 0; s < Sums; ++s)
      for (T& lane : lanes[s]) lane = T{0};
    for (int64_t round = start; round < start + n; round += kRowLanes) {
      const int64_t end = start + n - round < kRowLanes ? start + n : round + kRowLanes;
      row.for_each_run(round, end, [&](int64_t first, int64_t last, int64_t run) {
        add_round<R>(form, row, round, first - round, last - round, lanes, OthersOfRun(row, run));
      });
    }
  }

  // Adds element `start` + l to lane l, for l from `begin` to `end`.
  template <int R, size_t Sums, class From>
  static FASTACT_INLINE void add_round(const F& form, const Row& row, int64_t start, int64_t begin,
                                       int64_t end, T (&lanes)[Sums][kRowLanes],
                                       const From& others) {
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t lane = begin; lane < end; ++lane) {
      T sums[Sums];
      for (size_t s = 0; s < Sums; ++s) sums[s] = lanes[s][lane];
      accumulate<R>(form, row, start + lane, sums, others);
      for (size_t s = 0; s < Sums; ++s) lanes[s][lane] = sums[s];
    }
  }

  // Adds elements i, i + kRowLanes and so on. Written without a loop, because GCC vectorizes the
  // enclosing loop only then.
  template <int R, int... Round>
  static FASTACT_INLINE void accumulate_rounds(const F& form, const Row& row, int64_t i, T* sums,
                                               std::integer_sequence<int, Round...> /*rounds*/) {
    (accumulate<R>(form, row, i + int64_t{Round} * kRowLanes, sums), ...);
  }

  // Adds Rounds elements in each of the first `count` lanes. The copies of the form and the row let
  // the compiler keep their members in registers.
  template <int R, int Rounds, size_t Sums>
  static void add_rounds(const F& the_form, const Row& the_row, int64_t start, int64_t count,
                         T (&lanes)[Sums][kRowLanes]) {
    const F form = the_form;
    const Row row = the_row;
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t lane = 0; lane < count; ++lane) {
      T sums[Sums] = {};
      accumulate_rounds<R>(form, row, start + lane, sums,
                           std::make_integer_sequence<int, Rounds>());
      for (size_t s = 0; s < Sums; ++s) lanes[s][lane] = sums[s];
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
    const F form = the_form;
    const Row row = the_row;
    if constexpr (kHasRuns) {
      if (row.repeat > 1) {
        row.for_each_run(0, row.n, [&](int64_t begin, int64_t end, int64_t run) {
          write(form, row, begin, end, OthersOfRun(row, run));
        });
        return;
      }
    }
    write(form, row, 0, row.n, Others());
  }

  template <class From>
  static FASTACT_INLINE void write(const F& form, const Row& row, int64_t begin, int64_t end,
                                   const From& others) {
    constexpr int kLast = kNumReductions<F>;
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t i = begin; i < end; ++i) {
      row.out[i] = round_to<Source>(OtherInputs<F>::evaluate(
          form, first_value<kLast>(row, i), [&](int input) { return others(row, input, i); }));
    }
  }
};

}  // namespace fastact::cpu::inline FASTACT_TARGET

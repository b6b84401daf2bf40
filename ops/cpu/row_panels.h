// Computes short rows in panels of 16. Elementwise steps run along a row. The tree adds the terms
// of all 16 rows together, because one short row cannot fill its vectors: docs/dev/tuning.md.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/cpu/pair_tree.h"
#include "ops/cpu/row_parts.h"
#include "ops/cpu/rows.h"

namespace fastact::cpu::inline FASTACT_TARGET {

inline constexpr auto kPanelRows = static_cast<int>(kRowPanel);
// Elements per step. Rows are padded to a multiple of this.
inline constexpr int kPanelBlock = 16;

// The forms of a panel's rows, as a structure of arrays: numbers_[k][row].
template <class F>
class PanelForms {
  using T = typename F::T;

 public:
  FASTACT_INLINE explicit PanelForms(const F& form) : initial_(form) {
    for (int row = 0; row < kPanelRows; ++row) set(row, form);
  }

  FASTACT_INLINE F operator[](int row) const {
    F form = initial_;
    int k = 0;
    form.each_number([&](T& number) { number = numbers_[k++][row]; });
    return form;
  }
  FASTACT_INLINE void set(int row, F form) {
    int k = 0;
    form.each_number([&](T& number) { numbers_[k++][row] = number; });
  }

 private:
  static constexpr int kNumbers = sizeof(F) / sizeof(T);  // at most

  F initial_;
  alignas(64) T numbers_[kNumbers][kPanelRows];
};

template <class F, class Element, int Inputs>
class RowPanels {
  using T = OpMath<Element>;
  using Sum = typename F::Sum;
  // Panels of longer rows are slower than one row after another: a panel is read completely before
  // it is written, so memory accesses do not overlap with arithmetic.
  static constexpr int kLongestBytes = kInputsOfRow<F> == 1 ? 512 : 128;

 public:
  static constexpr int kLongest = kLongestBytes / static_cast<int>(sizeof(Element));

 private:
  // One value per row.
  struct alignas(64) Column {
    T values[kPanelRows];
  };
  struct SumColumn {
    Column high;
    Column low;
  };
  // One value per row and element of a block.
  struct Block {
    alignas(64) T values[kPanelRows * kPanelBlock];
  };
  // One value per row and element.
  struct Panel {
    alignas(64) T values[kPanelRows * kLongest];
  };

 public:
  // Computes rows of at most kLongest elements. `rows` is a multiple of kPanelRows.
  static void run(const Parameters& parameters, char* const* data, const int64_t* strides,
                  int64_t n, int64_t rows) {
    const F initial(parameters.values, n);
    RowPanels panel(n);
    const NumbersOfRows<F> numbers(data, strides);
    for (int64_t start = 0; start < rows; start += kPanelRows) {
      for (int input = 0; input < Inputs; ++input) {
        const int64_t stride = strides[F::Outputs::kCount + input];
        const char* const from = data[F::Outputs::kCount + input];
        for (int row = 0; row < kPanelRows; ++row)
          if (input > 0 && stride == 0 && start + row > 0) {
            panel.elements_[input][row] = panel.elements_[input][0];
          } else {
            panel.load(from + (start + row) * stride, input, row);
          }
      }
      PanelForms<F> forms(initial);
      for (int row = 0; row < kPanelRows; ++row) {
        if constexpr (kHasElements<F>)
          panel.out_[row] = reinterpret_cast<Element*>(data[0] + (start + row) * strides[0]);
        if constexpr (kRowInputs<F> > 0) {
          F form = initial;
          numbers.start(form, start + row);
          forms.set(row, form);
        }
      }
      panel.template reduce<0>(forms);
      for (int row = 0; row < kPanelRows; ++row) {
        if constexpr (kHasElements<F>) panel.write(forms[row], row);
        numbers.store(forms[row], start + row);
      }
    }
  }

 private:
  explicit RowPanels(int64_t n)
      : n_(n), padded_((n + kPanelBlock - 1) / kPanelBlock * kPanelBlock) {}

  // Points elements_[input][row] to the row in T, padded to padded_ elements. The padding changes
  // no result.
  FASTACT_INLINE void load(const char* from, int input, int row) {
    const auto* const source = reinterpret_cast<const Element*>(from);
    if constexpr (std::is_same_v<Element, T>) {
      if (n_ == padded_) {
        elements_[input][row] = source;
        return;
      }
    }
    T* const to = loaded_[input].values + row * padded_;
    int64_t i = 0;
    for (; i + kPanelBlock <= n_; i += kPanelBlock) {
      if constexpr (std::is_same_v<Element, Float16>) {
        for (int k = 0; k < kPanelBlock; k += kHalves) widen_halves(source + i + k, to + i + k);
      } else {
        FASTACT_ONE_VECTOR
        for (int k = 0; k < kPanelBlock; ++k) to[i + k] = widen(source[i + k]);
      }
    }
    for (; i < n_; ++i) to[i] = widen(source[i]);
    for (; i < padded_; ++i) to[i] = input == 0 ? F::kBeyondEnd : T{0};
    elements_[input][row] = to;
  }

  // Sets what is beyond the end of the rows of the first input.
  FASTACT_INLINE void pad_again(const PanelForms<F>& forms) {
    if (n_ == padded_) return;
    for (int row = 0; row < kPanelRows; ++row) {
      const F form = forms[row];
      T* const to = loaded_[0].values + row * padded_;
      for (int64_t i = n_; i < padded_; ++i) to[i] = form.beyond_end();
    }
  }

  // The type of sum S of reduction R, or of a maximum. Only RowSum has a lower part.
  template <int R, int S>
  using Added = std::conditional_t<F::kReductions[R] == Reduction::kMaximum, T, SumOf<F, R, S>>;

  template <int R>
  FASTACT_INLINE void reduce(PanelForms<F>& forms) {
    if constexpr (R < kNumReductions<F>) {
      if constexpr (kPadsAgain<F, R>) pad_again(forms);
      SumColumn totals[kMaxSums];
      if constexpr (F::kReductions[R] == Reduction::kMaximum) {
        for (int row = 0; row < kPanelRows; ++row) largest_of<R>(row);
        totals[0] = totals_of_terms<Largest>(terms_[0]);
      } else {
        add<R>(forms, totals);
      }
      FASTACT_ONE_VECTOR
      for (int row = 0; row < kPanelRows; ++row) {
        Sum of_row[kMaxSums];
        for_each_sum<F, R>([&](auto s) { of_row[s] = Sum(sum_at<Added<R, s>>(totals[s], row)); });
        F form = forms[row];
        form.template finish<R>(of_row);
        forms.set(row, form);
      }
      reduce<R + 1>(forms);
    }
  }

  // A row of each input after the first one.
  struct Others {
    const T* inputs[Inputs];
  };
  FASTACT_INLINE Others others_of(int row, int64_t start) const {
    Others others = {};
    for (int input = 1; input < Inputs; ++input)
      others.inputs[input] = elements_[input][row] + start;
    return others;
  }

  // The row that reduction R reads.
  template <int R>
  FASTACT_INLINE const T* first_of(int row) const {
    return kIsReplacedBefore<F, R> ? kept_.values + row * padded_ : elements_[0][row];
  }

  // Writes the maximum of elements k, k + kPanelBlock, ... to term k of the row.
  template <int R>
  FASTACT_INLINE void largest_of(int row) {
    const T* const from = first_of<R>(row);
    T* const to = terms_[0].values + row * kPanelBlock;
    FASTACT_ONE_VECTOR
    for (int k = 0; k < kPanelBlock; ++k) to[k] = larger(from[k], kMinusInfinity<T>);
    for (int64_t start = kPanelBlock; start < padded_; start += kPanelBlock) {
      FASTACT_ONE_VECTOR
      for (int k = 0; k < kPanelBlock; ++k) to[k] = larger(from[start + k], to[k]);
    }
  }

  // Adds the terms of each row by the tree of ops/math/row_order.h. A row has at most kRowLanes
  // elements.
  template <int R>
  FASTACT_INLINE void add(const PanelForms<F>& forms, SumColumn* totals) {
    constexpr int kSums = kSumsOf<F, R>;
    SumColumn sums[kSums][kLongest / kPanelBlock];
    for (int64_t start = 0; start < padded_; start += kPanelBlock) {
      for (int row = 0; row < kPanelRows; ++row) {
        // Prefetches the output, which write() stores next.
        if constexpr (Inputs == 1 && kHasElements<F>) __builtin_prefetch(out_[row] + start, 1);
        terms_of<R>(forms[row], row, start);
      }
      for_each_sum<F, R>([&](auto s) {
        sums[s][start / kPanelBlock] = totals_of_terms<SumOf<F, R, s>>(terms_[s]);
      });
    }
    for_each_sum<F, R>([&](auto s) { totals[s] = sum_of_blocks<SumOf<F, R, s>>(sums[s]); });
  }

  template <int R>
  FASTACT_INLINE void terms_of(const F form, int row, int64_t start) {
    constexpr int kSums = kSumsOf<F, R>;
    const T* const first = first_of<R>(row) + start;
    const Others others = others_of(row, start);
    T* const kept = kept_.values + row * padded_ + start;
    T* terms[kSums];
    for (int s = 0; s < kSums; ++s) terms[s] = terms_[s].values + row * kPanelBlock;
    FASTACT_INDEPENDENT_ITERATIONS
    FASTACT_ONE_VECTOR
    for (int i = 0; i < kPanelBlock; ++i) {
      T sums[kSums] = {};
      const T replacement = OtherInputs<F>::template accumulate<R>(
          form, sums, first[i], [&](int input) { return others.inputs[input][i]; });
      if constexpr (F::kReplacedBy == R) kept[i] = replacement;
      for (int s = 0; s < kSums; ++s) terms[s][i] = sums[s];
    }
  }

  // Leaves the lower parts unset if S has none.
  template <class S>
  static FASTACT_INLINE SumColumn totals_of_terms(const Block& terms) {
    static_assert(kPanelRows == 16 && kPanelBlock == 16);
    SumColumn totals;
    PairTree<T, S>::totals_of_rows(terms.values, totals.high.values, totals.low.values);
    return totals;
  }

  template <class S>
  FASTACT_INLINE SumColumn sum_of_blocks(SumColumn* sums) const {
    for (int64_t count = padded_ / kPanelBlock; count > 1; count = (count + 1) / 2) {
      for (int64_t i = 0; i < count / 2; ++i) {
        FASTACT_ONE_VECTOR
        for (int row = 0; row < kPanelRows; ++row)
          set(sums[i], row, sum_at<S>(sums[2 * i], row) + sum_at<S>(sums[2 * i + 1], row));
      }
      if (count % 2 != 0) sums[count / 2] = sums[count - 1];
    }
    return sums[0];
  }

  template <class S>
  static FASTACT_INLINE S sum_at(const SumColumn& sums, int row) {
    if constexpr (std::is_same_v<S, T>) {
      return sums.high.values[row];
    } else {
      return S(sums.high.values[row], sums.low.values[row]);
    }
  }
  static FASTACT_INLINE void set(SumColumn& sums, int row, T sum) { sums.high.values[row] = sum; }
  static FASTACT_INLINE void set(SumColumn& sums, int row, RowSum<T> sum) {
    sums.high.values[row] = sum.high;
    sums.low.values[row] = sum.low;
  }

  FASTACT_INLINE void write(const F form, int row) const {
    const T* const first = first_of<kNumReductions<F>>(row);
    const Others others = others_of(row, 0);
    Element* const out = out_[row];
    int64_t i = 0;
    for (; i + kPanelBlock <= n_; i += kPanelBlock) {
      if constexpr (std::is_same_v<Element, Float16>) {
        alignas(64) T results[kPanelBlock];
        FASTACT_ONE_VECTOR
        for (int k = 0; k < kPanelBlock; ++k) results[k] = result<T>(form, first, others, i + k);
        for (int k = 0; k < kPanelBlock; k += kHalves) narrow_halves(results + k, out + i + k);
      } else {
        FASTACT_INDEPENDENT_ITERATIONS
        FASTACT_ONE_VECTOR
        for (int k = 0; k < kPanelBlock; ++k)
          out[i + k] = result<Element>(form, first, others, i + k);
      }
    }
    for (; i < n_; ++i) out[i] = result<Element>(form, first, others, i);
  }

  template <class To>
  static FASTACT_INLINE To result(const F& form, const T* first, const Others& others, int64_t i) {
    return round_to<To>(OtherInputs<F>::evaluate(
        form, first[i], [&](int input) { return others.inputs[input][i]; }));
  }

  int64_t n_;
  int64_t padded_;
  const T* elements_[Inputs][kPanelRows];
  Element* out_[kPanelRows];
  Panel loaded_[Inputs];
  Panel kept_;
  Block terms_[kMostSums<F>];
};

}  // namespace fastact::cpu::inline FASTACT_TARGET

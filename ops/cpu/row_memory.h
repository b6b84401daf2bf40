// The memory of a row, or of a part of one, and its inputs after the first one. Compiled once for
// each instruction set.
#pragma once

#include <cstdint>

#include "ops/forms/row_form.h"

namespace fastact::cpu::inline FASTACT_TARGET {

// Calls visit(begin, end, run) for the elements from `begin` to `end` that share element `run` of
// the shared inputs: `repeat` neighbours of a row share one.
template <class Visit>
FASTACT_INLINE void for_each_run(int64_t begin, int64_t end, int64_t repeat, const Visit& visit) {
  for (int64_t run = begin / repeat; begin < end; ++run) {
    const int64_t next = (run + 1) * repeat < end ? (run + 1) * repeat : end;
    visit(begin, next, run);
    begin = next;
  }
}

// Writes elements [begin, end) of the row that contains each element of `from` `repeat` times. `to`
// is the start of the whole row.
template <class Element>
FASTACT_INLINE void widen_runs(const Element* from, int64_t begin, int64_t end, int64_t repeat,
                               OpMath<Element>* to) {
  for_each_run(begin, end, repeat, [&](int64_t first, int64_t last, int64_t run) {
    const OpMath<Element> value = widen(from[run]);
    for (int64_t i = first; i < last; ++i) to[i] = value;
  });
}

// A row whose elements are in the type `Source`. `kept` has the first values that a reduction
// replaced. It may be the memory of the output or of the first input. `out` is null if there is no
// output.
template <class F, class Source>
struct RowMemory {
  // Like cpu::for_each_run(), but `begin` and `end` count from the start of this part.
  template <class Visit>
  FASTACT_INLINE void for_each_run(int64_t begin, int64_t end, const Visit& visit) const {
    cpu::for_each_run(
        start + begin, start + end, repeat,
        [&](int64_t first, int64_t last, int64_t run) { visit(first - start, last - start, run); });
  }

  Source* out;
  const Source* inputs[F::Inputs::kCount];
  typename F::T* kept;
  int64_t n;
  bool is_followed;  // by memory that this thread will read
  int64_t start;     // within the whole row
  int64_t repeat;    // if not 1, the pointers to shared inputs are those of the whole row
};

// Returns an element of an input after the first one.
template <class F, class Source>
struct OthersAt {
  FASTACT_INLINE auto operator()(const RowMemory<F, Source>& row, int input, int64_t i) const {
    return widen(row.inputs[input][i]);
  }
};

// The same for elements that share element `run` of the shared inputs.
template <class F, class Source>
class OthersInRun {
  using T = typename F::T;

 public:
  FASTACT_INLINE OthersInRun(const RowMemory<F, Source>& row, int64_t run) {
    for (int i = kInputsOfRow<F>; i < F::Inputs::kCount; ++i)
      shared_[i] = widen(row.inputs[i][run]);
  }
  FASTACT_INLINE T operator()(const RowMemory<F, Source>& row, int input, int64_t i) const {
    return input < kInputsOfRow<F> ? widen(row.inputs[input][i]) : shared_[input];
  }

 private:
  T shared_[F::Inputs::kCount];
};

}  // namespace fastact::cpu::inline FASTACT_TARGET

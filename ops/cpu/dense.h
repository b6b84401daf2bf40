// Loops over contiguous elements, one element at a time. The compiler vectorises them because forms
// are branch-free. packed.h contains faster loops for some types.
#pragma once

#include <cstdint>

#include "ops/forms/form.h"

// In an in-place call, output and input are the same memory, so the pointers cannot be restrict.
// These pragmas tell the vectoriser that no element depends on an element at another index.
#if defined(__clang__)  // clang-tidy
#define FASTACT_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#define FASTACT_ONE_VECTOR _Pragma("clang loop vectorize(enable)")
#else
#define FASTACT_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
// A short loop that is unrolled before it is vectorised becomes scalar code.
#define FASTACT_ONE_VECTOR _Pragma("GCC unroll 1")
#endif

namespace fastact::cpu::inline FASTACT_TARGET {

// `form` is passed by value here and in the functions below, so its parameters are in registers.
// With a reference, GCC 12 loads them in one branch of a selection, and then does not vectorise the
// selection. ELU, float32: 0.68 instead of 6.2 ns an element (Emerald Rapids, AVX-512,
// docs/dev/tuning.md).
template <class F, class Output, class... Inputs>
FASTACT_INLINE void dense_elements(const F form, const Tuple<Output*>& to, int64_t n,
                                   const Inputs*... inputs) {
  Output* const out = to.first;
  FASTACT_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) out[i] = round_to<Output>(form.evaluate(widen(inputs[i])...));
}

// The same loop for several outputs.
template <class F, class... Outputs, class... Inputs>
  requires(sizeof...(Outputs) > 1)
FASTACT_INLINE void dense_elements(const F form, const Tuple<Outputs*...> to, int64_t n,
                                   const Inputs*... inputs) {
  [&]<size_t... J>(std::index_sequence<J...>) {
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; ++i) {
      const auto results = form.evaluate(widen(inputs[i])...);
      ((at<J>(to)[i] = round_to<Outputs>(at<J>(results))), ...);
    }
  }(std::index_sequence_for<Outputs...>{});
}

}  // namespace fastact::cpu::inline FASTACT_TARGET

// The loops over dense elements, one element at a time: vectorised by the compiler, as forms are
// branch-free. packed.h has the types that do better in another way.
#pragma once

#include <cstdint>

#include "ops/forms/form.h"

// In an in-place call output and input are the same elements, so pointers cannot be restrict; but
// an element depends on nothing at another index, which is what these tell the vectoriser.
#if defined(__clang__)  // clang-tidy
#define FASTACT_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#define FASTACT_ONE_VECTOR _Pragma("clang loop vectorize(enable)")
#else
#define FASTACT_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
// Unrolled before it is vectorised, a short loop becomes scalar code.
#define FASTACT_ONE_VECTOR _Pragma("GCC unroll 1")
#endif

namespace fastact::cpu::inline FASTACT_TARGET {

// Here and below the form is a copy: its parameters are then in registers, where GCC 12 would else
// load them in one branch of a selection, which it does not vectorise.
// ELU, float32: 0.68 instead of 6.2 ns an element (Emerald Rapids, AVX-512, docs/tuning.md).
template <class F, class Output, class... Inputs>
FASTACT_INLINE void dense_elements(const F form, const Row<Output*>& to, int64_t n,
                                   const Inputs*... inputs) {
  Output* const out = to.first;
  FASTACT_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) out[i] = round_to<Output>(form.evaluate(widen(inputs[i])...));
}

// With several outputs.
template <class F, class... Outputs, class... Inputs>
  requires(sizeof...(Outputs) > 1)
FASTACT_INLINE void dense_elements(const F form, const Row<Outputs*...> to, int64_t n,
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

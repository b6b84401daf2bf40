// One element or one vector of a form's results, for the loops that torch.compile writes in C++ for
// CPUs. The Python package contains this header and the headers that it includes, and
// python/fastact/_inductor/vectors.py writes calls of evaluate(). These headers do not include
// torch's: the vectors are template arguments, at::vec::Vectorized and at::vec::VectorizedN.
//
// For 16-bit types, operands and result are float; intermediate() in ops/codegen/given.h defines
// the result.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/codegen/given.h"
#include "ops/cpu/packed.h"
#include "ops/generated/families.h"

// kHiddenOne of ops/math/target/cpu.h. A compiler does not read assembly, so it cannot know the
// value.
__asm__(
    ".pushsection .rodata\n"
    ".balign 8\n"
    "_ZN7fastact10kHiddenOneE: .double 1.0\n"
    ".popsection\n");

namespace fastact::inline FASTACT_TARGET::families {

using fused = FusedSteps;

}  // namespace fastact::inline FASTACT_TARGET::families

namespace fastact::cpu::inline FASTACT_TARGET {

// The parameters of a call, from the bits of float64 numbers. A compiler knows them.
template <uint64_t... kBits>
inline constexpr double kGiven[sizeof...(kBits) + 1] = {__builtin_bit_cast(double, kBits)..., 0.0};

// Returns a pointer whose type is F, or the form that replaces F for these parameters.
template <class F, const auto& kParameters>
constexpr auto serving() {
  if constexpr (!HasDefaultForm<F>) {
    return static_cast<F*>(nullptr);
  } else if constexpr (F::is_default(kParameters)) {
    return serving<typename F::Default, kParameters>();
  } else {
    return static_cast<F*>(nullptr);
  }
}

// The form without the final steps of rounding, if the caller does not round and there is one.
template <class F, bool kRounded, class Unrounded = typename UnroundedOf<F>::type>
using RoundedOrNot = std::conditional_t<kRounded || std::is_void_v<Unrounded>, F, Unrounded>;

template <class Element, class F, class... T>
FASTACT_INLINE OpMath<Element> result_of(const F form, T... operands) {
  return intermediate<F, Element>(form.evaluate(operands...), operands...);
}

// Writes the results of one vector. The loops become straight-line code in registers.
template <class Element, class F, class T, int kSize, class... Operands>
FASTACT_INLINE void evaluate_lanes(const F form, T (&to)[kSize], const Operands&... operands) {
  if constexpr (HasSegments<F>) {
    static_assert(kSize == kFloats);
    if constexpr (kHasNearSegments<F>) {
      if (are_near<F>(kSize, operands...)) return near_vector(form, to, operands...);
    }
    alignas(64) uint32_t index[kSize];
    if constexpr (ShapeOf<*F::kTable>::kIsFull) {
      segment_indices(form, index, operands...);
      any_vector(form, to, index, operands...);
    } else {
      // Of a single vector, permutations take less time than rows: GELU, AVX2, in a kernel of
      // torch.compile, 2.41 instead of 2.92 ns an element (Ice Lake).
      FASTACT_ONE_VECTOR
      for (int i = 0; i < kSize; ++i) index[i] = form.segment(operands[i]...);
      alignas(64) float c[kSegmentColumns<*F::kTable>][kFloats];
      permute_segments<*F::kTable>(index, c);
      vector_in_segments(form, to, c, operands...);
    }
  } else {
    FASTACT_ONE_VECTOR
    for (int i = 0; i < kSize; ++i) to[i] = result_of<Element>(form, operands[i]...);
  }
}

template <class V>
struct Lanes {
  FASTACT_INLINE explicit Lanes(const V& vector) { vector.store(values); }
  FASTACT_INLINE auto operator[](int i) const { return values[i]; }

  alignas(64) typename V::value_type values[V::size()];
};

// Returns the form's result for each lane.
template <class Element, class F, class V, class... Vs>
FASTACT_INLINE V evaluate_form(const F form, const V& operand, const Vs&... others) {
  if constexpr (std::is_arithmetic_v<V>) {
    return result_of<Element>(form, operand, others...);
  } else {
    alignas(64) typename V::value_type results[V::size()];
    evaluate_lanes<Element>(form, results, Lanes<V>(operand), Lanes<V>(others)...);
    return V::loadu(results);
  }
}
// The same for several vectors.
template <class Element, class F, template <class, int> class Vectors, class T, int kCount,
          class... Vs>
FASTACT_INLINE Vectors<T, kCount> evaluate_form(const F form, const Vectors<T, kCount>& operand,
                                                const Vs&... others) {
  Vectors<T, kCount> results;
  for (int i = 0; i < kCount; ++i)
    results[i] = evaluate_form<Element>(form, operand[i], others[i]...);
  return results;
}

// Returns form `kIndex` of the family, of operands that are numbers or vectors.
template <class Family, class Element, int kIndex, bool kRounded, uint64_t... kBits, class... Vs>
FASTACT_INLINE auto evaluate(const Vs&... operands) {
  using Form = typename Family::template Form<Element, kIndex>;
  using Serving = std::remove_pointer_t<decltype(serving<Form, kGiven<kBits...>>())>;
  const RoundedOrNot<Serving, kRounded> form(kGiven<kBits...>);
  return evaluate_form<Element>(form, operands...);
}

}  // namespace fastact::cpu::inline FASTACT_TARGET

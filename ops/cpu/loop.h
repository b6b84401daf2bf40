// The CPU kernel of a form: selects the loop for it. Compiled once for each instruction set.
// strided.h splits any operands into contiguous ones.
#pragma once

#include <cstdint>

#include "ops/cpu/engine.h"
#include "ops/cpu/packed.h"
#include "ops/cpu/result_table.h"
#include "ops/cpu/strided.h"

namespace fastact::cpu::inline FASTACT_TARGET {

// Multiplies a gradient by a factor from the table.
template <class Element>
struct FactorProduct {
  FASTACT_INLINE auto evaluate(float g, float factor) const { return product<Element>(factor, g); }
};

template <class F>
struct Loop {
  static void run(const Parameters& parameters, char* const* data, const int64_t* strides,
                  int64_t size0, int64_t size1) {
    if constexpr (HasDefaultForm<F>) {
      if (F::is_default(parameters.values))
        return Loop<typename F::Default>::run(parameters, data, strides, size0, size1);
    }
    const Prepared prepared(parameters, size0 * size1);
    cpu::run({&compute, &prepared, kSizesOf<F>}, data, strides, size0, size1);
  }

  // The function that DenseFunction points to.
  static void run_dense(const Parameters& parameters, char* const* data, int64_t n) {
    if constexpr (HasDefaultForm<F>) {
      if (F::is_default(parameters.values))
        return Loop<typename F::Default>::run_dense(parameters, data, n);
    }
    const Prepared prepared(parameters, n);
    compute(&prepared, data, n, Pace::kAtOnce);
  }

 private:
  // An entry of the form's table, if it has one.
  using Entry = std::conditional_t<IsLookedUp<F>, uint16_t, float>;

  // The form, and its table if n elements are looked up.
  struct Prepared {
    Prepared(const Parameters& parameters, [[maybe_unused]] int64_t n) : form(parameters.values) {
      if constexpr (IsLookedUp<F> || HasFactors<F>) {
        static constinit ResultTables<Entry> tables = {};
        if (n >= kLookedUpElements) entries = find_entries(tables, parameters, &fill, this);
      }
    }

    F form;
    const Entry* entries = nullptr;
  };

  static void fill(const void* erased, Entry* entries) {
    if constexpr (IsLookedUp<F>) {
      constexpr int kEntries = ResultTable<Entry>::kSize;
      for (int i = 0; i < kEntries; ++i) entries[i] = static_cast<uint16_t>(i);
      auto* const data = reinterpret_cast<char*>(entries);
      char* const operands[] = {data, data};
      compute(erased, operands, kEntries, Pace::kAtOnce);
    } else {
      fill_factors(static_cast<const Prepared*>(erased)->form, entries, typename F::Outputs{});
    }
  }

  template <class Element>
  static FASTACT_INLINE void fill_factors(const F form, float* entries, Elements<Element>) {
    FASTACT_INDEPENDENT_ITERATIONS
    for (int i = 0; i < ResultTable<float>::kSize; ++i)
      entries[i] = form.factor(widen(Element{static_cast<uint16_t>(i)}));
  }

  template <class... E>
  static constexpr bool kHasHalves =
      (std::is_same_v<E, Float16> || ...) &&
      ((std::is_same_v<E, Float16> || std::is_same_v<E, float>) && ...);

  static constexpr int kOperands = kOperandsOf<F>;
  static constexpr int64_t kSize = kLargestOf<F>;

  // The function that DenseKernel::compute points to. All paces share one loop, so the values that
  // the form needs in registers are loaded once.
  static void compute(const void* erased, char* const* data, int64_t n, Pace pace) {
    const auto& prepared = *static_cast<const Prepared*>(erased);
    if constexpr (F::Outputs::kCount > 1 || !kSizesOf<F>.are_equal()) {
      block(prepared, data[0], data, 0, n);
    } else {
      alignas(kCacheLine) char buffer[kStep];
      const int64_t step = pace == Pace::kAtOnce ? n * kSize : kStep;
      for (int64_t start = 0; start < n * kSize; start += step) {
        const int64_t left = n * kSize - start;
        const int64_t bytes = left < step ? left : step;
        if (pace != Pace::kAtOnce) fetch_ahead<kOperands>(data, start, left);
        char* out = data[0] + start;
        block(prepared, pace == Pace::kStreaming ? buffer : out, data, start, bytes / kSize);
        if (pace == Pace::kStreaming) stream(buffer, out, bytes);
      }
    }
  }

  // Computes n elements from byte `start` of the inputs. Writes one output to `to`, several outputs
  // to their own memory.
  static FASTACT_INLINE void block(const Prepared& prepared, char* to, char* const* data,
                                   int64_t start, int64_t n) {
    block(prepared, to, data, start, n, typename F::Outputs{}, typename F::Inputs{},
          std::make_index_sequence<F::Outputs::kCount>{},
          std::make_index_sequence<F::Inputs::kCount>{});
  }

  template <class Output, class... Inputs, size_t... I>
  static FASTACT_INLINE void block(const Prepared& prepared, char* to, char* const* data,
                                   int64_t start, int64_t n, Elements<Output>, Elements<Inputs...>,
                                   std::index_sequence<0>, std::index_sequence<I...>) {
    if constexpr (IsLookedUp<F>) {
      if (prepared.entries != nullptr) return look_up(prepared.entries, to, data[1] + start, n);
    } else if constexpr (HasFactors<F>) {
      if (prepared.entries != nullptr) {
        return multiply(prepared.entries, reinterpret_cast<Output*>(to), n,
                        reinterpret_cast<const Inputs*>(data[1 + I] + start)...);
      }
    }
    dense_into(prepared.form, reinterpret_cast<Output*>(to), n,
               reinterpret_cast<const Inputs*>(data[1 + I] + start)...);
  }

  template <class... Outputs, class... Inputs, size_t... J, size_t... I>
  static FASTACT_INLINE void block(const Prepared& prepared, char* /*to*/, char* const* data,
                                   int64_t /*start*/, int64_t n, Elements<Outputs...>,
                                   Elements<Inputs...>, std::index_sequence<J...>,
                                   std::index_sequence<I...>) {
    dense_elements(prepared.form, tuple_of(reinterpret_cast<Outputs*>(data[J])...), n,
                   reinterpret_cast<const Inputs*>(data[sizeof...(J) + I])...);
  }

  // Multiplies each g by the factor of its x. `out` may be the memory of an input.
  template <class Element>
  static FASTACT_INLINE void multiply(const float* factors, Element* out, int64_t n,
                                      const Element* g, const Element* x) {
    constexpr int64_t kFactorBlock = 256;
    for (int64_t start = 0; start < n; start += kFactorBlock) {
      const int64_t count = n - start < kFactorBlock ? n - start : kFactorBlock;
      alignas(kCacheLine) float looked_up[kFactorBlock];
      for (int64_t i = 0; i < count; ++i) looked_up[i] = factors[x[start + i].bits];
      if constexpr (std::is_same_v<Element, Float16>) {
        dense_halves(FactorProduct<Element>(), out + start, count, g + start, looked_up);
      } else {
        dense_elements(FactorProduct<Element>(), Tuple<Element*>{out + start}, count, g + start,
                       static_cast<const float*>(looked_up));
      }
    }
  }

  // Computes one output with the loop that suits the types of the output and the inputs.
  template <class Output, class... Inputs>
  static FASTACT_INLINE void dense_into(const F& form, Output* out, int64_t n,
                                        const Inputs*... inputs) {
    if constexpr (kHasHalves<Output, Inputs...>) {
      dense_halves(form, out, n, inputs...);
    } else if constexpr (kAllAre<F, BFloat16>) {
      dense_pairs(form, out, n, inputs...);
    } else {
      int64_t done = 0;
#if FASTACT_HAS_SEGMENT_VECTORS
      if constexpr (HasSegments<F> && kAllAre<F, float>)
        done = dense_segments(form, out, n, inputs...);
#endif
      dense_elements(form, Tuple<Output*>{out + done}, n - done, (inputs + done)...);
    }
  }
};

// Loop's run_dense, for a table of functions over contiguous elements only.
template <class F>
struct DenseLoop {
  static constexpr DenseFunction run = &Loop<F>::run_dense;
};

}  // namespace fastact::cpu::inline FASTACT_TARGET

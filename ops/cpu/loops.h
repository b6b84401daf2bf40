// The loops: how dense elements reach a formula. Compiled once for each instruction set, and
// vectorised by the compiler: formulas are branch-free, so a scalar loop is all there is to write.
// rows.h brings everything else to this form.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "ops/cpu/engine.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/simd.h"
#include "ops/formulas/formula.h"

// In an in-place call output and input are the same elements, so pointers cannot be restrict; but
// an element depends on nothing at another index, which is what these tell the vectoriser.
#if defined(__clang__)
#define FASTACT_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#define FASTACT_ONE_VECTOR _Pragma("clang loop vectorize(enable)")
#else
#define FASTACT_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
// Unrolled before it is vectorised, a short loop becomes scalar code.
#define FASTACT_ONE_VECTOR _Pragma("GCC unroll 1")
#endif

namespace fastact::cpu::inline FASTACT_TARGET {

// Here and below the formula is a copy: its parameters are then in registers, where GCC 12 would
// else load them in one branch of a selection, which it does not vectorise (ELU took 6 instead of
// 0.7 ns).
template <class Element, int Order, bool FromResult, class Formula, class... Gradients>
FASTACT_INLINE void dense_elements(const Formula formula, Element* out, int64_t n, const Element* x,
                                   const Gradients*... gradients) {
  FASTACT_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    out[i] = round_to<Element>(
        evaluate<Element, Order, FromResult>(formula, widen(x[i]), widen(gradients[i])...));
  }
}

#if FASTACT_HAS_SEGMENT_VECTORS
// For float in segments (segments.h): a vector at a time. Its loops of fixed length become straight
// code in registers.
template <int Order, class Formula, class... Gradients>
FASTACT_INLINE int64_t dense_segments(const Formula formula, float* out, int64_t n, const float* x,
                                      const Gradients*... gradients) {
  // The segments of so many first: in one pass an element's operations are a chain of which a
  // processor holds too few at a time. GELU, AVX2: 1.47 instead of 1.95 ns (docs/tuning.md).
  constexpr int kBlock = 64;
  alignas(64) uint32_t index[kBlock];
  const int64_t end = n - n % kFloats;
  for (int64_t start = 0; start < end; start += kBlock) {
    const int64_t count = end - start < kBlock ? end - start : kBlock;
    for (int64_t at = 0; at < count; at += kFloats) {
      FASTACT_ONE_VECTOR
      for (int i = 0; i < kFloats; ++i)
        index[at + i] = formula.template segment<Order>(x[start + at + i]) * kIndexUnit;
    }
    for (int64_t at = 0; at < count; at += kFloats) {
      alignas(64) float c[kSegmentCoefficients + 1][kFloats];
      find_segments<*Formula::template kSegmentTable<Order>>(index + at, c);
      alignas(64) float result[kFloats];
      FASTACT_ONE_VECTOR
      for (int i = 0; i < kFloats; ++i) {
        const Segment segment = {c[0][i],
                                 {c[1][i], c[2][i], c[3][i], c[4][i], c[5][i], c[6][i], c[7][i]}};
        const int64_t j = start + at + i;
        result[i] = round_to<float>(
            product<float>(formula.template derivative_in<Order>(segment, x[j]), gradients[j]...));
      }
      store(result, out + start + at);
    }
  }
  return end;
}
#endif

// For BFloat16: two neighbours in one 32-bit lane, of which either half is a float as it stands. It
// saves the moves between 16- and 32-bit lanes: SELU, AVX2: 0.35 instead of 0.40 ns an element
// (docs/tuning.md).
using BFloat16Pair [[gnu::may_alias, gnu::aligned(2)]] = uint32_t;

FASTACT_INLINE float low_half(uint32_t pair) { return from_bits(pair << 16); }
FASTACT_INLINE float high_half(uint32_t pair) { return from_bits(pair & 0xffff0000u); }

// round_to<BFloat16>() in the upper half, where one of the two stays; the lower half is anything.
FASTACT_INLINE uint32_t rounded_upper_half(float y) {
  const uint32_t bits = to_bits(y);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return is_nan(y) ? to_bits(canonical_nan<float>()) : rounded;
}
FASTACT_INLINE uint32_t rounded_upper_half(Finished<float> y) { return to_bits(y.value); }

template <int Order, bool FromResult, class Formula, class... Gradients>
FASTACT_INLINE void dense_pairs(const Formula formula, BFloat16* out, int64_t n, const BFloat16* x,
                                const Gradients*... gradients) {
  const auto load = [](const BFloat16* from, int64_t i) -> uint32_t {
    return reinterpret_cast<const BFloat16Pair*>(from)[i];
  };
  FASTACT_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n / 2; ++i) {
    const uint32_t low = rounded_upper_half(evaluate<BFloat16, Order, FromResult>(
        formula, low_half(load(x, i)), low_half(load(gradients, i))...));
    const uint32_t high = rounded_upper_half(evaluate<BFloat16, Order, FromResult>(
        formula, high_half(load(x, i)), high_half(load(gradients, i))...));
    reinterpret_cast<BFloat16Pair*>(out)[i] = low >> 16 | (high & 0xffff0000u);
  }
  if (n % 2 != 0) {
    dense_elements<BFloat16, Order, FromResult>(formula, out + n - 1, 1, x + n - 1,
                                                (gradients + n - 1)...);
  }
}

// For Float16: a vector of floats at a time, whose loop of fixed length the compiler turns into
// straight code in registers. round_to<float> gives the one NaN, which converts to Float16's.
template <int Order, bool FromResult, class Formula, class... Gradients>
FASTACT_INLINE void dense_halves(const Formula formula, Float16* out, int64_t n, const Float16* x,
                                 const Gradients*... gradients) {
  int64_t start = 0;
  for (; start + kHalves <= n; start += kHalves) {
    alignas(64) float wide[Order + 1][kHalves];
    int operand = 0;
    widen_halves(x + start, wide[operand++]);
    (widen_halves(gradients + start, wide[operand++]), ...);
    alignas(64) float result[kHalves];
    [&]<size_t... I>(std::index_sequence<I...>) {
      FASTACT_ONE_VECTOR
      for (int i = 0; i < kHalves; ++i) {
        result[i] = round_to<float>(
            evaluate<Float16, Order, FromResult>(formula, wide[0][i], wide[1 + I][i]...));
      }
    }(std::make_index_sequence<Order>{});
    narrow_halves(result, out + start);
  }
  dense_elements<Float16, Order, FromResult>(formula, out + start, n - start, x + start,
                                             (gradients + start)...);
}

template <class Formula, class Element, int Order, bool FromResult>
struct Loop {
  static void run(const Parameters& parameters, char* const* data, const int64_t* strides,
                  int64_t size0, int64_t size1) {
    if constexpr (has_default<Formula, Element, Order, FromResult>()) {
      using Default = Loop<typename Formula::Default, Element, Order, FromResult>;
      if (Formula::is_default(parameters.values))
        return Default::run(parameters, data, strides, size0, size1);
    }
    const Formula formula(parameters.values);
    cpu::run({&compute, &formula, kOperands, kSize}, data, strides, size0, size1);
  }

 private:
  static constexpr int kOperands = Order + 2;
  static constexpr int64_t kSize = sizeof(Element);

  // DenseKernel::compute. One loop for every pace, so that what the formula's loop needs in
  // registers is loaded once.
  static void compute(const void* erased, char* const* data, int64_t n, Pace pace) {
    const auto& formula = *static_cast<const Formula*>(erased);
    alignas(kCacheLine) char buffer[kStep];
    const int64_t step = pace == Pace::kAtOnce ? n * kSize : kStep;
    for (int64_t start = 0; start < n * kSize; start += step) {
      const int64_t left = n * kSize - start;
      const int64_t bytes = left < step ? left : step;
      if (pace != Pace::kAtOnce) fetch_ahead<kOperands>(data, start, left);
      char* out = data[0] + start;
      block(formula, pace == Pace::kStreaming ? buffer : out, data, start, bytes / kSize);
      if (pace == Pace::kStreaming) stream(buffer, out, bytes);
    }
  }

  // The inputs' elements from byte `start` on, to `to`.
  static FASTACT_INLINE void block(const Formula& formula, char* to, char* const* data,
                                   int64_t start, int64_t n) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      auto* out = reinterpret_cast<Element*>(to);
      const auto at = [&](int operand) {
        return reinterpret_cast<const Element*>(data[operand] + start);
      };
      const Element* x = at(kOperands - 1);
      if constexpr (std::is_same_v<Element, Float16>) {
        dense_halves<Order, FromResult>(formula, out, n, x, at(1 + I)...);
      } else if constexpr (std::is_same_v<Element, BFloat16>) {
        dense_pairs<Order, FromResult>(formula, out, n, x, at(1 + I)...);
      } else {
        int64_t done = 0;
#if FASTACT_HAS_SEGMENT_VECTORS
        if constexpr (kInSegments<Formula, Element, Order, FromResult>)
          done = dense_segments<Order>(formula, out, n, x, at(1 + I)...);
#endif
        dense_elements<Element, Order, FromResult>(formula, out + done, n - done, x + done,
                                                   (at(1 + I) + done)...);
      }
    }(std::make_index_sequence<Order>{});
  }
};

}  // namespace fastact::cpu::inline FASTACT_TARGET

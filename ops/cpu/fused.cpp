#include "ops/cpu/fused.h"

#include <cstring>

#include "ops/cpu/dense.h"
#include "ops/cpu/strided.h"
#include "ops/cpu/vector.h"
#include "ops/forms/fused.h"

namespace fastact::cpu::inline FASTACT_TARGET {
namespace {

// Elements of a block: its numbers, and those of three operands, stay in the L1 cache.
constexpr int64_t kBlock = 1024;

template <class Element>
using Block = OpMath<Element>[kBlock];

// The elements as numbers: where they lie, or, of 16-bit ones, in the buffer.
template <class Element>
const OpMath<Element>* as_numbers(const Element* from, int64_t n, OpMath<Element>* buffer) {
  if constexpr (!kIs16Bit<Element>) {
    return from;
  } else {
    int64_t i = 0;
    if constexpr (std::is_same_v<Element, Float16>) {
      for (; i + kHalves <= n; i += kHalves) widen_halves(from + i, buffer + i);
    }
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t j = i; j < n; ++j) buffer[j] = widen(from[j]);
    return buffer;
  }
}

// Numbers, rounded to elements.
template <class Element>
void round_numbers(const OpMath<Element>* from, int64_t n, Element* to) {
  int64_t i = 0;
  if constexpr (std::is_same_v<Element, Float16>) {
    for (; i + kHalves <= n; i += kHalves) {
      // Of a NaN narrow_halves() takes the one NaN alone.
      alignas(kCacheLine) float numbers[kHalves];
      FASTACT_ONE_VECTOR
      for (int j = 0; j < kHalves; ++j) numbers[j] = round_to<float>(from[i + j]);
      narrow_halves(numbers, to + i);
    }
  }
  FASTACT_INDEPENDENT_ITERATIONS
  for (int64_t j = i; j < n; ++j) to[j] = round_to<Element>(from[j]);
}

template <class Element>
struct Fused {
  using T = OpMath<Element>;

  static void run(const FusedCall& call, char* const* data, const int64_t* strides, int64_t size0,
                  int64_t size1) {
    OperandSizes sizes = {.outputs = 1, .count = 1, .bytes = {sizeof(Element)}};
    for (int i = 0; i < kFusedInputs; ++i) {
      const auto input = static_cast<FusedInput>(i);
      if (!call.inputs.has(input)) continue;
      sizes.bytes[sizes.count++] = call.wide.has(input) ? sizeof(T) : sizeof(Element);
    }
    cpu::run({&compute, &call, sizes}, data, strides, size0, size1);
  }

 private:
  // DenseKernel::compute.
  static void compute(const void* erased, char* const* data, int64_t n, Pace pace) {
    const auto& call = *static_cast<const FusedCall*>(erased);
    const char* inputs[kFusedInputs] = {};
    int next = 1;
    for (int i = 0; i < kFusedInputs; ++i) {
      if (call.inputs.has(static_cast<FusedInput>(i))) inputs[i] = data[next++];
    }
    alignas(kCacheLine) Element rounded[kBlock];
    for (int64_t start = 0; start < n; start += kBlock) {
      const int64_t count = n - start < kBlock ? n - start : kBlock;
      if (pace != Pace::kAtOnce) fetch_ahead(inputs, start, n);
      Element* const out = reinterpret_cast<Element*>(data[0]) + start;
      block(call, inputs, start, count, pace == Pace::kStreaming ? rounded : out);
      if (pace == Pace::kStreaming) {
        stream(reinterpret_cast<const char*>(rounded), reinterpret_cast<char*>(out),
               count * static_cast<int64_t>(sizeof(Element)));
      }
    }
  }

  // The inputs' elements of the next block, if it is a whole one. With other paces than kAtOnce all
  // inputs are elements.
  static void fetch_ahead(const char* const* inputs, int64_t start, int64_t n) {
    if (n - start < 2 * kBlock) return;
    constexpr int64_t kBytes = kBlock * static_cast<int64_t>(sizeof(Element));
    for (int i = 0; i < kFusedInputs; ++i) {
      if (inputs[i] == nullptr) continue;
      const char* const next = inputs[i] + (start + kBlock) * static_cast<int64_t>(sizeof(Element));
      for (int64_t line = 0; line < kBytes; line += kCacheLine) __builtin_prefetch(next + line);
    }
  }

  // The elements from `start` on.
  static void block(const FusedCall& call, const char* const* inputs, int64_t start, int64_t n,
                    Element* out) {
    alignas(kCacheLine) Block<Element> z;
    alignas(kCacheLine) Block<Element> values;
    argument(call, inputs, start, n, z);
    const auto* const gate = inputs[static_cast<int>(FusedInput::kGate)];
    T* value = values;
    if constexpr (!kIs16Bit<Element>) {
      if (gate == nullptr) value = out;
    }
    char* const data[] = {reinterpret_cast<char*>(value), reinterpret_cast<char*>(z)};
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    const int64_t strides[] = {kSize, kSize, 0, 0};
    call.value(call.parameters, data, strides, n, 1);
    if (gate != nullptr) {
      alignas(kCacheLine) Block<Element> buffer;
      const T* const factor = as_numbers(reinterpret_cast<const Element*>(gate) + start, n, buffer);
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) value[i] = fused_product<Element>(z[i], value[i], factor[i]);
    }
    if (kIs16Bit<Element> || gate != nullptr) round_numbers<Element>(value, n, out);
  }

  // z, as fused_argument() has it: what is absent there changes no bit.
  static void argument(const FusedCall& call, const char* const* inputs, int64_t start, int64_t n,
                       T* z) {
    alignas(kCacheLine) Block<Element> buffers[2];
    const auto numbers = [&](FusedInput input, T* buffer) -> const T* {
      const char* const from = inputs[static_cast<int>(input)];
      if (call.wide.has(input)) return reinterpret_cast<const T*>(from) + start;
      return as_numbers(reinterpret_cast<const Element*>(from) + start, n, buffer);
    };
    const T* const self = numbers(FusedInput::kSelf, z);
    const bool scales = call.inputs.has(FusedInput::kScale);
    const bool shifts = call.inputs.has(FusedInput::kBias);
    if (scales) {
      const T* const scale = numbers(FusedInput::kScale, buffers[0]);
      if (shifts) {
        const T* const bias = numbers(FusedInput::kBias, buffers[1]);
        FASTACT_INDEPENDENT_ITERATIONS
        for (int64_t i = 0; i < n; ++i) z[i] = fma(self[i], scale[i], bias[i]);
      } else {
        FASTACT_INDEPENDENT_ITERATIONS
        for (int64_t i = 0; i < n; ++i) z[i] = self[i] * scale[i];
      }
    } else if (shifts) {
      const T* const bias = numbers(FusedInput::kBias, buffers[1]);
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) z[i] = self[i] + bias[i];
    } else if (self != z) {
      std::memcpy(z, self, static_cast<size_t>(n) * sizeof(T));
    }
    if (call.inputs.has(FusedInput::kResidual)) {
      const T* const residual = numbers(FusedInput::kResidual, buffers[0]);
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) z[i] = z[i] + residual[i];
    }
  }
};

}  // namespace

FusedKernel fused_kernel(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return &Fused<float>::run;
    case DType::kFloat64:
      return &Fused<double>::run;
    case DType::kBFloat16:
      return &Fused<BFloat16>::run;
    case DType::kFloat16:
      return &Fused<Float16>::run;
  }
  return nullptr;
}

}  // namespace fastact::cpu::inline FASTACT_TARGET

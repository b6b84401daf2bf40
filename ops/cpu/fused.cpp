#include "ops/cpu/fused.h"

#include <algorithm>

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

  // FusedBackwardKernel.
  static void run_backward(const FusedBackwardCall& call, const FusedTile& tile) {
    alignas(kCacheLine) T scale_sums[kTileColumns];
    alignas(kCacheLine) T bias_sums[kTileColumns];
    if (tile.vectors_along_columns) {
      if (tile.scale_sums != nullptr) std::fill_n(scale_sums, tile.columns, T(0));
      if (tile.bias_sums != nullptr) std::fill_n(bias_sums, tile.columns, T(0));
    } else {
      if (tile.scale_sums != nullptr) *tile.scale_sums = 0;
      if (tile.bias_sums != nullptr) *tile.bias_sums = 0;
    }
    for (int64_t row = 0; row < tile.rows; ++row) {
      for (int64_t start = 0; start < tile.columns; start += kBlock) {
        const int64_t n = tile.columns - start < kBlock ? tile.columns - start : kBlock;
        const auto at = [&](const FusedRows& rows, int64_t column, size_t size) {
          return rows.data == nullptr
                     ? nullptr
                     : rows.data + row * rows.stride + column * static_cast<int64_t>(size);
        };
        BlockOperands operands;
        operands.grad_output =
            reinterpret_cast<const Element*>(at(tile.grad_output, start, sizeof(Element)));
        for (int i = 0; i < kFusedInputs; ++i) {
          const auto input = static_cast<FusedInput>(i);
          const bool is_one = !tile.vectors_along_columns && is_vector(input);
          operands.inputs[i] = at(tile.inputs[i], is_one ? 0 : start,
                                  call.forward.wide.has(input) ? sizeof(T) : sizeof(Element));
          operands.gradients[i] =
              reinterpret_cast<Element*>(at(tile.gradients[i], start, sizeof(Element)));
        }
        block_gradients(call, tile, operands, n, scale_sums + start, bias_sums + start);
      }
    }
    if (!tile.vectors_along_columns) return;
    if (tile.scale_sums != nullptr) std::copy_n(scale_sums, tile.columns, tile.scale_sums);
    if (tile.bias_sums != nullptr) std::copy_n(bias_sums, tile.columns, tile.bias_sums);
  }

 private:
  struct BlockOperands {
    const Element* grad_output;
    const char* inputs[kFusedInputs];
    Element* gradients[kFusedInputs];
  };

  static bool is_vector(FusedInput input) {
    return input == FusedInput::kScale || input == FusedInput::kBias;
  }
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
    alignas(kCacheLine) Block<Element> sums;
    alignas(kCacheLine) Block<Element> values;
    const T* const z = argument(call, inputs, start, n, sums);
    const auto* const gate = inputs[static_cast<int>(FusedInput::kGate)];
    T* value = values;
    if constexpr (!kIs16Bit<Element>) {
      if (gate == nullptr) value = out;
    }
    call_kernel(call.value, call.parameters, n, value, z);
    if (gate != nullptr) {
      alignas(kCacheLine) Block<Element> buffer;
      const T* const factor = as_numbers(reinterpret_cast<const Element*>(gate) + start, n, buffer);
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) value[i] = fused_product<Element>(z[i], value[i], factor[i]);
    }
    if (kIs16Bit<Element> || gate != nullptr) round_numbers<Element>(value, n, out);
  }

  // z, as fused_argument() has it: what is absent there changes no bit. In the buffer, or where
  // self lies.
  static const T* argument(const FusedCall& call, const char* const* inputs, int64_t start,
                           int64_t n, T* z) {
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
    }
    const T* const sum = scales || shifts ? z : self;
    if (!call.inputs.has(FusedInput::kResidual)) return sum;
    const T* const residual = numbers(FusedInput::kResidual, buffers[0]);
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; ++i) z[i] = sum[i] + residual[i];
    return z;
  }

  static void block_gradients(const FusedBackwardCall& call, const FusedTile& tile,
                              const BlockOperands& operands, int64_t n, T* scale_sums,
                              T* bias_sums) {
    alignas(kCacheLine) Block<Element> sums;
    alignas(kCacheLine) Block<Element> value;
    alignas(kCacheLine) Block<Element> slopes;
    alignas(kCacheLine) Block<Element> incoming;
    alignas(kCacheLine) Block<Element> buffer;
    alignas(kCacheLine) char vectors[2][kBlock * sizeof(T)];
    constexpr int kSelf = static_cast<int>(FusedInput::kSelf);
    constexpr int kScale = static_cast<int>(FusedInput::kScale);
    constexpr int kBias = static_cast<int>(FusedInput::kBias);
    constexpr int kResidual = static_cast<int>(FusedInput::kResidual);
    constexpr int kGate = static_cast<int>(FusedInput::kGate);
    const char* inputs[kFusedInputs];
    std::copy_n(operands.inputs, kFusedInputs, inputs);
    if (!tile.vectors_along_columns) {
      for (const int i : {kScale, kBias}) {
        if (inputs[i] == nullptr) continue;
        inputs[i] = repeat(inputs[i], call.forward.wide.has(static_cast<FusedInput>(i)), n,
                           vectors[i == kScale ? 0 : 1]);
      }
    }
    const auto numbers = [&](int input) -> const T* {
      if (call.forward.wide.has(static_cast<FusedInput>(input)))
        return reinterpret_cast<const T*>(inputs[input]);
      return as_numbers(reinterpret_cast<const Element*>(inputs[input]), n, buffer);
    };

    const T* const z = argument(call.forward, inputs, 0, n, sums);
    const T* g = as_numbers(operands.grad_output, n, incoming);
    if (operands.gradients[kGate] != nullptr || call.slope_of_value)
      call_kernel(call.forward.value, call.forward.parameters, n, value, z);
    if (operands.gradients[kGate] != nullptr) {
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) buffer[i] = g[i] * value[i];
      round_numbers<Element>(buffer, n, operands.gradients[kGate]);
    }
    if (operands.gradients[kSelf] == nullptr && operands.gradients[kResidual] == nullptr &&
        tile.scale_sums == nullptr && tile.bias_sums == nullptr) {
      return;
    }
    if (inputs[kGate] != nullptr) {
      const T* const gate = numbers(kGate);
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) incoming[i] = g[i] * gate[i];
      g = incoming;
    }
    // Where it is a gradient itself it is written there at once.
    Element* const gradient = inputs[kScale] == nullptr && operands.gradients[kSelf] != nullptr
                                  ? operands.gradients[kSelf]
                                  : operands.gradients[kResidual];
    T* slope = slopes;
    if constexpr (!kIs16Bit<Element>) {
      if (gradient != nullptr) slope = gradient;
    }
    call_kernel(call.slope, call.forward.parameters, n, slope, g, call.slope_of_value ? value : z);
    if (kIs16Bit<Element> && gradient != nullptr) round_numbers<Element>(slope, n, gradient);
    if (tile.bias_sums != nullptr)
      add_to_sums(tile.vectors_along_columns, n, slope, bias_sums, tile.bias_sums);
    if (tile.scale_sums != nullptr) {
      const T* const self = numbers(kSelf);
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) sums[i] = slope[i] * self[i];
      add_to_sums(tile.vectors_along_columns, n, sums, scale_sums, tile.scale_sums);
    }
    if (inputs[kScale] == nullptr || operands.gradients[kSelf] == nullptr) return;
    const T* const scale = numbers(kScale);
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; ++i) slopes[i] = slope[i] * scale[i];
    round_numbers<Element>(slopes, n, operands.gradients[kSelf]);
  }

  // One element, n times.
  static const char* repeat(const char* one, bool is_wide, int64_t n, char* buffer) {
    if (is_wide) {
      std::fill_n(reinterpret_cast<T*>(buffer), n, *reinterpret_cast<const T*>(one));
    } else {
      std::fill_n(reinterpret_cast<Element*>(buffer), n, *reinterpret_cast<const Element*>(one));
    }
    return buffer;
  }

  template <class... Inputs>
  static void call_kernel(Kernel kernel, const Parameters& parameters, int64_t n, T* out,
                          const Inputs*... inputs) {
    char* const data[] = {reinterpret_cast<char*>(out),
                          const_cast<char*>(reinterpret_cast<const char*>(inputs))...};
    constexpr int kCount = 1 + sizeof...(Inputs);
    int64_t strides[2 * kCount] = {};
    std::fill_n(strides, kCount, static_cast<int64_t>(sizeof(T)));
    kernel(parameters, data, strides, n, 1);
  }

  // Each number to its column's sum; or all of them, in lanes, as many as any instruction set has,
  // and these by pairs, to the one sum.
  static void add_to_sums(bool along_columns, int64_t n, const T* numbers, T* sums, double* sum) {
    if (along_columns) {
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < n; ++i) sums[i] += numbers[i];
      return;
    }
    constexpr int kLanes = 16;
    alignas(kCacheLine) T lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += numbers[i + lane];
    for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += numbers[i];
    for (int half = kLanes / 2; half > 0; half /= 2)
      for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    *sum += static_cast<double>(lanes[0]);
  }
};

}  // namespace

FusedKernels fused_kernels(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return {&Fused<float>::run, &Fused<float>::run_backward};
    case DType::kFloat64:
      return {&Fused<double>::run, &Fused<double>::run_backward};
    case DType::kBFloat16:
      return {&Fused<BFloat16>::run, &Fused<BFloat16>::run_backward};
    case DType::kFloat16:
      return {&Fused<Float16>::run, &Fused<Float16>::run_backward};
  }
  return {};
}

}  // namespace fastact::cpu::inline FASTACT_TARGET

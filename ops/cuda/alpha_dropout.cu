// clang-format off: must be first, because it makes the target's namespace an inline one.
#include "ops/forms/alpha_dropout.h"
// clang-format on

#include <algorithm>

#include "ops/cuda/alpha_dropout.h"
#include "ops/cuda/packet.cuh"
#include "ops/cuda/tuning.h"

namespace fastact::cuda {
namespace {

// Elements per thread and step: one for each word of a counter.
constexpr int kCount = RandomBits::kWords;
// More blocks would not keep more elements in flight. Each thread loops from here on.
constexpr int64_t kMaxBlocks = int64_t{1} << 20;

template <class Element>
struct DropoutPointers {
  Element* out;
  const Element* inputs[2];
};

// Computes `Count` elements from `first` on with the random bits `words`.
template <class F, class Element, int Count>
__device__ __forceinline__ void drop(const F& form, const DropoutPointers<Element>& pointers,
                                     int64_t first, const uint32_t* words) {
  using T = OpMath<Element>;
  using P = Packet<Element, Count>;
  T numbers[F::kInputs][Count];
#pragma unroll
  for (int j = 0; j < F::kInputs; ++j) {
    const P packet = *reinterpret_cast<const P*>(pointers.inputs[j] + first);
    widen_packet(packet, numbers[j]);
  }
  T results[Count];
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    if constexpr (F::kInputs == 1) {
      results[i] = form.evaluate(words[i], numbers[0][i]);
    } else {
      results[i] = form.evaluate(words[i], numbers[0][i], numbers[1][i]);
    }
  }
  P result;
  round_packet(results, result);
  *reinterpret_cast<P*>(pointers.out + first) = result;
}

template <class F, class Element>
__global__ void __launch_bounds__(kThreads)
    alpha_dropout(const F form, const DropoutPointers<Element> pointers, const int64_t* seed,
                  const int64_t n, const bool in_packets) {
  const auto key = static_cast<uint64_t>(*seed);
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t counter = int64_t{blockIdx.x} * kThreads + threadIdx.x; counter * kCount < n;
       counter += step) {
    const RandomBits bits = philox(key, static_cast<uint64_t>(counter));
    const int64_t first = counter * kCount;
    if (in_packets && first + kCount <= n) {
      drop<F, Element, kCount>(form, pointers, first, bits.words);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (first + i < n) drop<F, Element, 1>(form, pointers, first + i, bits.words + i);
    }
  }
}

template <template <class> class Form, class Element>
void launch(double p, const int64_t* seed, void* const* data, int64_t n, cudaStream_t stream) {
  using F = Form<Element>;
  DropoutPointers<Element> pointers = {static_cast<Element*>(data[0]), {}};
  bool in_packets = true;
  for (int j = 0; j < 1 + F::kInputs; ++j) {
    if (j > 0) pointers.inputs[j - 1] = static_cast<const Element*>(data[j]);
    in_packets &= reinterpret_cast<uintptr_t>(data[j]) % sizeof(Packet<Element, kCount>) == 0;
  }
  const int64_t threads = (n + kCount - 1) / kCount;
  const int64_t blocks = std::min((threads + kThreads - 1) / kThreads, kMaxBlocks);
  alpha_dropout<F, Element>
      <<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(F(p), pointers, seed, n, in_packets);
}

template <template <class> class Form>
void launch_of_type(DType dtype, double p, const int64_t* seed, void* const* data, int64_t n,
                    cudaStream_t stream) {
  switch (dtype) {
    case DType::kFloat32:
      return launch<Form, float>(p, seed, data, n, stream);
    case DType::kFloat64:
      return launch<Form, double>(p, seed, data, n, stream);
    case DType::kBFloat16:
      return launch<Form, BFloat16>(p, seed, data, n, stream);
    case DType::kFloat16:
      return launch<Form, Float16>(p, seed, data, n, stream);
  }
}

}  // namespace

cudaError_t run_alpha_dropout(AlphaDropoutForm form, DType dtype, double p, const int64_t* seed,
                              void* const* data, int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  switch (form) {
    case AlphaDropoutForm::kValue:
      launch_of_type<AlphaDropoutValue>(dtype, p, seed, data, n, stream);
      break;
    case AlphaDropoutForm::kGradient:
      launch_of_type<AlphaDropoutGradient>(dtype, p, seed, data, n, stream);
      break;
    case AlphaDropoutForm::kMask:
      launch_of_type<AlphaDropoutMask>(dtype, p, seed, data, n, stream);
      break;
  }
  return cudaGetLastError();
}

}  // namespace fastact::cuda

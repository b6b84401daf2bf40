#include "ops/cpu/alpha_dropout.h"

#include "ops/cpu/dense.h"
#include "ops/cpu/strided.h"
#include "ops/forms/alpha_dropout.h"

namespace fastact::cpu::inline FASTACT_TARGET {
namespace {

// Writes random words so that the words of each round are contiguous, which lets the compiler
// vectorise the loop.
void fill(uint64_t seed, int64_t counter, int64_t count, uint32_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    const RandomBits bits = philox(seed, static_cast<uint64_t>(counter + i));
    for (int word = 0; word < RandomBits::kWords; ++word)
      to[i * RandomBits::kWords + word] = bits.words[word];
  }
}

template <template <class> class Form, class Element>
void run(double p, uint64_t seed, char* const* data, int64_t first, int64_t n) {
  constexpr int kWords = RandomBits::kWords;
  const Form<Element> form(p);
  auto* const out = reinterpret_cast<Element*>(data[0]) + first;
  const auto* const a = reinterpret_cast<const Element*>(data[1]) + first;
  alignas(kCacheLine) uint32_t random[kAlphaDropoutBlock];
  for (int64_t start = 0; start < n; start += kAlphaDropoutBlock) {
    const int64_t left = n - start;
    const int64_t count = left < kAlphaDropoutBlock ? left : kAlphaDropoutBlock;
    fill(seed, (first + start) / kWords, (count + kWords - 1) / kWords, random);
    if constexpr (Form<Element>::kInputs == 1) {
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < count; ++i)
        out[start + i] = round_to<Element>(form.evaluate(random[i], widen(a[start + i])));
    } else {
      const auto* const b = reinterpret_cast<const Element*>(data[2]) + first;
      FASTACT_INDEPENDENT_ITERATIONS
      for (int64_t i = 0; i < count; ++i) {
        out[start + i] =
            round_to<Element>(form.evaluate(random[i], widen(a[start + i]), widen(b[start + i])));
      }
    }
  }
}

template <template <class> class Form>
AlphaDropoutKernel of_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return &run<Form, float>;
    case DType::kFloat64:
      return &run<Form, double>;
    case DType::kBFloat16:
      return &run<Form, BFloat16>;
    case DType::kFloat16:
      return &run<Form, Float16>;
  }
  return nullptr;
}

}  // namespace

AlphaDropoutKernel alpha_dropout_kernel(AlphaDropoutForm form, DType dtype) {
  switch (form) {
    case AlphaDropoutForm::kValue:
      return of_type<AlphaDropoutValue>(dtype);
    case AlphaDropoutForm::kGradient:
      return of_type<AlphaDropoutGradient>(dtype);
    case AlphaDropoutForm::kMask:
      return of_type<AlphaDropoutMask>(dtype);
  }
  return nullptr;
}

}  // namespace fastact::cpu::inline FASTACT_TARGET

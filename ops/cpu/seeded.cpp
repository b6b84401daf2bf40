#include "ops/cpu/seeded.h"

#include <algorithm>

#include "ops/cpu/strided.h"
#include "ops/math/philox.h"

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

}  // namespace

void run_seeded(const SeededCall& call, int64_t first, int64_t n) {
  constexpr int kWords = RandomBits::kWords;
  alignas(kCacheLine) uint32_t random[kSeededBlock];
  int64_t strides[2 * kMaxOperands] = {};
  std::fill_n(strides, call.operands, call.element_size);
  strides[1] = sizeof(uint32_t);
  for (int64_t start = first; start < first + n; start += kSeededBlock) {
    const int64_t count = std::min(kSeededBlock, first + n - start);
    fill(call.seed, start / kWords, (count + kWords - 1) / kWords, random);
    char* data[kMaxOperands] = {};
    for (int i = 0; i < call.operands; ++i) {
      data[i] = i == 1 ? reinterpret_cast<char*>(random) : call.data[i] + start * call.element_size;
    }
    call.kernel(call.parameters, data, strides, count, 1);
  }
}

}  // namespace fastact::cpu::inline FASTACT_TARGET

// Random bits as a function of their position: Philox4x32-10, from Salmon, Moraes, Dror and Shaw,
// "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.
#pragma once

#include "ops/math/arithmetic.h"

namespace fastact::inline FASTACT_TARGET {

struct RandomBits {
  static constexpr int kWords = 4;
  uint32_t words[kWords];
};

FASTACT_INLINE RandomBits philox(uint64_t key, uint64_t counter) {
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  uint32_t c0 = low(counter);
  uint32_t c1 = high(counter);
  uint32_t c2 = 0;
  uint32_t c3 = 0;
  uint32_t k0 = low(key);
  uint32_t k1 = high(key);
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xd2511f53} * c0;
    const uint64_t second = uint64_t{0xcd9e8d57} * c2;
    c0 = high(second) ^ c1 ^ k0;
    c1 = low(second);
    c2 = high(first) ^ c3 ^ k1;
    c3 = low(first);
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace fastact::inline FASTACT_TARGET

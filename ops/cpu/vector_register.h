// Vectors that fill a register. Compiled once for each instruction set.
#pragma once

#include "ops/math/target/target.h"

namespace fastact::cpu::inline FASTACT_TARGET {

#if defined(__AVX512F__)
inline constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kRegisterBytes = 32;
#else
inline constexpr int kRegisterBytes = 16;
#endif

template <class T, int Bytes = kRegisterBytes>
struct VectorRegister {
  using Vector [[gnu::vector_size(Bytes), gnu::may_alias]] = T;

  static constexpr int kSize = Bytes / static_cast<int>(sizeof(T));
  // The elements in a lane of 128 bits. A shuffle within such lanes is one instruction.
  static constexpr int kLane = 16 / static_cast<int>(sizeof(T));
  static constexpr int kLanes = kSize / kLane;
};

}  // namespace fastact::cpu::inline FASTACT_TARGET

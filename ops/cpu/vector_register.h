// Vectors that fill a register. Compiled once for each instruction set.
#pragma once

#include <cstdint>
#include <type_traits>

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

  // Returns the elements of a, followed by those of b, with these indices.
  template <int... Indices>
  static FASTACT_INLINE Vector shuffled(const Vector& a, const Vector& b) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, Indices...);
#else  // GCC has __builtin_shufflevector from version 12 on
    using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    using Mask [[gnu::vector_size(Bytes)]] = Index;
    return __builtin_shuffle(a, b, Mask{Indices...});
#endif
  }
};

}  // namespace fastact::cpu::inline FASTACT_TARGET

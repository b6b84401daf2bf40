// How much each thread moves. What is computed is elsewhere: these numbers know only sizes and
// architectures. docs/tuning.md has what was tried; all of it on an H200 (sm_90).
#pragma once

#include <cstdint>

namespace fastact::cuda {

// The widest access of a thread: one 16-byte load fills a warp's 512 bytes in one instruction.
inline constexpr int kPacketBytes = 16;

// 256 are 2 to 4 % slower forward, and equal backward (1.6e9 elements).
inline constexpr int kThreads = 128;

// 16-byte packets of each input that a thread loads before it computes.
// bfloat16 SELU: 0.995 of copy speed with two, 0.902 with one; its backward 0.991 and 0.998.
template <int Inputs>
inline constexpr int kPacketsPerThread = Inputs == 1 ? 2 : 1;

// Where computing takes longer than that, a formula's traits ask for more: what a thread does once,
// it does for more elements, and has more to do while it waits. That is from so many elements on.
// Of 2^22, GELU backward in bfloat16 takes 11.9 us with more packets, 10.7 with one.
inline constexpr int64_t kManyPacketsElements = int64_t{1} << 23;

// And so few that one packet of a smooth function's input is enough to a thread: the
// multiprocessors then have more threads to choose from. Few operations gain nothing.
// SELU of 4 MiB of float32 takes 7.3 us with one, 7.9 with two; of 8 MiB of bfloat16 9.3 and 9.1.
inline constexpr int64_t kOnePacketBytes = int64_t{4} << 20;

// Packets of a smooth function's input that move along the rows of a large strided tensor.
// SELU of a chunk's half, 2^26 float32: 0.94 of copy speed with four, 0.88 with one.
inline constexpr int kPacketsOfRows = 4;

// Elements a thread handles where operands cannot be moved in packets.
inline constexpr int kElementsPerThread = 4;

}  // namespace fastact::cuda

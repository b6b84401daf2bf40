// How much each thread moves. What is computed is elsewhere: these numbers know only sizes and
// architectures.
#pragma once

#include <cstdint>

namespace fastact::cuda {

// The widest access of a thread: one 16-byte load fills a warp's 512 bytes in one instruction.
inline constexpr int kPacketBytes = 16;

// 128 threads beat 256 at 1.6e9 elements on an H200 (sm_90): forward by 2 to 4 %; backward they
// tie.
inline constexpr int kThreads = 128;

// 16-byte packets of each input that a thread loads before it computes. Of one input, two: with
// one, SELU forward runs at 0.967 of copy speed in float32 and 0.902 in bfloat16, with two at 1.002
// and 0.995 (H200, 1.6e9 elements). Of more inputs, one: they fill the memory system as they are,
// and backward drops from 0.998 to 0.991 with two. Streaming loads and stores (.cs) cost 1 to 4 %
// everywhere.
template <int Inputs>
inline constexpr int kPacketsPerThread = Inputs == 1 ? 2 : 1;

// Where computing takes longer than that, a formula's traits ask for more: what a thread does once,
// it does for more elements, and has more to do while it waits. One to four packets of GELU
// backward run at 0.85, 0.98, 0.99 and 0.99 of copy speed in bfloat16 and at 0.82, 0.94, 0.97 and
// 0.98 in float16, two to five of its float32 value at 0.94, 0.93, 0.97 and 0.98; three of SiLU
// backward in float16 at 0.99 instead of 0.84 (H200, 1 GiB). That is from so many elements on: at
// 2^22 the multiprocessors have too few threads, and GELU backward takes 11.9 instead of 10.7 us in
// bfloat16.
inline constexpr int64_t kManyPacketsElements = int64_t{1} << 23;

// And so few that one packet of a smooth function's input is enough to a thread: the
// multiprocessors then have more threads to choose from. Of 4 MiB, SELU takes 7.3 instead of 7.9 us
// in float32, of 2 MiB 6.3 instead of 6.5 in bfloat16; of 8 MiB in bfloat16 9.3 instead of 9.1. A
// function of few operations gains nothing: ReLU's 4 MiB take 7.3 instead of 7.2 us (H200, operands
// not in its L2 cache).
inline constexpr int64_t kOnePacketBytes = int64_t{4} << 20;

// Packets of a smooth function's input that move along the rows of a large strided tensor. SELU of
// a chunk's half (2^26 elements, H200) runs at 0.88, 0.91 and 0.90 of copy speed in float32,
// bfloat16 and float16 with one, at 0.94, 0.96 and 0.95 with four; ReLU at 0.99, 0.97 and 0.99 with
// one, at 0.98, 0.97 and 0.97 with four.
inline constexpr int kPacketsOfRows = 4;

// Elements a thread handles where operands cannot be moved in packets.
inline constexpr int kElementsPerThread = 4;

}  // namespace fastact::cuda

// Moves a tile of a row that starts at any element in aligned packets of 16 bytes. An aligned
// packet of memory overlaps two packets of the tile, so threads exchange words with their
// neighbours.
//
// No read leaves the row, and no write leaves the tile: packets at their ends move by element.
#pragma once

#include <cstdint>

#include "ops/cuda/packet.cuh"

namespace fastact::cuda {

template <class Element, int Threads, int Packets>
class ShiftedTile {
  static constexpr int kSize = static_cast<int>(sizeof(Element));
  static constexpr int kWidth = kPacketBytes / kSize;
  static constexpr int kWords = kPacketBytes / 4;
  static constexpr int kTile = Threads * Packets * kWidth;
  using Words = PacketWords<kPacketBytes>;

 public:
  // Reads the tile that starts at element `tile` of a row. From there, the row has `left` elements,
  // or more if that is a tile and a packet.
  __device__ __forceinline__ static void read(const char* row, int64_t tile, unsigned thread,
                                              int left, Words (&packets)[Packets]) {
    const char* const data = row + tile * kSize;
    const unsigned mask = threads_of_row();
    const int shift = bytes_past_boundary(data);
    const int first = place_of(0, thread) - shift / kSize;
    Words loaded[Packets + 1];
#pragma unroll
    for (int k = 0; k <= Packets; ++k) {
      loaded[k] = {};
      const int place = first + k * (Threads * kWidth);
      // The tile is followed by one more packet, the first thread's.
      if (k < Packets || (thread == 0 && shift != 0)) load(data, place, tile == 0, left, loaded[k]);
    }
#pragma unroll
    for (int k = 0; k < Packets; ++k) {
      uint32_t words[2 * kWords];
#pragma unroll
      for (int j = 0; j < kWords; ++j) {
        const uint32_t given = thread == 0 ? loaded[k + 1].words[j] : loaded[k].words[j];
        words[j] = loaded[k].words[j];
        words[kWords + j] = __shfl_sync(mask, given, (thread + 1) % Threads, Threads);
      }
      packets[k] = words_from(words, shift);
    }
  }

  // Writes the tile, or the first `left` elements of it.
  __device__ __forceinline__ static void write(char* row, int64_t tile, unsigned thread, int left,
                                               const Words (&packets)[Packets]) {
    char* const data = row + tile * kSize;
    const unsigned mask = threads_of_row();
    const int shift = bytes_past_boundary(data);
    const int first = place_of(0, thread) - shift / kSize;
    const int end = left < kTile ? left : kTile;
    Words before = {};
#pragma unroll
    for (int k = 0; k <= Packets; ++k) {
      const Words own = k < Packets ? packets[k] : Words{};
      // The packet before this one, and this one.
      uint32_t words[2 * kWords];
#pragma unroll
      for (int j = 0; j < kWords; ++j) {
        const uint32_t given = thread == Threads - 1 ? before.words[j] : own.words[j];
        words[j] = __shfl_sync(mask, given, (thread + Threads - 1) % Threads, Threads);
        words[kWords + j] = own.words[j];
      }
      // The last round writes what remains of the last packet.
      if (k < Packets || thread == 0)
        store(data, first + k * (Threads * kWidth), end, words_from(words, kPacketBytes - shift));
      before = own;
    }
  }

 private:
  // The threads of a warp that have this thread's row. Others may have another shift.
  __device__ __forceinline__ static unsigned threads_of_row() {
    constexpr unsigned kWarp = 32;
    constexpr unsigned kThreads = 0xffffffffu >> (kWarp - Threads);
    return kThreads << (threadIdx.x % kWarp / Threads * Threads);
  }

  __device__ __forceinline__ static int place_of(int k, unsigned thread) {
    return (k * Threads + static_cast<int>(thread)) * kWidth;
  }

  __device__ __forceinline__ static int bytes_past_boundary(const char* data) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(data) % kPacketBytes);
  }

  // Returns the packet that starts at byte `shift` of two packets, by selections, because registers
  // have no index.
  __device__ __forceinline__ static Words words_from(uint32_t (&words)[2 * kWords], int shift) {
#pragma unroll
    for (int step = kWords; step >= 1; step /= 2) {
      const bool is_set = (shift & (4 * step)) != 0;
#pragma unroll
      for (int j = 0; j + step < 2 * kWords; ++j) words[j] = is_set ? words[j + step] : words[j];
    }
    Words moved;
    const unsigned bytes = (shift & 2) != 0 ? 0x5432 : 0x3210;
#pragma unroll
    for (int j = 0; j < kWords; ++j)
      moved.words[j] = kSize == 2 ? __byte_perm(words[j], words[j + 1], bytes) : words[j];
    return moved;
  }

  // Loads the packet of memory at `place` in the tile, or those of its elements that the row has.
  __device__ __forceinline__ static void load(const char* data, int place, bool is_first, int left,
                                              Words& loaded) {
    const char* const from = data + place * kSize;
    if ((place >= 0 || !is_first) && place + kWidth <= left) {
      loaded = *reinterpret_cast<const Words*>(from);
    } else if (place + kWidth > 0 && place < left) {
      // These loads must be in flight together.
      Packet<Element, kWidth> packet = {};
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if ((place + j >= 0 || !is_first) && place + j < left)
          packet.elements[j] = *reinterpret_cast<const Element*>(from + j * kSize);
      }
      memcpy(&loaded, &packet, sizeof(loaded));
    }
  }

  // Stores the packet at `place` in the tile, or those of its elements that the tile has.
  __device__ __forceinline__ static void store(char* data, int place, int end, const Words& words) {
    char* const to = data + place * kSize;
    if (place >= 0 && place + kWidth <= end) {
      *reinterpret_cast<Words*>(to) = words;
    } else if (place + kWidth > 0 && place < end) {
      Packet<Element, kWidth> packet;
      memcpy(&packet, &words, sizeof(packet));
#pragma unroll 1
      for (int j = 0; j < kWidth; ++j) {
        if (place + j >= 0 && place + j < end)
          *reinterpret_cast<Element*>(to + j * kSize) = packet.elements[0];
#pragma unroll
        for (int i = 1; i < kWidth; ++i) packet.elements[i - 1] = packet.elements[i];
      }
    }
  }
};

}  // namespace fastact::cuda

// Moves a tile of a row that starts at any element. In global memory, whole packets of 16 bytes
// move, except for the elements before the first packet boundary and after the last one. In shared
// memory the threads of the row exchange elements: thread t has elements t, t + Threads, and so on.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/cuda/packet.cuh"

namespace fastact::cuda {

template <class Element, int Threads, int Count>
class ShiftedTile {
  static constexpr int kSize = static_cast<int>(sizeof(Element));
  static constexpr int kWidth = kPacketBytes / kSize;
  static constexpr int kPackets = (Count + kWidth - 1) / kWidth;  // of a thread
  using Words = PacketWords<kPacketBytes>;
  using Word = PacketWords<kSize>;
  static_assert(Threads >= kWidth, "a thread moves at most one element at each end");

 public:
  // The bytes of shared memory for each row.
  static constexpr int kSharedBytes = kPacketBytes + Threads * Count * kSize;

  // The elements of the tile that a thread moves in global memory.
  struct Moved {
    Words packets[kPackets];
    Word first;
    Word last;
  };

  // Loads the tile's `count` elements.
  __device__ __forceinline__ static void load(const char* data, int count, unsigned thread,
                                              Moved& moved) {
    for_each_access(Ends(data, count), thread, moved, [&](int element, auto& words) {
      using Access = std::remove_reference_t<decltype(words)>;
      words = *reinterpret_cast<const Access*>(data + element * kSize);
    });
  }

  // Distributes the elements over the threads. Those beyond the end are arbitrary.
  __device__ __forceinline__ static void distribute(const char* data, int count, unsigned thread,
                                                    Moved& moved, Word (&elements)[Count]) {
    const Ends ends(data, count);
    char* const shared = shared_of_row(ends);
    __syncwarp(threads_of_row());  // the shared memory is no longer in use
    for_each_access(ends, thread, moved, [&](int element, const auto& words) {
      using Access = std::remove_cvref_t<decltype(words)>;
      *reinterpret_cast<Access*>(shared + element * kSize) = words;
    });
    __syncwarp(threads_of_row());
#pragma unroll
    for (int i = 0; i < Count; ++i)
      elements[i] = *reinterpret_cast<const Word*>(shared + place_of(i, thread));
  }

  // Stores the tile's `count` elements.
  __device__ __forceinline__ static void store(char* data, int count, unsigned thread,
                                               const Word (&elements)[Count]) {
    const Ends ends(data, count);
    char* const shared = shared_of_row(ends);
    __syncwarp(threads_of_row());
#pragma unroll
    for (int i = 0; i < Count; ++i)
      *reinterpret_cast<Word*>(shared + place_of(i, thread)) = elements[i];
    __syncwarp(threads_of_row());
    Moved unused;
    for_each_access(ends, thread, unused, [&](int element, const auto& words) {
      using Access = std::remove_cvref_t<decltype(words)>;
      *reinterpret_cast<Access*>(data + element * kSize) =
          *reinterpret_cast<const Access*>(shared + element * kSize);
    });
  }

 private:
  // The numbers of elements before the first packet boundary, and of packets and elements after it.
  struct Ends {
    __device__ __forceinline__ Ends(const char* data, int count) {
      const auto past = static_cast<int>(reinterpret_cast<uintptr_t>(data) % kPacketBytes) / kSize;
      const int until = past == 0 ? 0 : kWidth - past;
      first = until < count ? until : count;
      packets = (count - first) / kWidth;
      last = count - first - packets * kWidth;
    }

    int first;
    int packets;
    int last;
  };

  // Calls access(element, words) for each packet of a thread, and for each of its elements outside
  // packets.
  template <class M, class Access>
  __device__ __forceinline__ static void for_each_access(const Ends& ends, unsigned thread,
                                                         M& moved, const Access& access) {
    const auto t = static_cast<int>(thread);
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      const int packet = k * Threads + t;
      if (packet < ends.packets) access(ends.first + packet * kWidth, moved.packets[k]);
    }
    if (t < ends.first) access(t, moved.first);
    if (t < ends.last) access(ends.first + ends.packets * kWidth + t, moved.last);
  }

  __device__ __forceinline__ static int place_of(int i, unsigned thread) {
    return (i * Threads + static_cast<int>(thread)) * kSize;
  }

  // The place of the row's first element in shared memory, where packets lie at their boundaries,
  // too.
  __device__ __forceinline__ static char* shared_of_row(const Ends& ends) {
    extern __shared__ __align__(kPacketBytes) char shared_rows[];
    return shared_rows + threadIdx.x / Threads * kSharedBytes + (kPacketBytes - ends.first * kSize);
  }

  // The threads of a warp that have this thread's row.
  __device__ __forceinline__ static unsigned threads_of_row() {
    constexpr unsigned kWarp = 32;
    constexpr unsigned kThreads = 0xffffffffu >> (kWarp - Threads);
    return kThreads << (threadIdx.x % kWarp / Threads * Threads);
  }
};

}  // namespace fastact::cuda

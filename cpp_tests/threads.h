// Threads that start together, for tests of concurrent calls.
#pragma once

#include <barrier>
#include <thread>
#include <vector>

namespace fastact::testing {

// Calls f(0), ..., f(count - 1) at the same time, each on its own thread.
template <class Function>
void on_threads(int count, const Function& f) {
  std::barrier start(count);
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (int thread = 0; thread < count; ++thread) {
    threads.emplace_back([&, thread] {
      start.arrive_and_wait();
      f(thread);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace fastact::testing

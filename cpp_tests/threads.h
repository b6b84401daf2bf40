// Threads that start together, for the tests of what several do at once.
#pragma once

#include <barrier>
#include <thread>
#include <vector>

namespace fastact::testing {

// f(0), ..., f(count - 1) at once, each on a thread of its own.
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

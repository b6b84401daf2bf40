// Measures the overhead of a call from C++ on 8 numbers, for each activation of the catalogue: for
// example fastact::selu and at::selu. The two take turns. Prints JSON: the minimum nanoseconds per
// call of all rounds that fit into SECONDS for each case.
//
//   fastact_call_overhead DEVICE SECONDS CALLS
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fastact/fastact.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <limits>
#include <string>

#include "ops/catalogue.h"

namespace {

constexpr int64_t kElements = 8;

struct Options {
  at::Device device = at::kCPU;
  double seconds = 0;
  int calls = 0;
};

// Does not wait for work queued on a GPU, but a block begins with an empty queue.
void wait_for(const at::Device& device) {
  if (device.is_cuda()) at::zeros({1}, device).item<float>();
}

template <class Call>
double nanoseconds(const Options& options, const at::Tensor& x, const Call& call) {
  at::Tensor mutable_x = x;
  wait_for(options.device);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < options.calls; ++i) call(mutable_x);
  const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - start;
  return passed.count() / options.calls;
}

class Printer {
 public:
  Printer() { std::cout << "["; }
  ~Printer() { std::cout << "\n]\n"; }
  Printer(const Printer&) = delete;
  Printer& operator=(const Printer&) = delete;

  void row(const char* op, const char* name, double ours, double peer) {
    std::cout << (first_ ? "\n" : ",\n") << R"( {"op": ")" << op << R"(", "case": ")" << name
              << R"(", "times": {"ours": )" << ours << R"(, "peer": )" << peer << "}}";
    first_ = false;
  }

 private:
  bool first_ = true;
};

// Measures one case. `input` makes the tensor of each block.
template <class Input, class Ours, class Peer>
void compare(Printer& printer, const Options& options, const char* op, const char* name,
             const Input& input, const Ours& ours, const Peer& peer) {
  double best_of_ours = std::numeric_limits<double>::infinity();
  double best_of_peer = best_of_ours;
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  // The first rounds warm up.
  for (int round = -3; round < 1 || std::chrono::steady_clock::now() < end; ++round) {
    const double a = nanoseconds(options, input(), ours);
    const double b = nanoseconds(options, input(), peer);
    if (round < 0) continue;
    best_of_ours = std::min(best_of_ours, a);
    best_of_peer = std::min(best_of_peer, b);
  }
  printer.row(op, name, best_of_ours, best_of_peer);
}

// The functions of one activation, if FastAct and PyTorch have one without required parameters.
// PyTorch's overload is chosen by the type of its argument.
template <class Functions>
void compare_all(Printer& printer, const Options& options) {
  const auto fresh = [&] { return at::ones({kElements}, options.device); };
  const auto leaf = [&] { return fresh().requires_grad_(); };
  const at::Tensor gradient = at::ones({kElements}, options.device);
  const auto round_trip = [&](const auto& function) {
    return [&function, &gradient](at::Tensor& x) {
      return torch::autograd::grad({function(x)}, {x}, {gradient});
    };
  };
  const char* op = Functions::kName;
  if constexpr (Functions::template comparable<at::Tensor>()) {
    const auto ours = [](at::Tensor& x) { return Functions::ours(x); };
    const auto peer = [](at::Tensor& x) { return Functions::peer(x); };
    {
      const c10::NoGradGuard no_grad;
      compare(printer, options, op, "forward", fresh, ours, peer);
    }
    compare(printer, options, op, "forward, with grad", leaf, ours, peer);
    compare(printer, options, op, "forward + backward", leaf, round_trip(ours), round_trip(peer));
  }
  if constexpr (Functions::template comparable_in_place<at::Tensor>()) {
    const auto ours = [](at::Tensor& x) { Functions::ours_in_place(x); };
    const auto peer = [](at::Tensor& x) { Functions::peer_in_place(x); };
    {
      const c10::NoGradGuard no_grad;
      compare(printer, options, op, "in-place", fresh, ours, peer);
    }
    compare(printer, options, op, "in-place, with grad", [&] { return leaf() * 1; }, ours, peer);
  }
}

#define FASTACT_FUNCTIONS(name, A)                               \
  struct A##Functions {                                          \
    static constexpr const char* kName = #name;                  \
    template <class T>                                           \
    static constexpr bool comparable() {                         \
      return requires(T x) { fastact::name(x), name(x); };       \
    }                                                            \
    template <class T>                                           \
    static constexpr bool comparable_in_place() {                \
      return requires(T x) { fastact::name##_(x), name##_(x); }; \
    }                                                            \
    template <class T>                                           \
    static T ours(const T& x) {                                  \
      return fastact::name(x);                                   \
    }                                                            \
    template <class T>                                           \
    static void ours_in_place(T& x) {                            \
      fastact::name##_(x);                                       \
    }                                                            \
    template <class T>                                           \
    static T peer(const T& x) {                                  \
      return name(x);                                            \
    }                                                            \
    template <class T>                                           \
    static void peer_in_place(T& x) {                            \
      name##_(x);                                                \
    }                                                            \
  };
FASTACT_ACTIVATIONS(FASTACT_FUNCTIONS)
#undef FASTACT_FUNCTIONS

int run(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "fastact_call_overhead: expected DEVICE SECONDS CALLS, but got " << argc - 1
              << " arguments\n";
    return 2;
  }
  const Options options{at::Device(std::string(argv[1])), std::stod(argv[2]), std::stoi(argv[3])};
  Printer printer;
#define FASTACT_COMPARE(name, A) compare_all<A##Functions>(printer, options);
  FASTACT_ACTIVATIONS(FASTACT_COMPARE)
#undef FASTACT_COMPARE
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "fastact_call_overhead: " << error.what() << '\n';
    return 1;
  }
}

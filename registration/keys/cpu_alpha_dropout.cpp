// The dispatch key CPU: SELU with alpha dropout (ops/cpu/alpha_dropout.h).
#include <algorithm>

#include "ops/cpu/alpha_dropout.h"
#include "registration/keys/alpha_dropout.h"
#include "registration/keys/cpu_memory.h"
#include "registration/keys/parallel.h"

namespace fastact {
namespace {

struct CpuAlphaDropout {
  static at::Tensor fresh_like(const at::Tensor& self) { return empty_like_on_cpu(self); }

  static void run(const Operator& op, double p, const at::Tensor& seed, const at::Tensor& out,
                  std::span<const at::Tensor> inputs) {
    const int64_t n = out.numel();
    if (n == 0) return;
    char* data[1 + 2] = {static_cast<char*>(out.data_ptr())};
    for (size_t i = 0; i < inputs.size(); ++i) {
      // Inputs are only read, but the array has one pointer type for inputs and output.
      data[1 + i] = static_cast<char*>(const_cast<void*>(inputs[i].const_data_ptr()));
    }
    const auto kernel = cpu::find_alpha_dropout_kernel(
        alpha_dropout_form(op), *engine_type(out.scalar_type()), cpu::selected_instruction_set());
    const auto key = static_cast<uint64_t>(*seed.const_data_ptr<int64_t>());
    constexpr int64_t kPart = 16 * cpu::kAlphaDropoutBlock;
    in_parallel((n + kPart - 1) / kPart, kPart, [&](int64_t part) {
      kernel(p, key, data, part * kPart, std::min(kPart, n - part * kPart));
    });
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(fastact, CPU, library) {
  implement<AlphaDropoutKernels<CpuAlphaDropout>>(library, c10::DispatchKey::CPU,
                                                  alpha_dropout_operators());
}

}  // namespace fastact

// The dispatch key CUDA: SELU with alpha dropout (ops/cuda/alpha_dropout.h).
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ops/cuda/alpha_dropout.h"
#include "ops/cuda/engine.h"
#include "registration/keys/alpha_dropout.h"

namespace fastact {
namespace {

struct CudaAlphaDropout {
  static at::Tensor fresh_like(const at::Tensor& self) { return at::empty_like(self); }

  static void run(const Operator& op, double p, const at::Tensor& seed, const at::Tensor& out,
                  std::span<const at::Tensor> inputs) {
    void* data[1 + 2] = {out.data_ptr()};
    for (size_t i = 0; i < inputs.size(); ++i) {
      // Inputs are only read, but the array has one pointer type for inputs and output.
      data[1 + i] = const_cast<void*>(inputs[i].const_data_ptr());
    }
    const c10::cuda::CUDAGuard guard(out.device());
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(out.device().index());
    const cudaError_t error =
        cuda::run_alpha_dropout(alpha_dropout_form(op), *engine_type(out.scalar_type()), p,
                                seed.const_data_ptr<int64_t>(), data, out.numel(), stream);
    TORCH_CHECK(error == cudaSuccess, "fastact::", op.name, ": ", cuda::describe_failure(error));
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(fastact, CUDA, library) {
  implement<AlphaDropoutKernels<CudaAlphaDropout>>(library, c10::DispatchKey::CUDA,
                                                   alpha_dropout_operators());
}

}  // namespace fastact

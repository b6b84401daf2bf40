// Plain kernels for comparison: one thread computes one element, with the functions of the C
// library. run.py builds them with nvcc and calls them with raw pointers.
#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr float kScale = 1.0507009873554804934F;
constexpr float kScaleAlpha = 1.7580993408473768599F;
constexpr unsigned kThreads = 256;

struct Selu {
  static __device__ float Value(float x) { return x > 0 ? kScale * x : kScaleAlpha * expm1f(x); }
  static __device__ float Gradient(float g, float x) {
    return g * (x > 0 ? kScale : kScaleAlpha * expf(x));
  }
};

struct Relu {
  static __device__ float Value(float x) { return x <= 0 ? 0.0F : x; }  // keeps a NaN
  static __device__ float Gradient(float g, float x) { return x <= 0 ? 0.0F : g; }
};

__device__ int64_t ElementOfThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

template <class Activation>
__global__ void Forward(const float* in, float* out, int64_t count) {
  const int64_t i = ElementOfThread();
  if (i < count) out[i] = Activation::Value(in[i]);
}

template <class Activation>
__global__ void Backward(const float* grad, const float* in, float* grad_in, int64_t count) {
  const int64_t i = ElementOfThread();
  if (i < count) grad_in[i] = Activation::Gradient(grad[i], in[i]);
}

unsigned Blocks(int64_t count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }

template <class Activation>
const char* RunForward(const float* in, float* out, int64_t count, cudaStream_t stream) {
  Forward<Activation><<<Blocks(count), kThreads, 0, stream>>>(in, out, count);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

template <class Activation>
const char* RunBackward(const float* grad, const float* in, float* grad_in, int64_t count,
                        cudaStream_t stream) {
  Backward<Activation><<<Blocks(count), kThreads, 0, stream>>>(grad, in, grad_in, count);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

// Each function returns null, or an error message.
extern "C" {

const char* plain_selu(const float* in, float* out, int64_t count, cudaStream_t stream) {
  return RunForward<Selu>(in, out, count, stream);
}

const char* plain_selu_backward(const float* grad, const float* in, float* grad_in, int64_t count,
                                cudaStream_t stream) {
  return RunBackward<Selu>(grad, in, grad_in, count, stream);
}

const char* plain_relu(const float* in, float* out, int64_t count, cudaStream_t stream) {
  return RunForward<Relu>(in, out, count, stream);
}

const char* plain_relu_backward(const float* grad, const float* in, float* grad_in, int64_t count,
                                cudaStream_t stream) {
  return RunBackward<Relu>(grad, in, grad_in, count, stream);
}

}  // extern "C"

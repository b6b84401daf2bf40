// Memory of a GPU, and a fixture that skips tests without a GPU.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace fastact::testing {

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t size) : size_(size) {
    const cudaError_t error = cudaMalloc(&data_, std::max<size_t>(size, 1));
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
  }
  explicit DeviceMemory(std::span<const char> content) : DeviceMemory(content.size()) {
    copy(data_, content.data(), size_, cudaMemcpyHostToDevice);
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(DeviceMemory&& other) noexcept
      : size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] char* data() const { return static_cast<char*>(data_); }
  [[nodiscard]] size_t size() const { return size_; }

  [[nodiscard]] std::vector<char> download() const {
    std::vector<char> content(size_);
    copy(content.data(), data_, size_, cudaMemcpyDeviceToHost);
    return content;
  }
  // Returns after the copy is complete. Otherwise cudaMemcpy() could still be copying pageable
  // memory, and streams that do not wait for the default stream would not see the data.
  static void copy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
    cudaError_t error = cudaMemcpy(to, from, size, kind);
    if (error == cudaSuccess) error = cudaStreamSynchronize(nullptr);
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
  }

 private:
  size_t size_;
  void* data_ = nullptr;
};

class CudaEnvironment : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no CUDA GPU: " << cudaGetErrorString(error);
    }
  }
};

}  // namespace fastact::testing

// A device's comparison of its approximate instructions with IEEE arithmetic: its findings, the
// detection of a planted difference, and the form that is used afterwards.
#if FASTACT_HAS_CUDA

#include "ops/cuda/self_check.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cpp_tests/ops/comparisons.h"
#include "cpp_tests/ops/device.h"
#include "cpp_tests/ops/support.h"
#include "cpp_tests/threads.h"

namespace fastact::testing {
namespace {

using cuda::Findings;
using cuda::SelfCheck;

constexpr KernelId kValue{derivative_form(0, false), DType::kBFloat16};
constexpr KernelId kSlope{derivative_form(1, false), DType::kBFloat16};
constexpr KernelId kFloatValue{kValueForm, DType::kFloat32};

// ---- Without a GPU

TEST(CudaMathTest, NamesOfTheEnvironmentVariable) {
  for (const char* const none : {static_cast<const char*>(nullptr), "", "auto"}) {
    EXPECT_FALSE(cuda::parse_math(none).has_value());
  }
  EXPECT_EQ(cuda::parse_math("ieee"), cuda::Math::kIeee);
  EXPECT_EQ(cuda::parse_math("fast"), cuda::Math::kFast);
  for (const char* const wrong : {"IEEE", "Fast", " fast", "0"}) {
    try {
      cuda::parse_math(wrong);
      ADD_FAILURE() << "no error for " << wrong;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(),
                "fastact: expected FASTACT_CUDA_MATH to be auto, ieee or fast, but got " +
                    std::string(wrong));
    }
  }
}

cudaError_t fail(cudaStream_t /*stream*/, Findings& /*findings*/) {
  return cudaErrorLaunchOutOfResources;
}

TEST(CudaMathTest, WithoutAComparisonIeeeServes) {
  SelfCheck check(&fail);
  EXPECT_EQ(check.describe(), "not compared yet");
  EXPECT_FALSE(check.fast_serves(0, kValue, 0, nullptr));
  EXPECT_FALSE(check.fast_serves(0, kSlope, 0, nullptr));
  EXPECT_NE(check.describe().find(": IEEE, as the comparison with it failed: cudaError"),
            std::string::npos)
      << check.describe();
  EXPECT_FALSE(check.fast_serves(0, kValue, 1 << 20, nullptr)) << "a device beyond all others";
}

TEST(CudaMathTest, WhatIsForcedServesWithoutAComparison) {
  for (const cuda::Math math : {cuda::Math::kIeee, cuda::Math::kFast}) {
    SelfCheck check(&fail, math);
    for (const int device : {0, 1, 100}) {
      EXPECT_EQ(check.fast_serves(0, kValue, device, nullptr), math == cuda::Math::kFast);
      EXPECT_EQ(check.fast_serves(0, kSlope, device, nullptr), math == cuda::Math::kFast);
    }
    EXPECT_EQ(check.describe(), math == cuda::Math::kFast ? "fast, as FASTACT_CUDA_MATH says"
                                                          : "IEEE, as FASTACT_CUDA_MATH says");
  }
}

TEST(CudaMathTest, OnlySmoothFunctionsHaveAFastForm) {
  const std::set<std::string_view> piecewise = {
      "relu",        "leaky_relu", "relu6",      "hardtanh",     "threshold", "hardswish",
      "hardsigmoid", "softshrink", "hardshrink", "squared_relu", "softsign"};
  for (const KernelCase& kernel : all_kernels()) {
    const bool fast = cuda::find_kernel(kernel.activation, kernel.id, cuda::Math::kFast) !=
                      cuda::find_kernel(kernel.activation, kernel.id, cuda::Math::kIeee);
    if (kernel.id.from_result || kernel.id.dtype == DType::kFloat64 ||
        piecewise.contains(kernel.info().name)) {
      EXPECT_FALSE(fast) << kernel.name();
    } else if (kernel.info().name == "silu") {
      // Its first derivative is computed in segments.
      EXPECT_EQ(fast, kernel.id.order != 1 || kernel.id.dtype != DType::kFloat32) << kernel.name();
    }
  }
}

// ---- With a GPU

class CudaSelfCheckTest : public CudaEnvironment {
 protected:
  void SetUp() override {
    CudaEnvironment::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    comparisons = 0;
  }
  void TearDown() override {
    if (IsSkipped()) return;
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }

  void begin_capture(cudaStreamCaptureMode mode) const {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
  }
  void end_capture() const {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    cudaGraphDestroy(graph);
  }

  // compare_all(), with a count of the calls.
  static cudaError_t counted(cudaStream_t stream, Findings& findings) {
    ++comparisons;
    return cuda::compare_all(stream, findings);
  }

  inline static std::atomic<int> comparisons;
  cudaStream_t stream_ = nullptr;
};

// The documentation promises this for compute capability 9.0. On other GPUs, using IEEE arithmetic
// is not a fault.
TEST_F(CudaSelfCheckTest, NothingDiffersOnHopper) {
  int major = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  if (major != 9) GTEST_SKIP() << "compute capability " << major;
  Findings findings;
  ASSERT_EQ(cuda::compare_all(stream_, findings), cudaSuccess);
  EXPECT_EQ(findings.differing, 0);
  EXPECT_EQ(findings.differences, 0);
  EXPECT_EQ((findings.results - (uint64_t{12} << 23)) % 0x20000, 0);
}

// Every significand recurs with every exponent, so any difference also occurs below 2^11.
TEST_F(CudaSelfCheckTest, EveryReciprocalOfTheContract) {
  SelfCheck check(&cuda::compare_all);
  Findings findings;
  ASSERT_EQ(compare_every_reciprocal(stream_, findings), cudaSuccess);
  EXPECT_EQ(findings.results, uint64_t{61} << 23);
  EXPECT_EQ(findings.differences == 0, check.fast_serves(0, kSlope, 0, stream_))
      << findings.differences << " differ";
}

TEST_F(CudaSelfCheckTest, TakesLessThanFiveMilliseconds) {
  Findings findings;
  ASSERT_EQ(cuda::compare_all(stream_, findings), cudaSuccess);
  const auto start = std::chrono::steady_clock::now();
  SelfCheck check(&cuda::compare_all);
  check.fast_serves(0, kValue, 0, nullptr);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  RecordProperty("milliseconds", std::to_string(time.count()));
  EXPECT_LT(time.count(), 5.0);
}

TEST_F(CudaSelfCheckTest, OnceForADevice) {
  SelfCheck check(&counted);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(check.fast_serves(0, kValue, 0, stream_));
  EXPECT_EQ(comparisons, 1);
  // A second device has its own findings. It need not exist, because the current device compares.
  EXPECT_TRUE(check.fast_serves(0, kValue, 1, stream_));
  EXPECT_EQ(comparisons, 2);
  cudaGetLastError();
  EXPECT_NE(check.describe().find("device 0 ("), std::string::npos) << check.describe();
  EXPECT_NE(check.describe().find("): fast, as all "), std::string::npos) << check.describe();
}

TEST_F(CudaSelfCheckTest, OnceForManyThreads) {
  SelfCheck check(&counted);
  std::atomic<int> served = 0;
  on_threads(16,
             [&](int /*thread*/) { served += check.fast_serves(0, kValue, 0, nullptr) ? 1 : 0; });
  EXPECT_EQ(comparisons, 1);
  EXPECT_EQ(served, 16);
}

// A planted difference is found, and only the affected forms stop being fast.
TEST_F(CudaSelfCheckTest, AReciprocalThatDiffers) {
  SelfCheck check(&compare_unrefined_reciprocals);
  EXPECT_FALSE(check.fast_serves(0, kValue, 0, stream_));
  EXPECT_FALSE(check.fast_serves(0, kSlope, 0, stream_));
  EXPECT_NE(check.describe().find("): IEEE for reciprocals, as not all 8388608 results but "),
            std::string::npos)
      << check.describe();
}

TEST_F(CudaSelfCheckTest, OneWrongBit) {
  Findings findings;
  ASSERT_EQ(compare_with_one_wrong_bit(stream_, findings), cudaSuccess);
  EXPECT_EQ(findings.differences, 1);
  SelfCheck check(&compare_with_one_wrong_bit);
  EXPECT_FALSE(check.fast_serves(0, kValue, 0, stream_));
  EXPECT_TRUE(check.fast_serves(0, kSlope, 0, stream_));
  EXPECT_TRUE(check.fast_serves(0, kFloatValue, 0, stream_));
  EXPECT_TRUE(check.fast_serves(1, kValue, 0, stream_));
  EXPECT_NE(check.describe().find(" bfloat16, as not all 65536 results but 65535 are IEEE's ("),
            std::string::npos)
      << check.describe();
}

TEST_F(CudaSelfCheckTest, NotInACapture) {
  SelfCheck check(&counted);
  for (const cudaStreamCaptureMode mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    begin_capture(mode);
    EXPECT_FALSE(check.fast_serves(0, kValue, 0, stream_));
    end_capture();
  }
  EXPECT_EQ(comparisons, 0);
  EXPECT_EQ(check.describe(), "not compared yet");
  EXPECT_TRUE(check.fast_serves(0, kValue, 0, stream_));
  EXPECT_EQ(comparisons, 1);
  begin_capture(cudaStreamCaptureModeGlobal);
  EXPECT_TRUE(check.fast_serves(0, kValue, 0, stream_)) << "found before";
  end_capture();
}

// The capture of another stream forbids many calls to this or all threads. The comparison must not
// disturb it.
TEST_F(CudaSelfCheckTest, BesideACapture) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  for (const bool same_thread : {true, false}) {
    SelfCheck check(&counted);
    bool served = false;
    begin_capture(cudaStreamCaptureModeGlobal);
    const auto use = [&] { served = check.fast_serves(0, kValue, 0, other); };
    if (same_thread) {
      use();
    } else {
      std::thread(use).join();
    }
    end_capture();
    EXPECT_TRUE(served) << check.describe();
  }
  cudaStreamDestroy(other);
}

// The legacy default stream cannot be queried while another stream is being captured.
TEST_F(CudaSelfCheckTest, TheDefaultStreamBesideACapture) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  SelfCheck check(&counted);
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_FALSE(check.fast_serves(0, kValue, 0, nullptr));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(blocking, &graph);  // CUDA decides whether the query ends the capture
  cudaGetLastError();
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaStreamDestroy(blocking);
  EXPECT_TRUE(check.fast_serves(0, kValue, 0, nullptr));
}

}  // namespace
}  // namespace fastact::testing

#endif  // FASTACT_HAS_CUDA

#include "ops/cuda/self_check.h"

#include <pthread.h>

#include <chrono>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <string_view>

#include "ops/catalogue.h"
#include "ops/printable.h"

namespace fastact::cuda {
namespace {

#define FASTACT_ONE(name, Type) +1
static_assert(0 FASTACT_FAMILIES(FASTACT_ONE) <= kMaxFamilies,
              "SelfCheck has bits for 31 families of forms, but ops/catalogue.h lists more: make "
              "the claims in ops/cuda/self_check.h wider than 64 bits");
#undef FASTACT_ONE

// Held while a device compares and while findings are read. All SelfCheck objects share it, so that
// one handler can acquire it before fork().
constinit std::mutex comparing;

// Makes fork() wait for a comparison in another thread. The child would otherwise inherit a lock
// that is never released.
void wait_before_forks() {
  static const int registered = pthread_atfork([] { comparing.lock(); }, [] { comparing.unlock(); },
                                               [] { comparing.unlock(); });
  (void)registered;
}

// A separate stream, which waits for no other.
class Stream {
 public:
  Stream() : error_(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)) {}
  ~Stream() {
    if (error_ == cudaSuccess) cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] cudaError_t error() const { return error_; }
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaError_t error_;
};

// While this object exists, captures on other threads do not restrict this thread, and are not
// disturbed by it.
class BesideCaptures {
 public:
  BesideCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~BesideCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &status);
  // The default stream reports no status while another stream is being captured.
  if (error == cudaErrorStreamCaptureImplicit) cudaGetLastError();
  return error == cudaErrorStreamCaptureImplicit || status != cudaStreamCaptureStatusNone;
}

std::string name_of(int device) {
  int major = 0;
  int minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return "device " + std::to_string(device) + " (compute capability " + std::to_string(major) +
         "." + std::to_string(minor) + ")";
}

// Returns a list such as "reciprocals, silu bfloat16".
std::string names_of_claims(uint64_t claims) {
  std::string names;
  const auto add = [&](int claim, const std::string& name) {
    if ((claims >> claim & 1) != 0) names += (names.empty() ? "" : ", ") + name;
  };
  add(kReciprocalClaim, "reciprocals");
  for (int i = 0; i < static_cast<int>(families().size()); ++i) {
    const std::string name(families()[i].name);
    add(approximation_claim(i, DType::kBFloat16), name + " bfloat16");
    add(approximation_claim(i, DType::kFloat16), name + " float16");
  }
  return names;
}

}  // namespace

std::optional<Math> parse_math(const char* name) {
  const std::string_view wanted = name == nullptr ? "" : name;
  if (wanted.empty() || wanted == "auto") return std::nullopt;
  if (wanted == "ieee") return Math::kIeee;
  if (wanted == "fast") return Math::kFast;
  throw std::invalid_argument(
      "fastact: expected FASTACT_CUDA_MATH to be auto, ieee or fast, but got " + printable(wanted));
}

SelfCheck::SelfCheck(Comparison compare, std::optional<Math> forced)
    : compare_(compare), forced_(forced) {
  wait_before_forks();
  if (!forced.has_value()) return;
  for (std::atomic<uint64_t>& device : devices_) {
    device = kChecked | (*forced == Math::kFast ? 0 : kChecked - 1);
  }
}

std::string SelfCheck::describe() const {
  if (forced_.has_value()) {
    return std::string(*forced_ == Math::kIeee ? "IEEE" : "fast") + ", as FASTACT_CUDA_MATH says";
  }
  const std::lock_guard lock(comparing);
  std::string text;
  for (const auto& [device, description] : descriptions_) {
    text += (text.empty() ? "" : "; ") + description;
  }
  return text.empty() ? "not compared yet" : text;
}

uint64_t SelfCheck::check(int device, cudaStream_t stream) {
  if (is_capturing(stream)) return 0;
  const std::lock_guard lock(comparing);
  uint64_t state = devices_[device].load(std::memory_order_relaxed);
  if (state == 0) {  // no other thread was first
    state = kChecked | compare_on(device);
    devices_[device].store(state, std::memory_order_release);
  }
  return state;
}

// Returns the claims that do not hold on the current device.
uint64_t SelfCheck::compare_on(int device) {
  const auto start = std::chrono::steady_clock::now();
  const BesideCaptures beside;
  const Stream stream;
  Findings findings;
  cudaError_t error = stream.error();
  if (error == cudaSuccess) error = compare_(stream.get(), findings);
  std::string& text = descriptions_[device];
  text = name_of(device) + ": ";
  if (error != cudaSuccess) {
    cudaGetLastError();
    text += std::string("IEEE, as the comparison with it failed: ") + cudaGetErrorName(error);
    return kChecked - 1;
  }
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  char milliseconds[32];
  std::snprintf(milliseconds, sizeof(milliseconds), "%.1f ms", time.count());
  if (findings.differing == 0) {
    text += "fast, as all " + std::to_string(findings.results) + " results";
  } else {
    text += "IEEE for " + names_of_claims(findings.differing) + ", as not all " +
            std::to_string(findings.results) + " results but " +
            std::to_string(findings.results - findings.differences);
  }
  text += std::string(" are IEEE's (") + milliseconds + ")";
  return findings.differing;
}

}  // namespace fastact::cuda

// Decides which arithmetic each GPU uses. Once per process, a device compares its approximate
// instructions with IEEE arithmetic, before it uses kernels that contain them.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "ops/cuda/engine.h"
#include "ops/forms/derivative.h"

namespace fastact::cuda {

// Parses FASTACT_CUDA_MATH. Returns the arithmetic for "ieee" and "fast". Returns nothing for
// "auto", "" and null, so that each device's comparison decides. Throws std::invalid_argument, with
// a message for the user, for any other name.
std::optional<Math> parse_math(const char* name);

// The result of a comparison. Each bit of `differing` is a claim that does not hold: that
// reciprocal() is the IEEE one, or that an approximate_value() is f.
struct Findings {
  uint64_t differing = 0;
  uint64_t results = 0;      // compared
  uint64_t differences = 0;  // among the results
};

inline constexpr int kReciprocalClaim = 0;
constexpr int approximation_claim(int family, DType dtype) {
  return 1 + 2 * family + (dtype == DType::kFloat16 ? 1 : 0);
}

// The bit of a device's state that is set once the device has compared. The claims use lower bits.
inline constexpr int kCheckedBit = 63;
// The number of families whose claims have bits.
inline constexpr int kMaxFamilies = 31;
static_assert(approximation_claim(kMaxFamilies - 1, DType::kFloat16) < kCheckedBit &&
              approximation_claim(kMaxFamilies, DType::kFloat16) >= kCheckedBit);

// Runs on the current device, on a stream of its own, and waits for it.
using Comparison = cudaError_t (*)(cudaStream_t stream, Findings& findings);

class SelfCheck {
 public:
  // `forced` is used without a comparison.
  explicit SelfCheck(Comparison compare, std::optional<Math> forced = std::nullopt);

  // Returns true if a kernel's fast form is used on `device`, which is the current one. The first
  // call for a device makes the comparison. While `stream` is being captured, no comparison is
  // possible; a later call makes it. Until then, and if the comparison fails, IEEE arithmetic is
  // used.
  bool fast_serves(int family, const KernelId& id, int device, cudaStream_t stream) {
    return all_hold(claims_of(family, id), device, stream);
  }

  // The same for a kernel whose fast form uses only reciprocal().
  bool reciprocals_serve(int device, cudaStream_t stream) {
    return all_hold(uint64_t{1} << kReciprocalClaim, device, stream);
  }

  // Returns the findings, as in "device 0 (compute capability 9.0): fast, ...". Touches no device.
  std::string describe() const;

 private:
  static constexpr int kMaxDevices = 128;
  static constexpr uint64_t kChecked = uint64_t{1} << kCheckedBit;

  static uint64_t claims_of(int family, const KernelId& id) {
    uint64_t claims = uint64_t{1} << kReciprocalClaim;
    if (id.form == kValueForm && (id.dtype == DType::kBFloat16 || id.dtype == DType::kFloat16))
      claims |= uint64_t{1} << approximation_claim(family, id.dtype);
    return claims;
  }

  bool all_hold(uint64_t claims, int device, cudaStream_t stream) {
    if (device >= kMaxDevices) return false;
    uint64_t state = devices_[device].load(std::memory_order_acquire);
    if (state == kChecked) return true;
    if ((state & kChecked) == 0) state = check(device, stream);
    return (state & kChecked) != 0 && (state & claims) == 0;
  }

  uint64_t check(int device, cudaStream_t stream);
  uint64_t compare_on(int device);

  Comparison compare_;
  std::optional<Math> forced_;
  // For each device: kChecked and the claims that do not hold, or 0.
  std::array<std::atomic<uint64_t>, kMaxDevices> devices_ = {};
  std::map<int, std::string> descriptions_;
};

// Compares everything that has a fast form.
cudaError_t compare_all(cudaStream_t stream, Findings& findings);

}  // namespace fastact::cuda

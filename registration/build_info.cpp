#include "registration/build_info.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/version.h>

#include <string>
#include <vector>

#include "fastact/fastact.h"
#include "ops/cpu/engine.h"
#include "registration/build_config.h"
#include "registration/torch_symbols.h"

#if FASTACT_CUDA
#include "ops/cuda/engine.h"
#endif

namespace fastact {

namespace {

std::string find_mismatch() {
  // The version that torch reports. Its first two bytes are major and minor.
  const uint64_t version = aoti_torch_abi_version();
  const auto major = static_cast<int>(version >> 56);
  const auto minor = static_cast<int>((version >> 48) & 0xff);
  const std::string expected = "fastact: expected torch " + std::to_string(TORCH_VERSION_MAJOR) +
                               "." + std::to_string(TORCH_VERSION_MINOR) +
                               ", for which this library was built, but got ";
  if (major != TORCH_VERSION_MAJOR || minor != TORCH_VERSION_MINOR)
    return expected + "torch " + std::to_string(major) + "." + std::to_string(minor);
  const std::vector<std::string> missing = missing_torch_symbols();
  if (missing.empty()) return "";
  return expected + "one without " + std::to_string(missing.size()) +
         " of the functions that it calls, such as " + missing.front();
}

}  // namespace

const std::string& torch_mismatch() {
  static const std::string mismatch = find_mismatch();
  return mismatch;
}

std::string build_info() {
  std::string info =
      "version: " FASTACT_VERSION "\nrevision: " FASTACT_REVISION "\ntorch: " TORCH_VERSION;
#if FASTACT_CUDA
  info += "\ncuda: " FASTACT_CUDA_VERSION "\ncuda architectures: " + cuda::architectures();
  info += "\ncuda arithmetic in use: ";
  try {
    info += cuda::math_in_use();
  } catch (const std::invalid_argument& error) {
    info += std::string("none (") + error.what() + ")";
  }
#else
  info += "\ncuda: none";
#endif
  info += "\ncpu instruction sets:";
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    info.append(" ").append(cpu::name_of(set));
  }
  info += "\ncpu instruction set in use: ";
  try {
    info += cpu::name_of(cpu::selected_instruction_set());
  } catch (const std::invalid_argument& error) {
    info += std::string("none (") + error.what() + ")";
  }
#if FASTACT_FAST_MATH
  info += "\nfast math: on (results are not the documented ones)";
#endif
  return info;
}

}  // namespace fastact

#include "registration/aten/override.h"

#include <c10/util/Exception.h>

#include <iostream>
#include <string_view>
#include <vector>

#include "fastact/fastact.h"
#include "fastact/override.h"
#include "registration/build_config.h"
#include "registration/device_kernels.h"
#include "registration/torch_symbols.h"

namespace fastact {
namespace aten {
namespace {

// Written while libraries are loaded, by one thread at a time.
std::vector<std::string>& kernels() {
  static auto& list = *new std::vector<std::string>();
  return list;
}

std::string problem() {
  constexpr std::string_view kBuiltAs =
      "version: " FASTACT_VERSION "\nrevision: " FASTACT_REVISION "\n";
  if (const std::string found = build_info(); !found.starts_with(kBuiltAs)) {
    return "fastact: expected libfastact.so of version " FASTACT_VERSION
           " (revision " FASTACT_REVISION
           "), with which libfastact_aten.so was built, but this process has loaded another one: " +
           found.substr(0, found.find("\ntorch:")).replace(found.find('\n'), 1, ", ");
  }
  const std::vector<std::string> missing = missing_torch_symbols();
  if (missing.empty()) return "";
  return "fastact: expected torch to have all functions that libfastact_aten.so calls, but got one "
         "without " +
         std::to_string(missing.size()) + " of them, such as " + missing.front();
}

class Quiet : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

}  // namespace

bool is_usable() {
  static const bool usable = [] {
    // In another version of torch, libfastact.so has already reported the mismatch.
    if (find_operator("_prelu") == nullptr) return false;
    const std::string sentence = problem();
    if (sentence.empty()) return true;
    std::cerr << sentence << std::endl;  // NOLINT(performance-avoid-endl)
    return false;
  }();
  return usable;
}

void register_quietly(torch::Library& library, void (*add)(torch::Library& library)) {
  if (!is_usable()) return;
  Quiet quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  // Torch warns about the first override in a process only. Without this, FastAct's override would
  // suppress the warning about a later one by other code.
  const c10::WarningUtils::WarnAlways always;
  add(library);
}

void list_kernel(std::string name, c10::DispatchKey key) {
  kernels().push_back("aten::" + std::move(name) + " [" + c10::toString(key) + "]");
}

}  // namespace aten

void begin_aten_override() { aten::detail::overrides.fetch_add(1, std::memory_order_relaxed); }

void end_aten_override() {
  int before = aten::detail::overrides.load(std::memory_order_relaxed);
  do {
    TORCH_CHECK(before > 0,
                "fastact: expected an override that has begun, but there is none to end");
  } while (!aten::detail::overrides.compare_exchange_weak(before, before - 1,
                                                          std::memory_order_relaxed));
}

bool aten_is_overridden() { return aten::is_overriding(); }

std::vector<std::string> overridden_aten_kernels() { return aten::kernels(); }

// A separate namespace, because these are not operators on tensors.
TORCH_LIBRARY(fastact_aten, library) {
  if (!aten::is_usable()) return;
  library.def("begin() -> ()", &begin_aten_override);
  library.def("end() -> ()", &end_aten_override);
  library.def("is_overriding() -> bool", &aten_is_overridden);
  library.def("kernels() -> str[]", &overridden_aten_kernels);
  begin_aten_override();
}

}  // namespace fastact

// libfastact_aten.so replaces ATen's kernels with FastAct's, for programs that do not call FastAct.
//
// Loading the library by linking FastAct::aten, dlopen() or LD_PRELOAD begins an override that
// lasts until the process ends. The functions here are for programs that need finer control. All
// are thread-safe. An override applies to all threads.
// docs/guides/existing-models.md lists the replaced operators.
#pragma once

#include <fastact/export.h>

#include <string>
#include <vector>

namespace fastact {

// Begins an override. Overrides nest: ATen's kernels are restored after as many ends as begins,
// including the begin at loading.
FASTACT_API void begin_aten_override();
// Ends an override. Throws c10::Error if no override has begun.
FASTACT_API void end_aten_override();

FASTACT_API bool aten_is_overridden();

// Returns entries such as "aten::silu.out [CPU]": each ATen kernel for which a FastAct kernel is
// registered, whether or not an override is active. Empty if torch is not the version that the
// library was built for.
FASTACT_API std::vector<std::string> overridden_aten_kernels();

// An override for the duration of a scope.
class AtenOverride {
 public:
  AtenOverride() { begin_aten_override(); }
  ~AtenOverride() { end_aten_override(); }
  AtenOverride(const AtenOverride&) = delete;
  AtenOverride& operator=(const AtenOverride&) = delete;
};

}  // namespace fastact

// libfastact_aten.so: FastAct's kernels in the place of ATen's, for programs that do not know
// FastAct.
//
// Loading the library, by linking FastAct::aten, dlopen() or LD_PRELOAD, begins an override that
// lasts until the process ends. The functions here are for programs that want less. All are
// thread-safe; an override holds for every thread. docs/override.md lists what is replaced.
#pragma once

#include <fastact/export.h>

#include <string>
#include <vector>

namespace fastact {

// Calls nest: ATen's kernels are back after as many ends as there were begins, the one of loading
// included.
FASTACT_API void begin_aten_override();
// c10::Error if no override has begun.
FASTACT_API void end_aten_override();

FASTACT_API bool aten_is_overridden();

// "aten::silu.out [CPU]": each kernel of ATen's in whose place one of FastAct's is registered,
// whether an override is going on or not. Empty in another torch than the library was built for.
FASTACT_API std::vector<std::string> overridden_aten_kernels();

// An override for the length of a block.
class AtenOverride {
 public:
  AtenOverride() { begin_aten_override(); }
  ~AtenOverride() { end_aten_override(); }
  AtenOverride(const AtenOverride&) = delete;
  AtenOverride& operator=(const AtenOverride&) = delete;
};

}  // namespace fastact

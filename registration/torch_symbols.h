// The references to torch, which tools/weaken_torch_symbols.cpp makes weak. A missing symbol is
// null, and a call to it would jump to address 0.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fastact {

// Returns true if a mangled name is one of torch's C++ names. Excludes initialisers of thread-local
// variables, which may be absent.
inline bool is_torch_symbol(std::string_view name) {
  if (name.starts_with("_ZTH")) return false;
  for (const std::string_view part : {"5torch", "3c10", "2at"}) {
    if (name.starts_with("_Z") && name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

// Returns the mangled names that this library refers to and that no library it is linked to
// defines.
std::vector<std::string> missing_torch_symbols();

}  // namespace fastact

// The references to torch, which tools/weaken_torch_symbols.cpp makes weak: what is missing stays
// null, and a call to it would jump to address 0.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fastact {

// Whether a mangled name is one of torch's C++ names, other than a thread-local variable's
// initialiser, which there need not be.
inline bool is_torch_symbol(std::string_view name) {
  if (name.starts_with("_ZTH")) return false;
  for (const std::string_view part : {"5torch", "3c10", "2at"}) {
    if (name.starts_with("_Z") && name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

// The mangled names to which this library refers and which no library that it was linked to has.
std::vector<std::string> missing_torch_symbols();

}  // namespace fastact

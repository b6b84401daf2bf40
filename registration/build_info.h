// What the library was built for, and whether it was loaded into that.
#pragma once

#include <string>

namespace fastact {

// Empty if the torch in this process is of the version that the library was built for (major and
// minor); else the sentence that says so.
std::string torch_mismatch();

}  // namespace fastact

// What the library was built for, and whether it was loaded into that.
#pragma once

#include <string>

namespace fastact {

// Empty if the torch in this process is of the version that the library was built for (major and
// minor) and has all that the library calls; else the sentence that says so.
const std::string& torch_mismatch();

}  // namespace fastact

// The torch version that the library was built for, and whether the process uses that version.
#pragma once

#include <string>

namespace fastact {

// Returns an empty string if the torch in this process has the major and minor version that the
// library was built for and defines everything that the library calls. Otherwise returns an error
// message.
const std::string& torch_mismatch();

}  // namespace fastact

// Makes text from outside the program, such as the value of an environment variable, safe to print.
#pragma once

#include <string>
#include <string_view>

namespace fastact {

// Returns the text with every byte that is not a printable ASCII character replaced by \xNN. The
// result stays on one line, and Python can decode it.
inline std::string printable(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      result += c;
    } else {
      result.append("\\x") += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    }
  }
  return result;
}

}  // namespace fastact

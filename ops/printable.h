// Text from outside of the program, such as an environment variable's value, in a message.
#pragma once

#include <string>
#include <string_view>

namespace fastact {

// The text with every byte that is no printable ASCII character as \xNN: the message is one line,
// and a Python exception can decode it.
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

// Declares what ATen/functorch/Interpreter.h names of nlohmann::json. Torch's wheels ship that header but not the JSON
// library it includes; the functions that would need a definition are inline and never called here.
#pragma once

#include <string>

namespace nlohmann {

struct json {
  json();
  template <class T>
  json(const T& value);
  static json parse(const std::string& text);
  std::string dump() const;
  template <class T>
  T get() const;
};

}  // namespace nlohmann

// The library `fastact`: the operators' schemas.
#include "registration/jit/library.h"

#include <torch/library.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "fastact/fastact.h"
#include "registration/build_info.h"
#include "registration/composites/composites.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

// Returns text such as "(Tensor grad_output, Tensor self, float alpha=1.0, bool is_result=False",
// without the closing parenthesis.
std::string arguments(const Operator& op) {
  std::string text;
  for (const Input& input : op.inputs)
    text.append(text.empty() ? "(" : ", ")
        .append(input.optional ? "Tensor? " : "Tensor ")
        .append(input.name);
  text += parameter_arguments(op);
  return op.takes_is_result() ? text + ", bool is_result=False" : text;
}

// Torch 2.11 has no tag for out variants; later versions do.
template <class Tag>
void tag_out_variant(std::vector<Tag>& tags) {
  if constexpr (requires { Tag::out_variant; }) tags.push_back(Tag::out_variant);
}

void define(torch::Library& library, const std::string& schema, bool is_out = false) {
  std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag, at::Tag::pointwise,
                               // Compilers may pass inputs with any strides, without copying them.
                               at::Tag::flexible_layout};
  if (is_out) tag_out_variant(tags);
  library.def(schema.c_str(), std::as_const(tags));
}

void define(torch::Library& library, const Operator& op) {
  define(library, op.name + arguments(op) + ") -> Tensor");
  if (op.out != nullptr) {
    const std::string out = std::string(", *, Tensor(a!) ") + op.out + ") -> Tensor(a!)";
    define(library, out_name(op) + arguments(op) + out, /*is_out=*/true);
  }
  if (op.has_in_place)
    define(library,
           in_place_name(op) + "(Tensor(a!) self" + parameter_arguments(op) + ") -> Tensor(a!)");
}

}  // namespace

TORCH_LIBRARY(fastact, library) {
  if (const std::string& mismatch = torch_mismatch(); !mismatch.empty()) {
    // Not written by torch's logging, which may be incompatible as well.
    std::cerr << mismatch << std::endl;  // NOLINT(performance-avoid-endl)
    return;
  }
  for (const Operator* op : operators()) define(library, *op);
  for (const Composites& composites : all_composites()) composites.define(library);
  define_optimizer(library);
  library.def("build_info() -> str", [] { return build_info(); });
}

}  // namespace fastact

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
        .append(input.kind == InputKind::kOptional ? "Tensor? " : "Tensor ")
        .append(input.name);
  text += parameter_arguments(op);
  if (op.has_rows) text += ", int dim";
  if (op.takes_is_result()) text += ", bool is_result=False";
  if (op.takes_output_mask) {
    // DTensor takes a list among the positional arguments only.
    text += c10::str(op.has_rows ? ", " : ", *, ", "bool[", op.results, "] output_mask");
  }
  return text;
}

// Returns "Tensor", or text such as "(Tensor, Tensor)".
std::string results(const Operator& op) {
  std::string text = "Tensor";
  for (int i = 1; i < op.results; ++i) text += ", Tensor";
  return op.results == 1 ? text : "(" + text + ")";
}

// Torch 2.11 has no tag for out variants; later versions do.
template <class Tag>
void tag_out_variant(std::vector<Tag>& tags) {
  if constexpr (requires { Tag::out_variant; }) tags.push_back(Tag::out_variant);
}

void define(torch::Library& library, const Operator& op) {
  std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  if (op.is_elementwise()) {
    tags.push_back(at::Tag::pointwise);
    // Compilers may pass inputs with any strides, without copying them.
    tags.push_back(at::Tag::flexible_layout);
  }
  library.def((op.name + arguments(op) + ") -> " + results(op)).c_str(), std::as_const(tags));
  if (op.has_in_place) {
    library.def(
        (in_place_name(op) + "(Tensor(a!) self" + parameter_arguments(op) + ") -> Tensor(a!)")
            .c_str(),
        std::as_const(tags));
  }
  if (op.out != nullptr) {
    tag_out_variant(tags);
    library.def(
        (out_name(op) + arguments(op) + ", *, Tensor(a!) " + op.out + ") -> Tensor(a!)").c_str(),
        std::as_const(tags));
  }
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

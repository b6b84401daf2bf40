// fused_<activation>, which gives scale and bias a shape that broadcasts, and <activation>_and_mul
// and glu, which take the two halves of one tensor. All call the elementwise _fused_<activation>.
#include "registration/operators/fused.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/split_with_sizes.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "registration/composites/composites.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

using Optional = const std::optional<at::Tensor>&;

std::string fused_name(const Operator& op) { return op.name.substr(1); }
std::string packed_name(const Operator& op) {
  return std::string(op.activation->name) + "_and_mul";
}

// Gives scale or bias a shape in which a 1-D vector varies along dimension `dim` of self.
at::Tensor along(const Operator& op, int input, const at::Tensor& vector, const at::Tensor& self,
                 int64_t dim) {
  const int64_t rank = self.dim();
  const int64_t last = std::max<int64_t>(rank, 1) - 1;
  TORCH_CHECK_INDEX(-last - 1 <= dim && dim <= last, "fastact::", fused_name(op),
                    ": expected dim to be from ", -last - 1, " to ", last, ", but got ", dim);
  const int64_t position = dim < 0 ? dim + last + 1 : dim;
  if (!vector.defined() || vector.dim() != 1 || position == last) return vector;
  const c10::SymInt size = vector.sym_numel();
  TORCH_CHECK(size == 1 || self.sym_size(position) == 1 || size == self.sym_size(position),
              "fastact::", fused_name(op), ": expected ", op.inputs[input].name,
              " to have 1 element or ", self.sym_size(position),
              ", as many as self has along dimension ", position, ", but got ", size);
  c10::SymDimVector shape(rank - position, 1);
  shape[0] = size;
  return vector.reshape_symint(shape);
}

// The arguments of the elementwise operator.
struct ElementwiseCall {
  ElementwiseCall(const Operator& op, const at::Tensor& self,
                  const std::optional<at::Tensor>& scale, const std::optional<at::Tensor>& bias,
                  const std::optional<at::Tensor>& residual, const std::optional<at::Tensor>& gate,
                  int64_t dim)
      : scale_along(along(op, kScale, tensor_of(scale), self, dim)),
        bias_along(along(op, kBias, tensor_of(bias), self, dim)),
        tensors{&self, &scale_along, &bias_along, &tensor_of(residual), &tensor_of(gate)} {}

  at::Tensor scale_along;
  at::Tensor bias_along;
  const at::Tensor* tensors[kFusedInputs];
};

// The same for the halves of a dimension of self. The first or the second half is the gate of a
// gated unit, which is the operand of the activation. The halves are views; their backward pass is
// one concatenation.
struct HalvesCall {
  HalvesCall(const std::string& name, const at::Tensor& self, int64_t dim, bool gate_first) {
    const int64_t rank = self.dim();
    TORCH_CHECK(rank > 0, "fastact::", name,
                ": expected self to have a dimension of two halves, but got a 0-D tensor");
    TORCH_CHECK_INDEX(-rank <= dim && dim < rank, "fastact::", name, ": expected dim to be from ",
                      -rank, " to ", rank - 1, ", but got ", dim);
    const c10::SymInt size = self.sym_size(dim);
    TORCH_CHECK(size % 2 == 0, "fastact::", name, ": expected self's dimension ", dim,
                " to have an even size, but got ", size);
    halves = at::split_with_sizes_symint(self, {size / 2, size / 2}, dim);
    tensors[kSelf] = &halves[gate_first ? 0 : 1];
    tensors[kGate] = &halves[gate_first ? 1 : 0];
  }

  std::vector<at::Tensor> halves;
  const at::Tensor* tensors[kFusedInputs] = {nullptr, &absent_tensor(), &absent_tensor(),
                                             &absent_tensor(), nullptr};
};

// Checks an in-place call. It does not resize self, and it overwrites self, from which a backward
// pass would recompute z.
void check_in_place(const Operator& op, TensorPointers tensors) {
  const c10::SymIntArrayRef shape = tensors[kSelf]->sym_sizes();
  for (int i = 0; i < kFusedInputs; ++i) {
    if (!tensors[i]->defined()) continue;
    TORCH_CHECK(at::is_expandable_to(tensors[i]->sym_sizes(), shape), "fastact::", fused_name(op),
                "_: expected ", op.inputs[i].name, " to broadcast to self's shape ", shape,
                ", but got the shape ", tensors[i]->sym_sizes());
    const bool requires_grad = at::GradMode::is_enabled() && tensors[i]->requires_grad();
    TORCH_CHECK(!requires_grad && !tensors[i]->_fw_grad(/*level=*/0).defined(),
                "fastact::", fused_name(op),
                "_: expected no derivative to be wanted, as it needs self, which is "
                "overwritten, but got ",
                op.inputs[i].name, requires_grad ? " that requires grad" : " with a tangent");
  }
}

template <class Numbers>
struct Composite;
template <class... P>
struct Composite<Types<P...>> {
  struct Functional {
    const Operator* op;
    at::Tensor operator()(const at::Tensor& self, Optional scale, Optional bias, Optional residual,
                          Optional gate, P... parameters, int64_t dim) const {
      const ElementwiseCall call(*op, self, scale, bias, residual, gate, dim);
      return op->call(call.tensors, collect(parameters...));
    }
  };
  struct InPlace {
    const Operator* op;
    at::Tensor& operator()(at::Tensor& self, Optional scale, Optional bias, Optional residual,
                           Optional gate, P... parameters, int64_t dim) const {
      const ElementwiseCall call(*op, self, scale, bias, residual, gate, dim);
      check_in_place(*op, call.tensors);
      return op->write(nullptr, call.tensors, collect(parameters...), self);
    }
  };
  struct Out {
    const Operator* op;
    at::Tensor& operator()(const at::Tensor& self, Optional scale, Optional bias, Optional residual,
                           Optional gate, P... parameters, int64_t dim, at::Tensor& out) const {
      const ElementwiseCall call(*op, self, scale, bias, residual, gate, dim);
      return op->write(nullptr, call.tensors, collect(parameters...), out);
    }
  };
  struct Packed {
    const Operator* op;
    at::Tensor operator()(const at::Tensor& self, P... parameters, bool gate_first) const {
      const HalvesCall call(packed_name(*op), self, -1, gate_first);
      return op->call(call.tensors, collect(parameters...));
    }
  };
  struct PackedOut {
    const Operator* op;
    at::Tensor& operator()(const at::Tensor& self, P... parameters, bool gate_first,
                           at::Tensor& out) const {
      const HalvesCall call(packed_name(*op), self, -1, gate_first);
      return op->write(nullptr, call.tensors, collect(parameters...), out);
    }
  };
};

// Calls visit(name, Composite's functor) for each form of every fused operator.
template <class Visit>
void for_each_composite(const Visit& visit) {
  for (const Operator* op : fused_operators()) {
    with_signature(*op, [&]<Signature S>() {
      if constexpr (S.optional > 0 && S.results == 1) {
        using Typed = Composite<ParametersOf<S>>;
        const std::string name = fused_name(*op);
        visit(name, typename Typed::Functional{op});
        visit(name + "_", typename Typed::InPlace{op});
        visit(name + ".out", typename Typed::Out{op});
        visit(packed_name(*op), typename Typed::Packed{op});
        visit(packed_name(*op) + ".out", typename Typed::PackedOut{op});
      }
    });
  }
}

// Returns text such as ", Tensor? scale=None, ..., float alpha=1.0, *, int dim=-1". A parameter
// without a default is keyword-only, because it cannot follow arguments with a default.
std::string fused_arguments(const Operator& op) {
  std::string text;
  for (int i = 1; i < kFusedInputs; ++i)
    text.append(", Tensor? ").append(op.inputs[i].name).append("=None");
  std::string keywords = ", *";
  for (const Parameter& parameter : op.parameters()) {
    if (parameter.default_value.has_value()) {
      text.append(", float ").append(op.argument_name(parameter));
      text.append("=").append(literal(*parameter.default_value));
    } else {
      keywords.append(", float ").append(op.argument_name(parameter));
    }
  }
  return text + keywords + ", int dim=-1";
}

// ---- glu, whose activation is the sigmoid. A build without it has no glu.

const Operator* fused_sigmoid() { return find_operator("_fused_sigmoid"); }

at::Tensor glu(const at::Tensor& self, int64_t dim) {
  static const Operator& op = *fused_sigmoid();
  const HalvesCall call("glu", self, dim, /*gate_first=*/false);
  return op.call(call.tensors, {});
}

at::Tensor& glu_out(const at::Tensor& self, int64_t dim, at::Tensor& out) {
  static const Operator& op = *fused_sigmoid();
  const HalvesCall call("glu", self, dim, /*gate_first=*/false);
  return op.write(nullptr, call.tensors, {}, out);
}

void define_fused(torch::Library& library) {
  const auto define = [&](const std::string& schema) {
    library.def(schema.c_str(), {at::Tag::pt2_compliant_tag});
  };
  for (const Operator* op : fused_operators()) {
    for (const auto& [name, arguments] :
         {std::pair(fused_name(*op), fused_arguments(*op)),
          std::pair(packed_name(*op), parameter_arguments(*op) + ", *, bool gate_first=True")}) {
      define(c10::str(name, "(Tensor self", arguments, ") -> Tensor"));
      define(c10::str(name, ".out(Tensor self", arguments, ", Tensor(a!) out) -> Tensor(a!)"));
    }
    define(fused_name(*op) + "_(Tensor(a!) self" + fused_arguments(*op) + ") -> Tensor(a!)");
  }
  if (fused_sigmoid() == nullptr) return;
  define("glu(Tensor self, int dim=-1) -> Tensor");
  define("glu.out(Tensor self, int dim=-1, *, Tensor(a!) out) -> Tensor(a!)");
}

void implement_fused(torch::Library& library) {
  for_each_composite(
      [&](const std::string& name, auto functor) { library.impl(name.c_str(), functor); });
  if (fused_sigmoid() == nullptr) return;
  library.impl("glu", &glu);
  library.impl("glu.out", &glu_out);
}

}  // namespace

const Composites kFusedComposites = {.define = &define_fused, .implement = &implement_fused};

}  // namespace fastact

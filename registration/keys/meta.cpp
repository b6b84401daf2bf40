// The dispatch key Meta: shapes, strides and types without data. It also serves FakeTensor, and
// therefore handles symbolic shapes.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <numeric>

#include "registration/kernels/kernels.h"
#include "registration/operators/implement.h"

namespace fastact {
namespace {

at::Tensor empty(c10::SymIntArrayRef shape, c10::ScalarType type, c10::MemoryFormat format) {
  return at::detail::empty_symint_meta(shape, type, c10::kStrided, c10::kMeta,
                                       /*pin_memory_opt=*/std::nullopt, format);
}

at::Tensor contiguous_meta(c10::SymIntArrayRef shape, c10::ScalarType type) {
  return empty(shape, type, c10::MemoryFormat::Contiguous);
}

struct MetaBackend {
  static at::Tensor empty(const at::Tensor& like, c10::MemoryFormat format) {
    return at::detail::empty_meta(like.sizes(), like.scalar_type(), format);
  }

  static at::Tensor empty_strided(const at::Tensor& like) {
    return at::detail::empty_strided_meta(like.sizes(), like.strides(), like.scalar_type());
  }

  static at::Tensor fresh_like(const at::Tensor& self) { return at::empty_like(self); }

  // A fake tensor has the key of the backend that it represents.
  static bool converts_first(const at::Tensor& self) {
    return self.key_set().has_backend(c10::BackendComponent::CPUBit);
  }

  static void run_dense(const Operator& /*op*/, const KernelId& /*id*/,
                        const CallParameters& /*parameters*/, const at::Tensor& /*out*/,
                        TensorPointers /*tensors*/) {}

  static void run(const Operator& /*op*/, const KernelId& /*id*/,
                  const CallParameters& /*parameters*/, at::TensorIteratorBase& /*iterator*/) {}

  static void run_fused(const Operator& /*op*/, DType /*type*/,
                        const CallParameters& /*parameters*/, const FusedInputs& /*inputs*/,
                        at::TensorIteratorBase& /*iterator*/) {}

  static bool run_fused_backward(const Operator& /*op*/, DType /*type*/,
                                 const CallParameters& parameters,
                                 const FusedBackwardTensors& tensors, const FusedLayout& layout,
                                 at::Tensor (&sums)[2]) {
    const auto sum_like = [&](int vector) {
      return parameters.output_mask[vector]
                 ? at::empty({layout.channels.size}, tensors.inputs[vector].options())
                 : at::Tensor();
    };
    sums[0] = sum_like(kScale);
    sums[1] = sum_like(kBias);
    return true;
  }

  static void run_seeded(const Operator& /*op*/, const KernelId& /*id*/,
                         const CallParameters& /*parameters*/, const at::Tensor& /*seed*/,
                         const at::Tensor& /*out*/, std::span<const at::Tensor> /*inputs*/) {}

  // Accepts symbolic sizes.
  static bool run_norm_of_sum(const Operator& op, TensorPointers tensors,
                              const CallParameters& /*parameters*/, at::Tensor* results) {
    const at::Tensor& self = *tensors[0];
    for (int i = 0; i < op.results; ++i)
      results[i] = contiguous_meta(self.sym_sizes(), self.scalar_type());
    return true;
  }

  // Accepts symbolic sizes.
  static bool run_norm_gradients(const Operator& op, TensorPointers tensors,
                                 const CallParameters& parameters, at::Tensor* results) {
    const at::Tensor& self = *tensors[kNormSelf];
    const at::Tensor& weight = *tensors[kNormWeight];
    const auto make = [&](int result, const at::Tensor& like, c10::ScalarType type) {
      if (!parameters.output_mask[result]) return;
      results[result] = contiguous_meta(like.sym_sizes(), type);
    };
    make(kBySelf, self, self.scalar_type());
    for (int i = kByWeight; i < op.results; ++i)
      make(i, weight, type_of_statistics(self.scalar_type()));
    return true;
  }

  static constexpr bool kRepeats = true;
  static void run_rows(const Operator& /*op*/, const KernelId& /*id*/,
                       const CallParameters& /*parameters*/, const RowOperands& /*operands*/,
                       const at::Tensor& /*out*/) {}
};

// ---- at::TensorIterator's choice of strides, for symbols; its own works only for numbers

bool holds(const c10::SymBool& condition) { return TORCH_GUARD_OR_FALSE(condition); }

bool is_symbolic(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// Returns a negative number for a < b and a positive one for a > b. If no example determines the
// sizes, a stride counts as smaller than its multiples.
int compare(const c10::SymInt& a, const c10::SymInt& b) {
  if (holds(a.sym_lt(b))) return -1;
  if (holds(a.sym_gt(b))) return 1;
  if (holds(a.sym_eq(b))) return 0;
  if (holds((b % a).sym_eq(0))) return -1;
  return holds((a % b).sym_eq(0)) ? 1 : 0;
}

bool are_equal(c10::SymIntArrayRef a, c10::SymIntArrayRef b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](auto& x, auto& y) { return holds(x.sym_eq(y)); });
}

// Sizes about which nothing is known are assumed to be equal; this is checked once they are known.
// at::infer_size_symdimvector() of torch 2.11 would require the sizes.
c10::SymDimVector broadcast_shapes(c10::SymIntArrayRef a, c10::SymIntArrayRef b) {
  const bool a_is_longer = a.size() >= b.size();
  const c10::SymIntArrayRef longer = a_is_longer ? a : b;
  const c10::SymIntArrayRef shorter = a_is_longer ? b : a;
  c10::SymDimVector shape(longer);
  const size_t offset = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    c10::SymInt& size = shape[offset + i];
    const c10::SymInt& other = shorter[i];
    if (holds(other.sym_eq(1)) || holds(size.sym_eq(other))) continue;
    if (holds(size.sym_eq(1))) {
      size = other;
    } else if (holds(size.sym_ne(other))) {
      return at::infer_size_symdimvector(a, b);  // raises the error
    } else {
      TORCH_SYM_CHECK(size.sym_eq(other), "expected ", other, " to be ", size);
    }
  }
  return shape;
}

// Returns a tensor's strides in this shape, with 0 for broadcast dimensions.
c10::SymDimVector broadcast_strides(const at::Tensor& tensor, c10::SymIntArrayRef shape) {
  c10::SymDimVector strides(shape.size(), 0);
  const size_t offset = shape.size() - tensor.dim();
  for (size_t i = offset; i < shape.size(); ++i) {
    const c10::SymInt size = tensor.sym_size(static_cast<int64_t>(i - offset));
    const bool is_broadcast = holds(size.sym_eq(1)) && !holds(shape[i].sym_eq(1));
    if (!is_broadcast) strides[i] = tensor.sym_stride(static_cast<int64_t>(i - offset));
  }
  return strides;
}

// Returns the dimensions from the innermost one outwards.
std::vector<size_t> sorted_dimensions(const std::vector<c10::SymDimVector>& strides,
                                      c10::SymIntArrayRef shape) {
  const auto comes_after = [&](size_t a, size_t b) {
    for (const c10::SymDimVector& operand : strides) {
      if (holds(operand[a].sym_eq(0)) || holds(operand[b].sym_eq(0))) continue;
      if (const int order = compare(operand[a], operand[b]); order != 0) return order;
      if (holds(shape[a].sym_gt(shape[b]))) return 1;
    }
    return 0;
  };
  std::vector<size_t> dimensions(shape.size());
  std::iota(dimensions.rbegin(), dimensions.rend(), 0);
  // An insertion sort, because some pairs are not ordered.
  for (size_t i = 1; i < dimensions.size(); ++i) {
    size_t moved = i;
    for (size_t j = i; j-- > 0;) {
      const int order = comes_after(dimensions[j], dimensions[moved]);
      if (order < 0) break;
      if (order == 0) continue;
      std::swap(dimensions[j], dimensions[moved]);
      moved = j;
    }
  }
  return dimensions;
}

// `inputs` are in the iterator's order.
at::Tensor symbolic_result(std::span<const at::Tensor* const> inputs, c10::ScalarType type) {
  c10::SymDimVector shape(inputs.front()->sym_sizes());
  for (const at::Tensor* input : inputs.subspan(1))
    shape = broadcast_shapes(shape, input->sym_sizes());

  const auto all = [&](const auto& predicate) {
    return std::ranges::all_of(inputs,
                               [&](const at::Tensor* tensor) { return predicate(*tensor); });
  };
  const auto all_contiguous = [&](c10::MemoryFormat format) {
    return all([&](const at::Tensor& tensor) {
      return holds(tensor.unsafeGetTensorImpl()->sym_is_contiguous(format));
    });
  };
  if (all([&](const at::Tensor& tensor) { return are_equal(tensor.sym_sizes(), shape); })) {
    for (const auto format : {c10::MemoryFormat::Contiguous, c10::MemoryFormat::ChannelsLast}) {
      if (all_contiguous(format)) return empty(shape, type, format);
    }
    const c10::SymIntArrayRef strides = inputs.front()->sym_strides();
    if (all([&](const at::Tensor& tensor) {
          return holds(tensor.unsafeGetTensorImpl()->sym_is_non_overlapping_and_dense()) &&
                 are_equal(tensor.sym_strides(), strides);
        })) {
      return at::detail::empty_strided_symint_meta(shape, strides, type);
    }
  }

  std::vector<c10::SymDimVector> strides;
  strides.reserve(inputs.size());
  for (const at::Tensor* input : inputs) strides.push_back(broadcast_strides(*input, shape));
  const std::vector<size_t> dimensions = sorted_dimensions(strides, shape);
  if (std::ranges::is_sorted(dimensions, std::greater()))
    return empty(shape, type, c10::MemoryFormat::Contiguous);
  c10::SymDimVector dense(shape.size());
  c10::SymInt next = 1;
  for (const size_t dimension : dimensions) {
    dense[dimension] = next;
    next *= shape[dimension];
  }
  return at::detail::empty_strided_symint_meta(shape, dense, type);
}

at::Tensor symbolic_result(const Operator& op, TensorPointers tensors) {
  const auto count = static_cast<size_t>(op.num_inputs());
  const at::Tensor* ordered[kMaxInputs];
  for (int i = 0; i < op.num_inputs(); ++i) ordered[i] = tensors[iterator_input(op, i)];
  return symbolic_result({ordered, count}, promoted_type({tensors, count}));
}

// Computes an out operator on symbols: gives `out` the shape of the result.
at::Tensor& write_symbolic(const at::Tensor& result, at::Tensor& out) {
  at::assert_no_internal_overlap(out);
  if (at::native::resize_output_check_symint(out, result.sym_sizes())) {
    out.resize__symint(result.sym_sizes());
    out.as_strided__symint(result.sym_sizes(), result.sym_strides());
  }
  return out;
}

// ---- Kernels

// The present inputs of a call.
class Present {
 public:
  Present(const Operator& op, TensorPointers tensors) {
    for (int i = 0; i < op.num_inputs(); ++i)
      if (tensors[i]->defined()) tensors_[count_++] = tensors[i];
  }

  [[nodiscard]] bool any_is_symbolic() const {
    return std::any_of(tensors_, tensors_ + count_,
                       [](const at::Tensor* tensor) { return is_symbolic(*tensor); });
  }

  [[nodiscard]] std::span<const at::Tensor* const> tensors() const {
    return {tensors_, static_cast<size_t>(count_)};
  }

 private:
  const at::Tensor* tensors_[1 + kMaxInputs];
  int count_ = 0;
};

struct Meta {
  using Concrete = KernelsOn<MetaBackend>;

  static at::Tensor functional(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                               const CallParameters& parameters) {
    const Present present(op, tensors);
    // The kernels of a seed use no iterator, and take symbols.
    if (!present.any_is_symbolic() || op.takes_seed())
      return Concrete::functional(keys, op, tensors, parameters);
    if (op.has_optional_inputs()) {
      check_fused(op, tensors, parameters);
      return symbolic_result(present.tensors(), tensors[0]->scalar_type());
    }
    if (op.has_rows) {
      const int64_t dim = check_rows(op, tensors, parameters);
      const at::Tensor& self = *tensors[op.last_input()];
      return empty(row_result_shape(op, self.sym_sizes(), dim),
                   row_result_type(op, self.scalar_type()), c10::MemoryFormat::Contiguous);
    }
    check_inputs(op, tensors, parameters);
    return symbolic_pointwise(op, tensors);
  }

  static void several(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                      const CallParameters& parameters, at::Tensor* results) {
    // These kernels accept symbolic sizes, or compose their results for them.
    if (op.takes_output_mask || op.adds_residual || !Present(op, tensors).any_is_symbolic())
      return Concrete::several(keys, op, tensors, parameters, results);
    if (op.has_rows) {
      const int64_t dim = check_rows(op, tensors, parameters);
      const at::Tensor& self = *tensors[op.last_input()];
      constexpr auto kContiguous = c10::MemoryFormat::Contiguous;
      results[0] = empty(row_result_shape(op, self.sym_sizes(), dim),
                         row_result_type(op, self.scalar_type()), kContiguous);
      for (int i = 1; i < op.results; ++i)
        results[i] = empty(shape_of_statistics(self.sym_sizes(), dim),
                           number_type(op, self.scalar_type()), kContiguous);
      return;
    }
    if (op.has_optional_inputs()) return op.composition(op, tensors, parameters, results);
    check_inputs(op, tensors, parameters);
    for (int i = 0; i < op.results; ++i) results[i] = symbolic_pointwise(op, tensors);
  }

  static at::Tensor& in_place(c10::DispatchKeySet keys, const Operator& op, at::Tensor& self,
                              const CallParameters& parameters) {
    if (!is_symbolic(self)) return Concrete::in_place(keys, op, self, parameters);
    const at::Tensor* tensors[] = {&self};
    check_inputs(op, tensors, parameters);
    at::assert_no_internal_overlap(self);
    return self;
  }

  static at::Tensor& out(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                         const CallParameters& parameters, at::Tensor& out) {
    if (!Present(op, tensors).any_is_symbolic() && !is_symbolic(out))
      return Concrete::out(keys, op, tensors, parameters, out);
    const at::Tensor result = functional(keys, op, tensors, parameters);
    check_out(op, tensors, result.scalar_type(), out);
    return write_symbolic(result, out);
  }

 private:
  static at::Tensor symbolic_pointwise(const Operator& op, TensorPointers tensors) {
    if (!MetaBackend::converts_first(*tensors[op.last_input()]))
      return symbolic_result(op, tensors);
    const Promoted promoted({tensors, static_cast<size_t>(op.num_inputs())});
    return symbolic_result(op, promoted.tensors());
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(fastact, Meta, library) { implement<Meta>(library, c10::DispatchKey::Meta); }

}  // namespace fastact

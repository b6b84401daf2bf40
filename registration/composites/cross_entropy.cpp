// cross_entropy: checks the arguments, and reduces the losses of the rows.
#include "registration/composites/cross_entropy.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <utility>

#include "fastact/fastact.h"
#include "ops/floating_point.h"
#include "registration/checks.h"
#include "registration/composites/composites.h"
#include "registration/operators/operator.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// Returns the sum of all elements in the order of ops/math/row_order.h, as a 0-dimensional tensor.
at::Tensor ordered_sum(const at::Tensor& numbers) {
  static const Operator& op = operator_named("_sum");
  const at::Tensor row = numbers.flatten();
  const at::Tensor* const tensors[] = {&row};
  return op.call(tensors, along_dim(0)).squeeze(0);
}

class CrossEntropy {
 public:
  CrossEntropy(const at::Tensor& self, const at::Tensor& target, const OptionalTensor& weight,
               int64_t reduction, const c10::SymInt& ignore_index, double label_smoothing)
      : self_(self),
        dim_(self.dim() == 1 ? 0 : 1),
        type_(type_of_statistics(self.scalar_type())),
        result_type_(self.scalar_type()),
        reduction_(reduction),
        smoothing_(label_smoothing) {
    TORCH_CHECK_NOT_IMPLEMENTED(engine_type(self.scalar_type()).has_value(),
                                "fastact::cross_entropy: expected self to be float32, float64, "
                                "bfloat16 or float16, but got ",
                                self.scalar_type());
    TORCH_CHECK(self.dim() > 0,
                "fastact::cross_entropy: expected self to have a dimension of classes, but got a "
                "0-dimensional tensor");
    TORCH_CHECK(target.device() == self.device(),
                "fastact::cross_entropy: expected all tensors to be on the same device, but got "
                "target on ",
                target.device(), " and self on ", self.device());
    TORCH_CHECK(0 <= reduction && reduction < at::Reduction::END,
                "fastact::cross_entropy: expected reduction to be 0, 1 or 2, but got ", reduction);
    TORCH_CHECK(0.0 <= smoothing_ && smoothing_ <= 1.0,
                "fastact::cross_entropy: expected label_smoothing to be from 0 to 1, but got ",
                smoothing_);
    set_weight(weight);
    if (target.sym_sizes() == self.sym_sizes()) {
      set_probabilities(target, ignore_index);
    } else {
      set_indices(target, ignore_index);
    }
  }

  [[nodiscard]] at::Tensor result() const {
    const DefaultFloatingPoint environment;  // for ATen's operators
    at::Tensor losses = indices_.defined() ? losses_of_indices() : losses_of_probabilities();
    if (reduction_ == at::Reduction::None) return losses.to(result_type_);
    losses = ordered_sum(losses);
    if (reduction_ == at::Reduction::Mean) losses = losses / count();
    return losses.to(result_type_);
  }

 private:
  [[nodiscard]] c10::SymInt classes() const { return self_.sym_size(dim_); }

  // The part of label_smoothing that each class gets.
  [[nodiscard]] at::Scalar smoothing_of_class() const { return smoothing_ / classes(); }

  void set_weight(const OptionalTensor& weight) {
    if (!weight.has_value() || !weight->defined()) return;
    TORCH_CHECK(weight->dim() == 1 && weight->sym_size(0) == classes(),
                "fastact::cross_entropy: expected weight to have the shape [", classes(),
                "], but got ", weight->sym_sizes());
    TORCH_CHECK(weight->scalar_type() == self_.scalar_type() || weight->scalar_type() == type_,
                "fastact::cross_entropy: expected weight to have self's type ", self_.scalar_type(),
                ", but got ", weight->scalar_type());
    TORCH_CHECK(weight->device() == self_.device(),
                "fastact::cross_entropy: expected all tensors to be on the same device, but got "
                "weight on ",
                weight->device(), " and self on ", self_.device());
    weight_ = weight->to(type_);
  }

  void set_probabilities(const at::Tensor& target, const c10::SymInt& ignore_index) {
    TORCH_CHECK(at::isFloatingType(target.scalar_type()),
                "fastact::cross_entropy: expected target with self's shape to be floating-point "
                "probabilities, but got ",
                target.scalar_type());
    TORCH_CHECK(ignore_index < 0,
                "fastact::cross_entropy: expected no ignore_index for probabilities, but got ",
                ignore_index);
    result_type_ = c10::promoteTypes(self_.scalar_type(), target.scalar_type());
    probabilities_ = target.to(type_of_statistics(result_type_));
  }

  void set_indices(const at::Tensor& target, const c10::SymInt& ignore_index) {
    c10::SymDimVector shape(self_.sym_sizes());
    shape.erase(shape.begin() + dim_);
    TORCH_CHECK(target.sym_sizes() == c10::SymIntArrayRef(shape),
                "fastact::cross_entropy: expected target to have the shape ",
                c10::SymIntArrayRef(shape), ", or self's ", self_.sym_sizes(), ", but got ",
                target.sym_sizes());
    TORCH_CHECK(target.scalar_type() == at::kLong || target.scalar_type() == at::kByte,
                "fastact::cross_entropy: expected indices in int64 or uint8, but got ",
                target.scalar_type());
    const at::Tensor all = target.to(at::kLong);
    ignored_ = all.eq(ignore_index);
    indices_ = all.masked_fill(ignored_, 0);
    // On a GPU, and in compiled code, the kernel that takes the elements checks the indices.
    if (!is_plain(indices_) || !indices_.is_cpu() || ignored_.all().item<bool>()) return;
    const auto [lowest, highest] = at::aminmax(indices_);
    for (const int64_t index : {lowest.item<int64_t>(), highest.item<int64_t>()}) {
      TORCH_CHECK_INDEX(0 <= index && index < classes(),
                        "fastact::cross_entropy: expected target to be from 0 to ", classes() - 1,
                        ", or ignore_index, but got ", index);
    }
  }

  // The classes' weights in a shape that broadcasts with self.
  [[nodiscard]] at::Tensor broadcast_weight() const {
    c10::SymDimVector shape(static_cast<size_t>(self_.dim()), 1);
    shape[static_cast<size_t>(dim_)] = classes();
    return weight_.view_symint(shape);
  }

  [[nodiscard]] at::Tensor log_probabilities(const at::Tensor& logits) const {
    return fastact::log_softmax(logits, dim_, type_);
  }

  [[nodiscard]] at::Tensor losses_of_indices() const {
    static const Operator& op = operator_named("_cross_entropy");
    const at::Tensor target = indices_.unsqueeze(dim_);
    const at::Tensor* const tensors[] = {&self_, &target};
    at::Tensor losses = op.call(tensors, along_dim(dim_)).squeeze(dim_);
    if (weight_.defined()) losses = losses * weights_of_rows();
    if (smoothing_ > 0.0) {
      // The gradient of an ignored row is 0 even if its log-softmax is NaN.
      at::Tensor each = log_probabilities(self_.masked_fill(ignored_.unsqueeze(dim_), 0.0));
      if (weight_.defined()) each = each * broadcast_weight();
      const at::Tensor smooth = each.sum(dim_) * smoothing_of_class();
      losses = losses * (1.0 - smoothing_) - smooth;
    }
    return losses.masked_fill(ignored_, 0.0);
  }

  // Returns the weight of each row's class, and 0 for ignored rows.
  [[nodiscard]] at::Tensor weights_of_rows() const {
    return weight_.index_select(0, indices_.flatten())
        .view_symint(indices_.sym_sizes())
        .masked_fill(ignored_, 0.0);
  }

  [[nodiscard]] at::Tensor losses_of_probabilities() const {
    at::Tensor each = probabilities_;
    if (smoothing_ > 0.0) each = each * (1.0 - smoothing_) + smoothing_of_class();
    each = each * log_probabilities(self_);
    if (weight_.defined()) each = each * broadcast_weight();
    return -each.sum(dim_);
  }

  // Returns the divisor of a mean.
  [[nodiscard]] at::Tensor count() const {
    if (!indices_.defined()) {
      // As in PyTorch, the mean over rows without classes is NaN.
      const c10::SymInt rows = classes() == 0 ? c10::SymInt(0) : self_.sym_numel() / classes();
      return at::scalar_tensor(rows, self_.options().dtype(probabilities_.scalar_type()));
    }
    return weight_.defined() ? ordered_sum(weights_of_rows())
                             : ignored_.logical_not().sum().to(type_);
  }

  at::Tensor self_;
  int64_t dim_;                  // of the classes
  c10::ScalarType type_;         // in which log-softmax is computed
  c10::ScalarType result_type_;  // as in PyTorch, that of the product with probabilities
  int64_t reduction_;
  double smoothing_;
  at::Tensor weight_;  // undefined if all are 1
  // Exactly one of these is defined.
  at::Tensor probabilities_;
  at::Tensor indices_;  // 0 in ignored rows
  at::Tensor ignored_;
};

void define_cross_entropy(torch::Library& library) {
  library.def(
      "cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt "
      "ignore_index=-100, float label_smoothing=0.0) -> Tensor",
      {at::Tag::pt2_compliant_tag});
}

void implement_cross_entropy(torch::Library& library) {
  library.impl("cross_entropy", [](const at::Tensor& self, const at::Tensor& target,
                                   const OptionalTensor& weight, int64_t reduction,
                                   // NOLINTNEXTLINE(performance-unnecessary-value-param)
                                   c10::SymInt ignore_index, double label_smoothing) {
    return CrossEntropy(self, target, weight, reduction, ignore_index, label_smoothing).result();
  });
}

}  // namespace

const Composites kCrossEntropyComposites = {.define = &define_cross_entropy,
                                            .implement = &implement_cross_entropy};

// ---- The functions of fastact.h

at::Tensor cross_entropy_symint(const at::Tensor& self, const at::Tensor& target,
                                const OptionalTensor& weight, int64_t reduction,
                                // NOLINTNEXTLINE(performance-unnecessary-value-param)
                                c10::SymInt ignore_index, double label_smoothing) {
  static constinit const LazyOperator<at::Tensor(
      const at::Tensor&, const at::Tensor&, const OptionalTensor&, int64_t, c10::SymInt, double)>
      op("fastact::cross_entropy", "");
  return op.dispatch(nullptr, self, target, weight, reduction, std::move(ignore_index),
                     label_smoothing);
}

at::Tensor cross_entropy(const at::Tensor& self, const at::Tensor& target,
                         const OptionalTensor& weight, int64_t reduction, int64_t ignore_index,
                         double label_smoothing) {
  return cross_entropy_symint(self, target, weight, reduction, ignore_index, label_smoothing);
}

}  // namespace fastact

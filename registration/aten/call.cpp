#include "registration/aten/call.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "registration/aten/override.h"
#include "registration/checks.h"
#include "registration/device_kernels.h"
#include "registration/overlap.h"

namespace fastact::aten {
namespace {

// The constants that at::selu() passes to at::elu(): the doubles closest to its 32 digits.
constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
constexpr double kSeluScale = 1.0507009873554804934193349852946;

template <size_t N>
void set_numbers(Call& call, const double (&numbers)[N]) {
  call.parameters.numbers = {};
  std::ranges::copy(numbers, call.parameters.numbers.values);
}

// Recognises at::selu(), which calls at::elu() with SELU's constants.
void selu_of_elu(Call& call) {
  static const Operator* const selu = find_operator("selu");
  const double* numbers = call.parameters.numbers.values;
  if (numbers[0] == kSeluAlpha && numbers[1] == kSeluScale && numbers[2] == 1.0) {
    call.op = selu;
    call.parameters.numbers = {};
  }
}

// Recognises the gradients of at::selu() and at::celu(), which call at::elu_backward().
// at::celu()'s gradient passes the inverse of a float.
void selu_or_celu_of_elu(Call& call) {
  static const Operator* const selu = find_operator("selu_backward");
  static const Operator* const celu = find_operator("celu_backward");
  const double* numbers = call.parameters.numbers.values;
  if (numbers[0] == kSeluAlpha && numbers[1] == kSeluScale && numbers[2] == 1.0) {
    call.op = selu;
    call.parameters.numbers = {};
  } else if (numbers[1] == 1.0 && numbers[0] != 1.0 &&
             numbers[2] == 1.0 / static_cast<double>(static_cast<float>(numbers[0]))) {
    call.op = celu;
    set_numbers(call, {numbers[0]});
  }
}

template <const char* Tanh>
void by_approximate(Call& call) {
  static const Operator* const tanh = find_operator(Tanh);
  if (call.text == "tanh") {
    call.op = tanh;
  } else if (call.text != "none") {
    call.op = nullptr;
  }
}
constexpr char kGeluTanh[] = "gelu_tanh";
constexpr char kGeluTanhBackward[] = "gelu_tanh_backward";

// Drops the third tensor, which ATen's forward pass computed for its own kernel. The other two do
// not broadcast.
void without_buffer(Call& call) {
  call.num_tensors = 2;
  if (call.tensors[0]->sizes() != call.tensors[1]->sizes()) call.op = nullptr;
}

// Sets the result type of a gradient. On a GPU, ATen's kernels convert float32 to float16.
void by_input_dtype(Call& call) {
  const at::Tensor& grad = *call.tensors[0];
  if (call.input_dtype == grad.scalar_type()) return;
  if (grad.is_cuda() && grad.scalar_type() == at::kFloat && call.input_dtype == at::kHalf) {
    call.result_dtype = at::kHalf;
  } else {
    call.op = nullptr;
  }
}

// Converts the input if the argument half_to_float is true, which is the call's only flag. Only
// ATen's kernels for a GPU support this, and only for float16.
void by_half_to_float(Call& call) {
  if (!std::exchange(call.parameters.from_result, false)) return;
  const at::Tensor& self = *call.tensors[0];
  if (is_overriding() && self.is_cuda() && self.scalar_type() == at::kHalf) {
    call.converted = self.to(at::kFloat);
    call.tensors[0] = &call.converted;
  } else {
    call.op = nullptr;
  }
}

struct Row {
  std::string_view name;
  std::string_view op;
  StandIn::Rewrite rewrite;
  int like = -1;
};

// The operators whose name, arguments or layout differ from FastAct's.
constexpr Row kRows[] = {
    {"elu", "elu", &selu_of_elu},
    {"elu_backward", "elu_backward", &selu_or_celu_of_elu},
    {"gelu", "gelu", &by_approximate<kGeluTanh>},
    {"gelu_backward", "gelu_backward", &by_approximate<kGeluTanhBackward>},
    {"hardtanh", "hardtanh", nullptr, /*like=*/0},
    {"log_sigmoid_forward", "log_sigmoid", nullptr, /*like=*/0},
    {"log_sigmoid_backward", "log_sigmoid_backward", &without_buffer, /*like=*/0},
    {"_prelu_kernel", "_prelu", nullptr, /*like=*/1},
    {"_softmax", "_softmax", &by_half_to_float},
    {"_softmax_backward_data", "softmax_backward", &by_input_dtype},
    {"_log_softmax", "_log_softmax", &by_half_to_float},
    {"_log_softmax_backward_data", "log_softmax_backward", &by_input_dtype},
};

// Returns true if the tensors of a row operator have one shape, and rows along `dim`.
bool have_rows(const Call& call) {
  const at::Tensor& first = *call.tensors[0];
  const int64_t rank = std::max<int64_t>(first.dim(), 1);
  return call.parameters.dim >= -rank && call.parameters.dim < rank &&
         std::all_of(
             call.tensors, call.tensors + call.num_tensors,
             [&](const at::Tensor* tensor) { return tensor->sizes() == first.sizes(); });
}

// Returns true if FastAct accepts the parameters. ATen computes calls with numbers that are not
// finite.
bool holds(const Operator& op, const CallParameters& parameters) {
  if (op.activation == nullptr) return true;
  const double* values = parameters.numbers.values;
  const auto count = static_cast<std::ptrdiff_t>(op.activation->parameters.size());
  return std::all_of(values, values + count, [](double x) { return std::isfinite(x); }) &&
         std::ranges::all_of(op.activation->requirements,
                             [&](const Requirement& r) { return r.holds(values); }) &&
         (!parameters.from_result || op.activation->result_suffices(values));
}

// Returns true if the kernels take a norm of the input with weight and bias of this shape.
bool is_norm_taken(const at::Tensor& input, at::IntArrayRef shape,
                   const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                   double eps) {
  const auto fits = [&](const std::optional<at::Tensor>& vector) {
    return !vector.has_value() || !vector->defined() ||
           (vector->sizes() == shape && vector->scalar_type() == input.scalar_type() &&
            vector->device() == input.device());
  };
  return is_overriding() && engine_type(input.scalar_type()).has_value() && std::isfinite(eps) &&
         input.numel() != 0 && fits(weight) && fits(bias);
}

}  // namespace

bool Call::is_taken() const {
  if (op == nullptr || !is_overriding() || num_tensors != op->num_inputs()) return false;
  const at::Tensor& first = *tensors[0];
  if (!engine_type(first.scalar_type()).has_value()) return false;
  for (int i = 1; i < num_tensors; ++i) {
    if (tensors[i]->scalar_type() != first.scalar_type() || tensors[i]->device() != first.device())
      return false;
  }
  return op->has_rows ? have_rows(*this) : holds(*op, parameters);
}

bool Call::is_taken(const at::Tensor& written) const {
  if (!is_taken() || written.scalar_type() != result_dtype.value_or(tensors[0]->scalar_type()) ||
      written.device() != tensors[0]->device() ||
      at::has_internal_overlap(written) == at::MemOverlap::Yes) {
    return false;
  }
  return std::none_of(tensors, tensors + num_tensors,
                      [&](const at::Tensor* tensor) { return overlaps_in_part(written, *tensor); });
}

bool is_layer_norm_taken(const at::Tensor& input, at::IntArrayRef shape,
                         const std::optional<at::Tensor>& weight,
                         const std::optional<at::Tensor>& bias, double eps) {
  const auto rank = static_cast<int64_t>(shape.size());
  return rank > 0 && rank <= input.dim() && input.sizes().slice(input.dim() - rank) == shape &&
         is_norm_taken(input, shape, weight, bias, eps);
}

bool is_group_norm_taken(const at::Tensor& input, const int64_t (&shape)[3],
                         const std::optional<at::Tensor>& weight,
                         const std::optional<at::Tensor>& bias, int64_t groups, double eps) {
  return groups > 0 && shape[0] > 0 && shape[1] > 0 && shape[1] % groups == 0 &&
         input.numel() == c10::multiply_integers(at::IntArrayRef(shape)) &&
         is_norm_taken(input, {shape[1]}, weight, bias, eps);
}

StandIn stand_in_for(std::string_view name) {
  const auto row = std::ranges::find(kRows, name, &Row::name);
  if (row == std::end(kRows)) return {find_operator(name)};
  return {find_operator(row->op), row->rewrite, row->like};
}

}  // namespace fastact::aten

// Converts a call of an ATen operator into a call of a FastAct operator: which operator, tensors
// and numbers, or none if FastAct does not take the call.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>
#include <string_view>

#include "registration/operators/operator.h"

namespace fastact::aten {

struct Call;

// The FastAct operator that replaces an ATen operator.
struct StandIn {
  // Changes a call whose arguments select another operator, or none.
  using Rewrite = void (*)(Call& call);

  const Operator* op;
  Rewrite rewrite = nullptr;
  // The tensor whose at::empty_like() gives a new result its layout. -1: at::TensorIterator chooses
  // the layout, as in FastAct.
  int like = -1;
};

// Filled with ATen's arguments. FastAct has the same order of tensors and of numbers.
struct Call {
  // Null if ATen's kernel must compute the call.
  const Operator* op = nullptr;
  const at::Tensor* tensors[kMaxInputs] = {};
  int num_tensors = 0;
  int num_numbers = 0;
  CallParameters parameters;
  std::string_view text;
  // The argument input_dtype of the gradient of a row operator.
  std::optional<c10::ScalarType> input_dtype;
  // The result's type, if it is not that of the tensors. The result is computed in their type.
  std::optional<c10::ScalarType> result_dtype;
  // The first tensor in another type, if `tensors` refers to it.
  at::Tensor converted;

  template <class... Arguments>
  explicit Call(const StandIn& stand_in, const Arguments&... arguments) : op(stand_in.op) {
    (take(arguments), ...);
    if (stand_in.rewrite != nullptr) stand_in.rewrite(*this);
  }
  Call(const Call&) = delete;  // `tensors` may refer to `converted`
  Call& operator=(const Call&) = delete;
  ~Call() = default;

  // Returns true if FastAct takes the call: all tensors have the same supported type and device,
  // the numbers are finite and accepted by the activation, and the rows exist. ATen computes
  // everything else and raises its own errors.
  [[nodiscard]] bool is_taken() const;
  // The same, including a tensor that is written to. It must not overlap itself, and no input may
  // overlap it in part.
  [[nodiscard]] bool is_taken(const at::Tensor& written) const;

 private:
  void take(const at::Tensor& tensor) { tensors[num_tensors++] = &tensor; }
  void take(double number) { parameters.numbers.values[num_numbers++] = number; }
  void take(int64_t dim) { parameters.dim = dim; }
  void take(bool flag) { parameters.from_result = flag; }
  void take(c10::ScalarType dtype) { input_dtype = dtype; }
  void take(std::string_view argument) { text = argument; }
  void take(const at::Scalar& number) {
    if (number.isComplex() || number.isSymbolic()) {
      op = nullptr;
    } else {
      take(number.toDouble());
    }
  }
};

// Returns true if FastAct computes this call of native_layer_norm: the input has a supported type
// and at least one element, eps is finite, and weight and bias, if present, have the input's type.
// ATen computes 16-bit inputs with float32 weight and bias.
bool is_layer_norm_taken(const at::Tensor& input, at::IntArrayRef shape,
                         const std::optional<at::Tensor>& weight,
                         const std::optional<at::Tensor>& bias, double eps);

// The same for native_group_norm, whose input has the shape [batch, channels, pixels].
bool is_group_norm_taken(const at::Tensor& input, const int64_t (&shape)[3],
                         const std::optional<at::Tensor>& weight,
                         const std::optional<at::Tensor>& bias, int64_t groups, double eps);

// Returns the stand-in for an ATen operator by its name without an overload, such as
// "elu_backward". Its `op` is null if this build has none.
StandIn stand_in_for(std::string_view name);

}  // namespace fastact::aten

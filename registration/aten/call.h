// A call of one of ATen's operators as a call of one of FastAct's: which operator, tensors and
// numbers, or that FastAct does not take it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <string_view>

#include "registration/operators/operator.h"

namespace fastact::aten {

struct Call;

// Which of FastAct's operators stands in for an operator of ATen's.
struct StandIn {
  // Changes a call whose arguments ask for another operator, or for none.
  using Rewrite = void (*)(Call& call);

  const Operator* op;
  Rewrite rewrite = nullptr;
  // The tensor whose at::empty_like() a new result is; none: at::TensorIterator's choice, which is
  // FastAct's too.
  int like = -1;
};

// Filled with ATen's arguments in ATen's order, which is FastAct's for the tensors, and for the
// numbers.
struct Call {
  // Null where ATen's kernel has to serve.
  const Operator* op = nullptr;
  const at::Tensor* tensors[kMaxInputs] = {};
  int num_tensors = 0;
  int num_numbers = 0;
  CallParameters parameters;
  std::string_view text;

  template <class... Arguments>
  explicit Call(const StandIn& stand_in, const Arguments&... arguments) : op(stand_in.op) {
    (take(arguments), ...);
    if (stand_in.rewrite != nullptr) stand_in.rewrite(*this);
  }

  // Whether FastAct takes the call: tensors of one of its types, all of one type and on one device,
  // and numbers that are finite and that the activation is defined for. Where anything else is
  // right, or an error, ATen says it.
  [[nodiscard]] bool is_taken() const;
  // The same with a tensor that is written to. It must not overlap itself, nor an input in part.
  [[nodiscard]] bool is_taken(const at::Tensor& written) const;

 private:
  void take(const at::Tensor& tensor) { tensors[num_tensors++] = &tensor; }
  void take(double number) { parameters.numbers.values[num_numbers++] = number; }
  void take(bool from_result) { parameters.from_result = from_result; }
  void take(std::string_view argument) { text = argument; }
  void take(const at::Scalar& number) {
    if (number.isComplex() || number.isSymbolic()) {
      op = nullptr;
    } else {
      take(number.toDouble());
    }
  }
};

// The stand-in for an operator of ATen's by its name without an overload, such as "elu_backward".
// Its op is null if this build has none.
StandIn stand_in_for(std::string_view name);

}  // namespace fastact::aten

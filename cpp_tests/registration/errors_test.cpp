// Errors: their class and text. Every message names the operator, what was expected and what it
// got.
#include <fastact/fastact.h>

#include <string>

#include "cpp_tests/registration/support.h"

namespace fastact::testing {
namespace {

TEST(ErrorsTest, OtherTypes) {
  for (const at::ScalarType type : {at::kInt, at::kLong, at::kBool, at::kByte, at::kComplexFloat}) {
    const at::Tensor x = at::zeros({3}, type);
    const std::string got = std::string("but got ") + c10::toString(type);
    EXPECT_EQ(message_of<c10::NotImplementedError>([&] { fastact::selu(x); }),
              "fastact::selu: expected self to be float32, float64, bfloat16 or float16, " + got);
    EXPECT_EQ(message_of<c10::NotImplementedError>([&] { fastact::relu(x); }),
              "fastact::relu: expected self to be float32, float64, bfloat16 or float16, " + got);
    at::Tensor self = x.clone();
    EXPECT_EQ(message_of<c10::NotImplementedError>([&] { fastact::selu_(self); }),
              "fastact::selu: expected self to be float32, float64, bfloat16 or float16, " + got);
    EXPECT_EQ(
        message_of<c10::NotImplementedError>([&] { fastact::selu_backward(x, at::ones({3})); }),
        "fastact::selu_backward: expected grad_output to be float32, float64, bfloat16 or "
        "float16, " +
            got);
  }
}

TEST(ErrorsTest, OutThatCannotHoldTheResult) {
  const at::Tensor x = at::ones({3});
  at::Tensor integers = at::zeros({3}, at::kInt);
  EXPECT_EQ(message_of<c10::Error>([&] { fastact::relu_out(integers, x); }),
            "fastact::relu: expected out to be of a type that result type Float can be cast to, "
            "but got Int");
  EXPECT_TRUE(at::equal(integers, at::zeros({3}, at::kInt))) << "changed by a call that failed";
}

TEST(ErrorsTest, TensorsOnDifferentDevices) {
  const at::Tensor x = at::ones({3});
  at::Tensor meta = at::empty({3}, at::TensorOptions(at::kFloat).device(at::kMeta));
  EXPECT_EQ(message_of<c10::Error>([&] { fastact::selu_backward(meta, x); }),
            "fastact::selu_backward: expected all tensors to be on the same device, but got "
            "grad_output on meta and self on cpu");
}

TEST(ErrorsTest, ShapesThatDoNotBroadcast) {
  EXPECT_THROW(fastact::selu_backward(at::ones({3}), at::ones({4})), c10::Error);
  EXPECT_THROW(fastact::relu_backward(at::ones({2, 3}), at::ones({2, 4})), c10::Error);
}

TEST(ErrorsTest, OutputsThatOverlap) {
  at::Tensor expanded = at::ones({1}).expand({4});
  EXPECT_NE(
      message_of<c10::Error>([&] { fastact::selu_(expanded); }).find("single memory location"),
      std::string::npos);
  at::Tensor out = at::zeros({1}).expand({4});
  EXPECT_THROW(fastact::relu_out(out, at::ones({4})), c10::Error);
  at::Tensor memory = at::linspace(-2, 2, 9);
  at::Tensor shifted = memory.slice(0, 1, 9);
  EXPECT_THROW(fastact::selu_out(shifted, memory.slice(0, 0, 8)), c10::Error);
  EXPECT_TRUE(at::equal(memory, at::linspace(-2, 2, 9))) << "changed by a call that failed";
}

TEST(ErrorsTest, OutThatRequiresGrad) {
  at::Tensor out = at::zeros({3}).requires_grad_();
  EXPECT_NE(
      message_of<c10::Error>([&] { fastact::selu_out(out, at::ones({3})); }).find("fastact::selu"),
      std::string::npos);
}

}  // namespace
}  // namespace fastact::testing

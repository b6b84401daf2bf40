// The dispatcher's view: every schema to the letter, its tags, and a kernel for every key.
#include <string>
#include <vector>

#include "cpp_tests/registration/support.h"

namespace fastact::testing {
namespace {

struct Schema {
  const char* name;
  const char* overload;
  const char* text;
  bool writes;
};

void PrintTo(const Schema& schema, std::ostream* stream) { *stream << schema.text; }

const Schema kSchemas[] = {
    {"selu", "", "fastact::selu(Tensor self) -> Tensor", false},
    {"selu_", "", "fastact::selu_(Tensor(a!) self) -> Tensor(a!)", true},
    {"selu", "out", "fastact::selu.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", true},
    {"selu_backward", "",
     "fastact::selu_backward(Tensor grad_output, Tensor self, bool is_result=False) -> Tensor",
     false},
    {"selu_backward", "grad_input",
     "fastact::selu_backward.grad_input(Tensor grad_output, Tensor self, bool is_result=False, *, "
     "Tensor(a!) grad_input) -> Tensor(a!)",
     true},
    {"selu_double_backward", "",
     "fastact::selu_double_backward(Tensor grad_grad_input, Tensor grad_output, Tensor self, "
     "bool is_result=False) -> Tensor",
     false},
    {"selu_triple_backward", "",
     "fastact::selu_triple_backward(Tensor grad_grad_grad, Tensor grad_grad_input, "
     "Tensor grad_output, Tensor self, bool is_result=False) -> Tensor",
     false},
    {"relu", "", "fastact::relu(Tensor self) -> Tensor", false},
    {"relu_", "", "fastact::relu_(Tensor(a!) self) -> Tensor(a!)", true},
    {"relu", "out", "fastact::relu.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)", true},
    {"relu_backward", "", "fastact::relu_backward(Tensor grad_output, Tensor self) -> Tensor",
     false},
    {"relu_backward", "grad_input",
     "fastact::relu_backward.grad_input(Tensor grad_output, Tensor self, *, Tensor(a!) grad_input) "
     "-> Tensor(a!)",
     true},
    {"relu_double_backward", "",
     "fastact::relu_double_backward(Tensor grad_grad_input, Tensor grad_output, Tensor self) -> "
     "Tensor",
     false},
    {"relu_triple_backward", "",
     "fastact::relu_triple_backward(Tensor grad_grad_grad, Tensor grad_grad_input, "
     "Tensor grad_output, Tensor self) -> Tensor",
     false},
};

class DispatcherTest : public ::testing::TestWithParam<Schema> {
 protected:
  [[nodiscard]] static c10::OperatorHandle find() {
    const std::string name = std::string("fastact::") + GetParam().name;
    return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), GetParam().overload);
  }
};

TEST_P(DispatcherTest, HasTheSchema) { EXPECT_EQ(c10::toString(find().schema()), GetParam().text); }

TEST_P(DispatcherTest, HasTheTags) {
  EXPECT_TRUE(find().hasTag(at::Tag::pt2_compliant_tag));
  EXPECT_TRUE(find().hasTag(at::Tag::pointwise));
}

TEST_P(DispatcherTest, HasAKernelForEveryKey) {
  std::vector<c10::DispatchKey> keys = {c10::DispatchKey::CPU, c10::DispatchKey::Meta,
                                        c10::DispatchKey::Autograd,
                                        c10::DispatchKey::FuncTorchBatched};
#if FASTACT_HAS_CUDA
  keys.push_back(c10::DispatchKey::CUDA);
#endif
  if (GetParam().writes) {
    keys.push_back(c10::DispatchKey::ADInplaceOrView);
    keys.push_back(c10::DispatchKey::Functionalize);
  }
  for (const c10::DispatchKey key : keys) {
    EXPECT_TRUE(find().hasKernelForDispatchKey(key)) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, DispatcherTest, ::testing::ValuesIn(kSchemas),
                         [](const auto& parameters) {
                           const Schema& schema = parameters.param;
                           const std::string overload = schema.overload;
                           return schema.name + (overload.empty() ? "" : "_as_" + overload);
                         });

TEST(DispatcherContentTest, HasTheseOperatorsAndNoOthers) {
  std::vector<std::string> expected = {"fastact::build_info",
                                       "fastact::not_faster_on_cpu",
                                       "fastact::optimize_archive",
                                       "fastact::prelu",
                                       "fastact::_prelu",
                                       "fastact::_prelu_backward",
                                       "fastact::_prelu_weight_backward",
                                       "fastact::_prelu_weight_double_backward",
                                       "fastact::clamped_swiglu",
                                       "fastact::clamped_swiglu.out",
                                       "fastact::_clamped_swiglu",
                                       "fastact::_clamped_swiglu.out",
                                       "fastact::_clamped_swiglu_backward",
                                       "fastact::selu_alpha_dropout",
                                       "fastact::_selu_alpha_dropout",
                                       "fastact::_selu_alpha_dropout_backward",
                                       "fastact::_alpha_dropout_mask",
                                       "fastact::glu",
                                       "fastact::glu.out",
                                       "fastact::rrelu",
                                       "fastact::rrelu_",
                                       "fastact::_rrelu",
                                       "fastact::_rrelu_backward"};
  for (const std::string name : {"softmax", "log_softmax"}) {
    for (const char* const form : {"", ".out", "_backward", "_backward.grad_input"})
      expected.push_back("fastact::" + name + form);
    for (const char* const form : {"", ".out"}) expected.push_back("fastact::_" + name + form);
  }
  for (const char* const name :
       {"logsumexp", "logsumexp.out", "_logsumexp", "_logsumexp.out", "_logsumexp_backward",
        "_logsumexp_backward.grad_input", "cross_entropy", "_cross_entropy", "_cross_entropy.out",
        "_cross_entropy_backward", "_cross_entropy_backward.grad_input"})
    expected.push_back(std::string("fastact::") + name);
  for (const char* const name : {"sum", "sum.out", "_sum", "_sum.out", "mean", "mean.out", "_mean",
                                 "_mean.out", "var_mean", "_var", "_var.out", "_var_mean"})
    expected.push_back(std::string("fastact::") + name);
  for (const std::string name : {"rms_norm", "layer_norm"}) {
    for (const char* const form : {"", ".out"}) {
      expected.push_back("fastact::" + name + form);
      expected.push_back("fastact::_" + name + form);
    }
    for (const char* const form : {"_backward", "_backward.grad_input", "_gradients"})
      expected.push_back("fastact::_" + name + form);
    for (const char* const prefix : {"add_", "_add_"})
      expected.push_back("fastact::" + (prefix + name));
  }
  for (const char* const form : {"", ".out", "_with_statistics"})
    expected.push_back(std::string("fastact::_layer_norm_without_bias") + form);
  for (const char* const name : {"_add_layer_norm_without_bias", "_layer_norm_with_statistics",
                                 "group_norm", "group_norm.out", "instance_norm"})
    expected.push_back(std::string("fastact::") + name);
  for (const std::string name : kActivations) {
    for (const char* const form : {"", "_", ".out", "_backward", "_backward.grad_input",
                                   "_double_backward", "_triple_backward"}) {
      expected.push_back("fastact::" + name + form);
    }
    for (const char* const prefix : {"fused_", "_fused_"}) {
      expected.push_back("fastact::" + (prefix + name));
      expected.push_back("fastact::" + (prefix + name) + ".out");
    }
    expected.push_back("fastact::fused_" + name + "_");
    expected.push_back("fastact::_fused_" + name + "_backward");
    expected.push_back("fastact::_fused_" + name + "_with_preactivation");
    for (const char* const overload : {"", ".out"})
      expected.push_back("fastact::" + name + "_and_mul" + overload);
  }
  std::vector<std::string> found;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.starts_with("fastact::")) found.push_back(c10::toString(name));
  }
  std::ranges::sort(expected);
  std::ranges::sort(found);
  EXPECT_EQ(found, expected);
}

TEST(DispatcherMetaTest, MetaTensorsHaveShapesAndTypes) {
  const at::Tensor x = at::empty({2, 3}, at::TensorOptions(at::kHalf).device(at::kMeta));
  const at::Tensor y = call<Unary>("selu", "", x);
  EXPECT_EQ(y.sizes(), x.sizes());
  EXPECT_EQ(y.scalar_type(), at::kHalf);
  EXPECT_TRUE(y.is_meta());
}

}  // namespace
}  // namespace fastact::testing

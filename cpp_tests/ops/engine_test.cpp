// The catalogue, the kernels of every activation, and the choice of the instruction set at load
// time.
#include "ops/cpu/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>

#include "cpp_tests/ops/support.h"

namespace fastact::testing {
namespace {

TEST(CatalogueTest, NamesAreUniqueIdentifiers) {
  std::set<std::string> names;
  for (const Activation& activation : activations()) {
    EXPECT_TRUE(names.insert(std::string(activation.name)).second) << activation.name;
    EXPECT_EQ(activation.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"),
              std::string_view::npos)
        << activation.name;
    EXPECT_NE(activation.name.back(), '_') << "reserved for the in-place operator";
  }
  EXPECT_FALSE(names.empty());
  EXPECT_TRUE(names.contains("selu"));
  EXPECT_TRUE(names.contains("relu"));
}

TEST(CatalogueTest, ParametersFitTheKernels) {
  for (const Activation& activation : activations()) {
    EXPECT_LE(activation.parameters.size(), kMaxParameters) << activation.name;
  }
}

TEST(CatalogueTest, TraitsOfSeluAndRelu) {
  for (const Activation& activation : activations()) {
    if (activation.name == "selu") {
      EXPECT_EQ(activation.traits.saves, Saves::kInput);
      EXPECT_TRUE(activation.traits.gradient_from_result);
    } else if (activation.name == "relu") {
      EXPECT_EQ(activation.traits.saves, Saves::kResultAsInput);
      EXPECT_FALSE(activation.traits.gradient_from_result);
    }
  }
}

TEST(EngineTest, EveryKernelIsThereOnEveryInstructionSet) {
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    for (const KernelCase& kernel : all_kernels()) {
      EXPECT_NE(cpu::find_kernel(kernel.activation, kernel.id, set), nullptr)
          << kernel.name() << " on " << cpu::name_of(set);
    }
  }
}

TEST(EngineTest, EveryInstructionSetHasCodeOfItsOwn) {
  const auto sets = cpu::available_instruction_sets();
  for (const KernelCase& kernel : all_kernels()) {
    const auto kernel_of = [&](cpu::InstructionSet set) {
      return cpu::find_kernel(kernel.activation, kernel.id, set);
    };
    for (size_t i = 1; i < sets.size(); ++i) {
      for (size_t j = 0; j < i; ++j)
        EXPECT_NE(kernel_of(sets[i]), kernel_of(sets[j])) << kernel.name();
    }
  }
}

TEST(EngineTest, NoKernelFromTheResultWhereTheGradientNeedsTheInput) {
  for (int activation = 0; activation < static_cast<int>(activations().size()); ++activation) {
    const bool has = activations()[activation].traits.gradient_from_result;
    for (int order = 1; order <= kTopOrder; ++order) {
      const DerivativeId id = {order, true, DType::kFloat32};
      EXPECT_EQ(cpu::find_kernel(activation, id, cpu::InstructionSet::kBaseline) != nullptr, has)
          << activations()[activation].name << " order " << order;
    }
  }
}

TEST(EngineTest, InstructionSetsAreOrderedAndStartAtTheBaseline) {
  const auto sets = cpu::available_instruction_sets();
  ASSERT_FALSE(sets.empty());
  EXPECT_EQ(sets.front(), cpu::InstructionSet::kBaseline);
  EXPECT_TRUE(std::ranges::is_sorted(sets));
#if defined(__aarch64__)
  EXPECT_EQ(sets.size(), 1);
  EXPECT_EQ(cpu::name_of(cpu::InstructionSet::kBaseline), "neon");
#else
  EXPECT_EQ(cpu::name_of(cpu::InstructionSet::kBaseline), "baseline");
#endif
  EXPECT_EQ(cpu::name_of(cpu::InstructionSet::kAvx2), "avx2");
  EXPECT_EQ(cpu::name_of(cpu::InstructionSet::kAvx512), "avx512");
}

TEST(KernelTableTest, HoldsOneFunctionForEachId) {
  KernelTable<const char*> table;
  for (int form = 0; form < kMaxForms; ++form) {
    for (const Format& format : kFormats) {
      const KernelId id = {form, format.dtype};
      EXPECT_EQ(table[id], nullptr);
      table.functions[form][static_cast<int>(format.dtype)] = format.name;
      EXPECT_EQ(table[id], format.name);
    }
  }
}

TEST(CatalogueTest, FamiliesSayWhatTheirFormsTake) {
  ASSERT_GE(families().size(), activations().size());
  for (size_t i = 0; i < activations().size(); ++i) {
    const Family& family = families()[i];
    EXPECT_EQ(family.name, activations()[i].name);
    EXPECT_EQ(family_index(family.name), static_cast<int>(i));
    for (int order = 0; order <= kTopOrder; ++order) {
      for (const bool from_result : {false, true}) {
        const FormInfo& form = family.forms[derivative_form(order, from_result && order > 0)];
        const bool has = !from_result || order == 0 || activations()[i].traits.gradient_from_result;
        EXPECT_EQ(form.outputs, has ? 1 : 0) << family.name << " order " << order;
        EXPECT_EQ(form.inputs, has ? order + 1 : 0) << family.name << " order " << order;
      }
    }
  }
  const Family& prelu = families()[family_index("prelu")];
  const int inputs[] = {2, 3, 2, 3};
  for (int form = 0; form < 4; ++form) EXPECT_EQ(prelu.forms[form].inputs, inputs[form]);
  EXPECT_EQ(prelu.forms[0].broadcasts[0], Broadcast::kPerChannel);
  EXPECT_EQ(prelu.forms[0].broadcasts[1], Broadcast::kElementwise);
  EXPECT_EQ(family_index("none"), -1);
}

TEST(EngineTest, EveryFormHasAKernelForEveryTypeOnEveryInstructionSet) {
  for (int family = 0; family < static_cast<int>(families().size()); ++family) {
    for (int form = 0; form < kMaxForms; ++form) {
      for (const Format& format : kFormats) {
        for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
          EXPECT_EQ(cpu::find_kernel(family, {form, format.dtype}, set) != nullptr,
                    families()[family].forms[form].outputs > 0)
              << families()[family].name << " form " << form << " " << format.name;
        }
      }
    }
  }
}

// The choice is made once per process, so each of these tests starts a new one.
class SelectionTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, kNewProcess); }

  // Prints the instruction set that a process with this FASTACT_CPU_ISA (null: unset) selects, or
  // the error.
  [[noreturn]] static void print_selection(const char* wanted) {
    if (wanted == nullptr) {
      unsetenv("FASTACT_CPU_ISA");
    } else {
      setenv("FASTACT_CPU_ISA", wanted, 1);
    }
    // Twice: after an error, the second call must give the same answer.
    for (int i = 0; i < 2; ++i) {
      try {
        std::fprintf(stderr, "selected <%s>\n",
                     std::string(cpu::name_of(cpu::selected_instruction_set())).c_str());
      } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "error <%s>\n", error.what());
      }
    }
    std::exit(0);
  }

  static std::string twice(const std::string& line) { return line + "\n.*" + line; }
};
using SelectionDeathTest = SelectionTest;

TEST_F(SelectionDeathTest, TheWidestWithoutAWish) {
  const std::string widest(cpu::name_of(cpu::available_instruction_sets().back()));
  EXPECT_EXIT(print_selection(nullptr), ::testing::ExitedWithCode(0),
              twice("selected <" + widest + ">"));
  EXPECT_EXIT(print_selection(""), ::testing::ExitedWithCode(0),
              twice("selected <" + widest + ">"));
}

TEST_F(SelectionDeathTest, TheWishedOne) {
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    const std::string name(cpu::name_of(set));
    EXPECT_EXIT(print_selection(name.c_str()), ::testing::ExitedWithCode(0),
                twice("selected <" + name + ">"));
  }
}

TEST_F(SelectionDeathTest, AnUnknownOneIsAnErrorThatNamesTheKnownOnes) {
  std::string known;
  const auto sets = cpu::available_instruction_sets();
  for (const cpu::InstructionSet set : sets) {
    if (set != sets.front()) known += set == sets.back() ? " or " : ", ";
    known += cpu::name_of(set);
  }
  const std::string error =
      "error <fastact: expected FASTACT_CPU_ISA to be " + known + " on this processor, but got ";
  for (const std::string wanted : {"avx", "AVX2", "sse4", "avx2 "}) {
    EXPECT_EXIT(print_selection(wanted.c_str()), ::testing::ExitedWithCode(0),
                twice(error + wanted + ">"));
  }
}

}  // namespace
}  // namespace fastact::testing

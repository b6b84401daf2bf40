// What the engines and their callers say to each other: which kernel, which parameters. No Torch,
// no CUDA.
#pragma once

#include <cstdint>

#include "ops/formulas/formula.h"

namespace fastact {

enum class DType : uint8_t { kFloat32, kFloat64, kBFloat16, kFloat16 };
inline constexpr int kNumDTypes = 4;

// No activation of ATen's has more than three numbers beside its tensor.
inline constexpr int kMaxParameters = 3;
struct Parameters {
  double values[kMaxParameters] = {};
};

// A kernel computes D_k(g1..gk, x) = g1 * ... * gk * f^(k)(x) element by element. Its operands are,
// in this order, the output, the k gradients and x.
inline constexpr int kMaxOperands = kTopOrder + 2;

struct KernelId {
  int order = 0;  // k
  // x is f's result, see Traits::gradient_from_result. Where x always is (Saves::kOutput), false.
  bool from_result = false;
  DType dtype = DType::kFloat32;
};

// The functions of one kernel family (one activation on one target), by KernelId.
template <class Function>
struct KernelTable {
  Function functions[kTopOrder + 1][2][kNumDTypes] = {};

  Function operator[](const KernelId& id) const {
    return functions[id.order][id.from_result ? 1 : 0][static_cast<int>(id.dtype)];
  }
};

// Fills a table: for each kernel that `Formula` has, Make<Formula, Element, Order,
// FromResult>::run, a function or a pointer to one.
template <template <class, class, int, bool> class Make, class Function, class Formula>
constexpr KernelTable<Function> make_kernel_table() {
  static_assert(
      Formula::kTraits.saves != Saves::kOutput || !Formula::kTraits.gradient_from_result,
      "with Saves::kOutput the derivative operators take the result always, not by is_result");
  KernelTable<Function> table;
  const auto fill_order = [&]<int Order, bool FromResult>() {
    if constexpr (Order >= Formula::kTraits.first_order && Order <= Formula::kTraits.last_order) {
      Function* row = table.functions[Order][FromResult ? 1 : 0];
      row[static_cast<int>(DType::kFloat32)] = Make<Formula, float, Order, FromResult>::run;
      row[static_cast<int>(DType::kFloat64)] = Make<Formula, double, Order, FromResult>::run;
      row[static_cast<int>(DType::kBFloat16)] = Make<Formula, BFloat16, Order, FromResult>::run;
      row[static_cast<int>(DType::kFloat16)] = Make<Formula, Float16, Order, FromResult>::run;
    }
  };
  fill_order.template operator()<0, false>();
  fill_order.template operator()<1, false>();
  fill_order.template operator()<2, false>();
  fill_order.template operator()<3, false>();
  if constexpr (Formula::kTraits.gradient_from_result) {
    fill_order.template operator()<1, true>();
    fill_order.template operator()<2, true>();
    fill_order.template operator()<3, true>();
  }
  return table;
}

}  // namespace fastact

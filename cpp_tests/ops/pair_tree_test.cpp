// PairTree adds in the order of ops/math/row_order.h for every size of vector registers, including
// sizes that this processor does not have.

// Only functions that are inlined take or return vectors.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "ops/cpu/pair_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>

#include "ops/math/row_order.h"

namespace fastact::testing {
namespace {

using cpu::Largest;
using cpu::PairTree;

template <class T>
struct alignas(64) Input {
  // Numbers of several magnitudes, so that another order gives other bits.
  Input() {
    std::mt19937 generator(3);
    std::normal_distribution<double> distribution;
    for (T& value : values)
      value =
          static_cast<T>(std::ldexp(distribution(generator), static_cast<int>(generator() % 8)));
  }

  T values[256];
};

template <class Sum, class T>
Sum tree(const T* from, int count) {
  if (count == 1) return Sum(*from);
  return tree<Sum>(from, count / 2) + tree<Sum>(from + count / 2, count / 2);
}

template <class T>
void expect_same(T found, T expected) {
  EXPECT_EQ(std::memcmp(&found, &expected, sizeof(T)), 0);
}
template <class T>
void expect_same(RowSum<T> found, RowSum<T> expected) {
  expect_same(found.high, expected.high);
  expect_same(found.low, expected.low);
}

template <class Sum, class T>
Sum sum_of(T high, T low) {
  if constexpr (std::is_same_v<Sum, T>) {
    return high;
  } else {
    return Sum(high, low);
  }
}

template <class T, class Sum, int Bytes, int Count>
void expect_total(const Input<T>& input) {
  SCOPED_TRACE(Count);
  expect_same(PairTree<T, Sum, Bytes>::template total<Count>(input.values),
              tree<Sum>(input.values, Count));
}

template <class T, class Sum, int Bytes>
void expect_tree() {
  SCOPED_TRACE(Bytes);
  const Input<T> input;
  expect_total<T, Sum, Bytes, 16>(input);
  expect_total<T, Sum, Bytes, 32>(input);
  expect_total<T, Sum, Bytes, 64>(input);
  expect_total<T, Sum, Bytes, 128>(input);
  expect_total<T, Sum, Bytes, 256>(input);
  alignas(64) T high[16];
  alignas(64) T low[16] = {};
  PairTree<T, Sum, Bytes>::totals_of_rows(input.values, high, low);
  for (int row = 0; row < 16; ++row) {
    SCOPED_TRACE(row);
    expect_same(sum_of<Sum>(high[row], low[row]), tree<Sum>(input.values + 16 * row, 16));
  }
}

template <class T, class Sum>
void expect_tree_in_all_registers() {
  expect_tree<T, Sum, 16>();
  expect_tree<T, Sum, 32>();
  expect_tree<T, Sum, 64>();
}

TEST(PairTreeTest, Sums) {
  expect_tree_in_all_registers<float, float>();
  expect_tree_in_all_registers<double, double>();
}

TEST(PairTreeTest, SumsWithErrors) {
  expect_tree_in_all_registers<float, RowSum<float>>();
  expect_tree_in_all_registers<double, RowSum<double>>();
}

template <class T>
void expect_that_another_order_differs() {
  const Input<T> input;
  T sum = T{0};
  for (const T value : input.values) sum += value;
  EXPECT_NE(sum, tree<T>(input.values, 256));
}

TEST(PairTreeTest, TheNumbersTellOrdersApart) {
  expect_that_another_order_differs<float>();
  expect_that_another_order_differs<double>();
}

template <class T, int Bytes>
void expect_largest() {
  SCOPED_TRACE(Bytes);
  Input<T> input;
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  for (int i = 0; i < 16; ++i) input.values[i] = -kInfinity;
  input.values[20] = -kInfinity;
  alignas(64) T largest[16];
  PairTree<T, Largest, Bytes>::totals_of_rows(input.values, largest, nullptr);
  for (int row = 0; row < 16; ++row) {
    const T* const values = input.values + 16 * row;
    expect_same(largest[row], *std::max_element(values, values + 16));
  }
}

TEST(PairTreeTest, Largest) {
  expect_largest<float, 16>();
  expect_largest<float, 32>();
  expect_largest<float, 64>();
  expect_largest<double, 16>();
  expect_largest<double, 32>();
  expect_largest<double, 64>();
}

}  // namespace
}  // namespace fastact::testing

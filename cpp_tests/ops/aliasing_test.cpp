// Strided elements are moved as integers. Here the compiler sees both these moves and the accesses
// to the elements. If the two used different types, it could reorder them.
#define FASTACT_TARGET aliasing_test
#include <gtest/gtest.h>

// NOLINTNEXTLINE(bugprone-suspicious-include): the functions under test are in no header
#include "ops/cpu/strided.cpp"

namespace fastact::cpu::inline FASTACT_TARGET {
namespace {

// Each function writes an element, overwrites it with another element, and reads it. The stride is
// a constant, so the compiler sees only one of the loops.
template <int64_t kStride, class T>
[[gnu::noinline]] T scattered(T* to, const T* from) {
  *to = 1;
  with_element(sizeof(T), [&]<class Element>(Element) {
    scatter<Element>(reinterpret_cast<const char*>(from), reinterpret_cast<char*>(to),
                     kStride * static_cast<int64_t>(sizeof(T)), 0, 1, 0, 1);
  });
  return *to;
}

template <int64_t kStride, class T>
[[gnu::noinline]] T gathered(T* to, T* from) {
  *to = 1;
  with_element(sizeof(T), [&]<class Element>(Element) {
    gather<Element>(reinterpret_cast<char*>(from), kStride * static_cast<int64_t>(sizeof(T)), 0, 1,
                    0, 1, reinterpret_cast<char*>(to));
  });
  return *to;
}

template <class T>
class AliasingTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AliasingTest, Types);

// Strides of zero, one and two elements use special loops; all others share one.
TYPED_TEST(AliasingTest, ScatteredElementsAreWritten) {
  TypeParam from = 2;
  TypeParam to = 0;
  EXPECT_EQ((scattered<0>(&to, &from)), 2);
  EXPECT_EQ((scattered<1>(&to, &from)), 2);
  EXPECT_EQ((scattered<3>(&to, &from)), 2);
}

TYPED_TEST(AliasingTest, GatheredElementsAreWritten) {
  TypeParam from = 2;
  TypeParam to = 0;
  EXPECT_EQ((gathered<0>(&to, &from)), 2);
  EXPECT_EQ((gathered<1>(&to, &from)), 2);
  EXPECT_EQ((gathered<2>(&to, &from)), 2);
  EXPECT_EQ((gathered<3>(&to, &from)), 2);
}

}  // namespace
}  // namespace fastact::cpu::inline FASTACT_TARGET

#include "ops/cpu/norm_sums.h"

#include <cstdint>

#include "ops/cpu/fused_blocks.h"
#include "ops/cpu/lanes.h"

namespace fastact::cpu::inline FASTACT_TARGET {
namespace {

template <class T>
class Row {
 public:
  explicit Row(const NormRow& row)
      : x_(static_cast<const T*>(row.x)),
        g_(static_cast<const T*>(row.g)),
        mean_(*static_cast<const T*>(row.mean)),
        correction_(*static_cast<const T*>(row.correction)),
        r_(*static_cast<const T*>(row.r)) {}

  [[nodiscard]] FASTACT_INLINE T gradient(int64_t i) const { return g_[i]; }
  [[nodiscard]] FASTACT_INLINE T product(int64_t i) const {
    return g_[i] * (((x_[i] - mean_) - correction_) * r_);
  }

 private:
  const T* x_;
  const T* g_;
  T mean_;
  T correction_;
  T r_;
};

template <class T>
void add_to_columns(const NormRow& of_row, int64_t n, void* weight_sums, void* bias_sums) {
  const Row<T> row(of_row);
  auto* const of_weight = static_cast<T*>(weight_sums);
  auto* const of_bias = static_cast<T*>(bias_sums);
  if (of_weight != nullptr && of_bias != nullptr) {
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; ++i) {
      of_weight[i] += row.product(i);
      of_bias[i] += row.gradient(i);
    }
  } else if (of_weight != nullptr) {
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; ++i) of_weight[i] += row.product(i);
  } else if (of_bias != nullptr) {
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < n; ++i) of_bias[i] += row.gradient(i);
  }
}

template <class T>
void store_columns(const void* sums, int64_t n, double* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<double>(static_cast<const T*>(sums)[i]);
}

// Adds blocks of kSumBlock terms in double.
template <class T, class Term>
double sum_of_blocks(int64_t n, const Term& term) {
  double sum = 0.0;
  for (int64_t start = 0; start < n; start += kSumBlock) {
    const int64_t in_block = n - start < kSumBlock ? n - start : kSumBlock;
    const T of_block = sum_in_lanes<T>(in_block, [&](int64_t i) { return term(start + i); });
    sum += static_cast<double>(of_block);
  }
  return sum;
}

template <class T>
void add_channels(const NormRow& of_row, int64_t n, int64_t channels, int64_t stride,
                  double* weight_sums, double* bias_sums) {
  const Row<T> row(of_row);
  for (int64_t channel = 0; channel < channels; ++channel) {
    const int64_t first = channel * stride;
    if (weight_sums != nullptr) {
      weight_sums[channel] = sum_of_blocks<T>(n, [&](int64_t i) { return row.product(first + i); });
    }
    if (bias_sums != nullptr) {
      bias_sums[channel] = sum_of_blocks<T>(n, [&](int64_t i) { return row.gradient(first + i); });
    }
  }
}

template <class Element>
void widen_elements(const void* elements, void* numbers, int64_t n) {
  apply<Product<OpMath<Element>, Element>>(n, static_cast<OpMath<Element>*>(numbers),
                                           static_cast<const Element*>(elements));
}

template <class T>
constexpr NormSums kSumsOf = {&add_to_columns<T>, &store_columns<T>, &add_channels<T>,
                              &widen_elements<T>};

}  // namespace

NormSums norm_sums(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return kSumsOf<float>;
    case DType::kFloat64:
      return kSumsOf<double>;
    case DType::kBFloat16:
      return {.widen = &widen_elements<BFloat16>};
    case DType::kFloat16:
      return {.widen = &widen_elements<Float16>};
  }
  return {};
}

}  // namespace fastact::cpu::inline FASTACT_TARGET

// The CUDA engine with forms that have no operator (forms.h): several outputs and operands of
// several types, at lengths around packets and blocks, at offsets from packet boundaries, strided,
// broadcast and in place.
#if FASTACT_HAS_CUDA

#include "cpp_tests/ops/forms_cuda.h"

#include <cstring>

#include "cpp_tests/ops/device.h"
#include "cpp_tests/ops/forms.h"

namespace fastact::testing {
namespace {

constexpr Parameters kParameters = {{0.5}};

constexpr int64_t kAround = 16;

// The elements of one operand in host and device memory, with kAround more before and after them.
template <class Element>
struct Operand {
  explicit Operand(int64_t count) : host(count + 2 * kAround) {
    for (int64_t i = 0; i < std::ssize(host); ++i)
      host[i] = round_to<Element>(static_cast<OpMath<Element>>(0.37 * (i % 1013) - 150.0));
  }

  [[nodiscard]] std::span<const char> bytes() const {
    return {reinterpret_cast<const char*>(host.data()), host.size() * sizeof(Element)};
  }
  void upload() {
    DeviceMemory::copy(device.data(), host.data(), bytes().size(), cudaMemcpyHostToDevice);
  }
  [[nodiscard]] Element* on_device(int64_t first) const {
    return reinterpret_cast<Element*>(device.data()) + kAround + first;
  }
  Element& operator[](int64_t i) { return host[kAround + i]; }

  [[nodiscard]] ::testing::AssertionResult as_on_device() const {
    const std::vector<char> got = device.download();
    for (size_t i = 0; i < host.size(); ++i) {
      if (std::memcmp(&host[i], got.data() + i * sizeof(Element), sizeof(Element)) != 0)
        return ::testing::AssertionFailure() << "element " << static_cast<int64_t>(i) - kAround;
    }
    return ::testing::AssertionSuccess();
  }

  std::vector<Element> host;
  DeviceMemory device{host.size() * sizeof(Element)};
};

// A contiguous or strided launch: the sizes of the dimensions and the strides in elements, fastest
// first; and the first element of each operand.
struct Placement {
  std::vector<int64_t> shape;
  std::vector<std::vector<int64_t>> strides;  // none: contiguous
  std::vector<int64_t> firsts;

  [[nodiscard]] int64_t size() const {
    int64_t product = 1;
    for (const int64_t n : shape) product *= n;
    return product;
  }
  // Returns the place of element `index` of the operand.
  [[nodiscard]] int64_t at(int operand, int64_t index) const {
    if (strides.empty()) return firsts[operand] + index;
    int64_t place = firsts[operand];
    for (size_t d = 0; d < shape.size(); ++d) {
      place += index % shape[d] * strides[operand][d];
      index /= shape[d];
    }
    return place;
  }
  template <class... Element>
  [[nodiscard]] cuda::Operands operands(const Operand<Element>&... operand) const {
    cuda::Operands result;
    result.size = size();
    int i = 0;
    ((result.data[i] = operand.on_device(firsts[i]), ++i), ...);
    if (strides.empty()) return result;
    result.dimensions = static_cast<int>(shape.size());
    constexpr int64_t kBytes[] = {sizeof(Element)...};
    for (int d = 0; d < result.dimensions; ++d) {
      result.shape[d] = shape[d];
      for (size_t j = 0; j < sizeof...(Element); ++j)
        result.strides[j][d] = strides[j][d] * kBytes[j];
    }
    return result;
  }
};

class CudaFormsTest : public CudaEnvironment {
 protected:
  // Compares the outputs with evaluate() on the host, element by element, and the memory around
  // them with its previous contents.
  static void check_sum_and_product(const Placement& placement) {
    constexpr int64_t kCount = 80'000;
    static Operand<float> sum(kCount);
    static Operand<BFloat16> product(kCount);
    static Operand<BFloat16> a(kCount);
    static Operand<float> b(kCount);
    for (int64_t i = -kAround; i < kCount + kAround; ++i) {
      sum[i] = -7.0f;
      product[i] = BFloat16{0x5a5a};
    }
    sum.upload();
    product.upload();
    a.upload();
    b.upload();
    const cuda::Operands operands = placement.operands(sum, product, a, b);
    ASSERT_EQ(kSumAndProduct(kParameters, operands, nullptr), cudaSuccess);
    const SumAndProduct form(kParameters.values);
    for (int64_t i = 0; i < placement.size(); ++i) {
      const auto row = form.evaluate(widen(a[placement.at(2, i)]), b[placement.at(3, i)]);
      sum[placement.at(0, i)] = row.first;
      product[placement.at(1, i)] = round_to<BFloat16>(row.rest.first);
    }
    ASSERT_TRUE(sum.as_on_device());
    ASSERT_TRUE(product.as_on_device());
  }
};

// Lengths up to those of a packet and a block. The operands' first elements are at a packet
// boundary, next to one, and at different distances from one.
TEST_F(CudaFormsTest, SeveralOutputsOfSeveralTypesDense) {
  for (const std::vector<int64_t>& firsts :
       {std::vector<int64_t>{0, 0, 0, 0}, {1, 1, 1, 1}, {3, 3, 3, 3}, {1, 0, 2, 3}, {0, 1, 0, 0}}) {
    for (const int64_t around : {0, 128 * 4, 128 * 4 * 2, 70'000}) {
      for (int64_t n = around == 0 ? 0 : around - 9; n <= around + 9; ++n) {
        SCOPED_TRACE(::testing::Message()
                     << n << " elements, first " << firsts[0] << ' ' << firsts[1]);
        check_sum_and_product({{n}, {}, firsts});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaFormsTest, SeveralOutputsOfSeveralTypesStrided) {
  const std::vector<int64_t> aligned = {0, 0, 0, 0};
  const std::vector<int64_t> not_aligned = {1, 2, 3, 5};
  const Placement placements[] = {
      {{33, 5}, {{2, 80}, {1, 40}, {3, 100}, {1, 33}}, not_aligned},
      {{33, 5, 7}, {{1, 40, 200}, {7, 231, 1}, {0, 1, 5}, {1, 0, 33}}, not_aligned},
      {{1}, {{1}, {1}, {1}, {1}}, aligned},
      // Rows in packets; some rows are repeated.
      {{64, 9}, {{1, 64}, {1, 128}, {1, 72}, {1, 0}}, aligned},
      {{512, 100}, {{1, 600}, {1, 520}, {1, 0}, {1, 512}}, aligned},
  };
  for (const Placement& placement : placements) {
    SCOPED_TRACE(::testing::Message() << "rows of " << placement.shape[0]);
    check_sum_and_product(placement);
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaFormsTest, AnOutputInThePlaceOfAnInput) {
  for (const int64_t n : {1, 7, 8, 9, 255, 256, 257, 4097}) {
    for (const bool strided : {false, true}) {
      Operand<Float16> a(2 * n);
      Operand<double> b(2 * n);
      a.upload();
      b.upload();
      Placement placement = {{n}, {}, {0, 0, 0}};
      if (strided) placement.strides = {{2}, {1}, {2}};
      const cuda::Operands operands = placement.operands(b, a, b);
      ASSERT_EQ(kWideDifference(kParameters, operands, nullptr), cudaSuccess);
      const WideDifference form(kParameters.values);
      for (int64_t i = 0; i < n; ++i)
        b[placement.at(0, i)] = form.evaluate(widen(a[placement.at(1, i)]), b[placement.at(2, i)]);
      ASSERT_TRUE(b.as_on_device()) << n << (strided ? " elements, strided" : " elements");
      ASSERT_TRUE(a.as_on_device());
    }
  }
}

}  // namespace
}  // namespace fastact::testing

#endif  // FASTACT_HAS_CUDA

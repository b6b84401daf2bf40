// Shared by the tests of this folder: element formats to the last bit, memory between inaccessible
// pages, inputs, and the list of all kernels.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/catalogue.h"
#include "ops/cpu/engine.h"
#include "ops/forms/derivative.h"

namespace fastact::testing {

// Unoptimised, instrumented and emulated builds use samples. The first two look for other mistakes
// than wrong bits.
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    defined(FASTACT_EMULATED)
inline constexpr bool kSlowBuild = true;
#else
inline constexpr bool kSlowBuild = false;
#endif

// How a test gets a process that has not called the engine yet. An emulated program cannot be
// restarted, but it can fork; such tests come first in their process.
#if defined(FASTACT_EMULATED)
inline constexpr const char* kNewProcess = "fast";
#else
inline constexpr const char* kNewProcess = "threadsafe";
#endif

// ---- Element formats

// An IEEE 754 binary format. Elements are handled as bits, in the low end of a uint64_t.
struct Format {
  DType dtype;
  const char* name;
  int bytes;
  int fraction_bits;

  [[nodiscard]] constexpr uint64_t sign() const { return uint64_t{1} << (8 * bytes - 1); }
  [[nodiscard]] constexpr uint64_t infinity() const {
    return sign() - (uint64_t{1} << fraction_bits);
  }
  // FastAct's canonical NaN: quiet, positive sign, every payload bit set.
  [[nodiscard]] constexpr uint64_t canonical_nan() const { return sign() - 1; }
  [[nodiscard]] constexpr uint64_t one() const {
    return static_cast<uint64_t>(bias()) << fraction_bits;
  }
  [[nodiscard]] constexpr uint64_t smallest_normal() const { return uint64_t{1} << fraction_bits; }
  [[nodiscard]] constexpr uint64_t largest() const { return infinity() - 1; }
  [[nodiscard]] constexpr uint64_t all_bits() const { return sign() | (sign() - 1); }
  [[nodiscard]] constexpr int bias() const { return (1 << (8 * bytes - 2 - fraction_bits)) - 1; }
  [[nodiscard]] constexpr int min_exponent() const { return 1 - bias(); }
  [[nodiscard]] constexpr bool is_nan(uint64_t bits) const {
    return (bits & (sign() - 1)) > infinity();
  }

  [[nodiscard]] uint64_t load(const void* address) const {
    uint64_t bits = 0;
    if (bytes == 2) {
      bits = load_as<uint16_t>(address);
    } else if (bytes == 4) {
      bits = load_as<uint32_t>(address);
    } else {
      bits = load_as<uint64_t>(address);
    }
    return bits;
  }
  void store(void* address, uint64_t bits) const {
    if (bytes == 2) {
      store_as<uint16_t>(address, bits);
    } else if (bytes == 4) {
      store_as<uint32_t>(address, bits);
    } else {
      store_as<uint64_t>(address, bits);
    }
  }

 private:
  template <class T>
  static T load_as(const void* address) {
    T value;
    std::memcpy(&value, address, sizeof(T));
    return value;
  }
  template <class T>
  static void store_as(void* address, uint64_t bits) {
    const auto value = static_cast<T>(bits);
    std::memcpy(address, &value, sizeof(T));
  }
};

// In DType's order.
inline constexpr Format kFormats[kNumDTypes] = {{DType::kFloat32, "float32", 4, 23},
                                                {DType::kFloat64, "float64", 8, 52},
                                                {DType::kBFloat16, "bfloat16", 2, 7},
                                                {DType::kFloat16, "float16", 2, 10}};

inline const Format& format_of(DType dtype) { return kFormats[static_cast<int>(dtype)]; }

// Returns the value of an element. It is exact, because long double has the range and precision of
// every format.
inline long double decode(const Format& format, uint64_t bits) {
  const uint64_t magnitude = bits & (format.sign() - 1);
  const auto exponent = static_cast<int>(magnitude >> format.fraction_bits);
  const uint64_t hidden = uint64_t{1} << format.fraction_bits;
  const uint64_t fraction = magnitude & (hidden - 1);
  long double value = 0;
  if (magnitude > format.infinity()) {
    value = std::numeric_limits<long double>::quiet_NaN();
  } else if (magnitude == format.infinity()) {
    value = std::numeric_limits<long double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<long double>(fraction),
                       format.min_exponent() - format.fraction_bits);
  } else {
    value = std::ldexp(static_cast<long double>(fraction | hidden),
                       exponent - format.bias() - format.fraction_bits);
  }
  return (bits & format.sign()) != 0 ? -value : value;
}

// Returns the exponent of y's last place in the format, also below its normal range.
inline int last_place_exponent(const Format& format, long double y) {
  const int exponent = y == 0 ? format.min_exponent() : std::ilogb(y);
  return std::max(exponent, format.min_exponent()) - format.fraction_bits;
}

// Returns y rounded to nearest even, or the canonical NaN for a NaN.
inline uint64_t encode_nearest(const Format& format, long double y) {
  if (std::isnan(y)) return format.canonical_nan();
  const uint64_t sign = std::signbit(y) ? format.sign() : 0;
  if (std::isinf(y)) return sign | format.infinity();
  const int place = last_place_exponent(format, y);
  const auto units = static_cast<uint64_t>(std::nearbyint(std::ldexp(std::fabs(y), -place)));
  // The hidden bit of a normal number, or a carry, increments the exponent.
  const auto exponent = static_cast<uint64_t>(place + format.fraction_bits - format.min_exponent());
  const uint64_t magnitude = units + (exponent << format.fraction_bits);
  return sign | std::min(magnitude, format.infinity());
}

// Returns the distance of an element from the exact value, in units of the exact value's last
// place.
inline long double ulp_error(const Format& format, uint64_t bits, long double exact) {
  const long double value = decode(format, bits);
  if (std::isnan(exact) || std::isinf(value) || std::isnan(value)) {
    return bits == encode_nearest(format, exact) ? 0 : std::numeric_limits<long double>::infinity();
  }
  return std::fabs(std::ldexp(value - exact, -last_place_exponent(format, exact)));
}

inline std::string hex(const Format& format, uint64_t bits) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "0x";
  for (int shift = 8 * format.bytes - 4; shift >= 0; shift -= 4) {
    text += kDigits[(bits >> shift) & 0xf];
  }
  return text;
}

// ---- Memory

// `size` bytes between inaccessible pages. They end (or begin) exactly at one.
class GuardedMemory {
 public:
  enum class Edge { kEnd, kBegin };

  explicit GuardedMemory(size_t size, Edge edge = Edge::kEnd)
      : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
        inner_(std::max<size_t>(1, (size + page_ - 1) / page_) * page_) {
    void* const base =
        mmap(nullptr, inner_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::runtime_error("mmap failed");
    base_ = static_cast<char*>(base);
    if (mprotect(base_ + page_, inner_, PROT_READ | PROT_WRITE) != 0) {
      throw std::runtime_error("mprotect failed");
    }
    data_ = base_ + page_ + (edge == Edge::kEnd ? inner_ - size : 0);
  }
  ~GuardedMemory() { munmap(base_, inner_ + 2 * page_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  [[nodiscard]] char* data() const { return data_; }
  // Returns all accessible memory: data() and the rest of its pages.
  [[nodiscard]] std::span<char> pages() const { return {base_ + page_, inner_}; }

 private:
  size_t page_;
  size_t inner_;
  char* base_ = nullptr;
  char* data_ = nullptr;
};

// ---- Inputs

// Returns a number that an environment variable may set.
inline uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing writes it
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

// Each test has its own seed, so that every run uses the same numbers.
using Random = std::mt19937_64;
inline Random seeded(uint64_t seed) { return Random(seed); }

inline int64_t random_between(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// Zeros, infinities, NaNs with payloads and either sign, and both ends of every range.
inline std::vector<uint64_t> special_values(const Format& format) {
  const uint64_t quiet = uint64_t{1} << (format.fraction_bits - 1);
  std::vector<uint64_t> values;
  for (const uint64_t magnitude :
       {uint64_t{0}, uint64_t{1}, format.smallest_normal() - 1, format.smallest_normal(),
        format.one(), format.largest(), format.infinity(), format.infinity() + 1,
        format.infinity() | quiet, format.infinity() | quiet | 5, format.canonical_nan()}) {
    values.push_back(magnitude);
    values.push_back(magnitude | format.sign());
  }
  return values;
}

// Returns elements of every kind. Half are between -16 and 16; the others are random bits,
// including special values.
inline std::vector<uint64_t> mixed_values(const Format& format, size_t count, uint64_t seed) {
  Random random = seeded(seed);
  std::uniform_real_distribution<double> ordinary(-16, 16);
  const std::vector<uint64_t> specials = special_values(format);
  std::vector<uint64_t> values(count);
  for (uint64_t& value : values) {
    const uint64_t choice = random();
    if (choice % 2 == 0) {
      value = encode_nearest(format, ordinary(random));
    } else if (choice % 16 == 1) {
      value = specials[(choice >> 8) % specials.size()];
    } else {
      value = random() & format.all_bits();
    }
  }
  return values;
}

// Returns the elements in their memory format.
inline std::vector<char> pack(const Format& format, std::span<const uint64_t> values) {
  std::vector<char> memory(values.size() * format.bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    format.store(memory.data() + i * format.bytes, values[i]);
  }
  return memory;
}

// ---- Parameters

// Returns the schema's defaults, or 0.5, 0.25, ... for parameters without one.
inline Parameters default_parameters(const Activation& activation) {
  Parameters parameters;
  for (size_t i = 0; i < activation.parameters.size(); ++i) {
    const double otherwise = std::ldexp(1.0, -1 - static_cast<int>(i));
    parameters.values[i] = activation.parameters[i].default_value.value_or(otherwise);
  }
  return parameters;
}

// Returns a number of ordinary size, or one that is tiny, huge, zero, subnormal or not finite.
inline double draw_parameter(Random& random) {
  const auto size = [&](double low, double high) {
    return std::exp2(std::uniform_real_distribution<double>(low, high)(random));
  };
  const double sign = random() % 4 == 0 ? -1 : 1;
  switch (random() % 16) {
    case 0:
      return sign * size(-126, -20);
    case 1:
      return sign * size(20, 127);
    case 2:
      return sign * size(-149, -126);
    case 3:
      return sign * size(-1074, -149);
    case 4:
      return sign * size(127, 1023);
    case 5:
      return sign * 0.0;
    case 6:
      return sign * std::numeric_limits<double>::infinity();
    case 7:
      return std::numeric_limits<double>::quiet_NaN();
    default:
      return sign * size(-4, 4);
  }
}

inline Parameters draw_parameters(Random& random) {
  Parameters parameters;
  for (double& value : parameters.values) value = draw_parameter(random);
  return parameters;
}

// ---- Kernels

// Identifies a derivative's kernel, in the terms of the engines.
struct DerivativeId {
  int order = 0;
  bool from_result = false;
  DType dtype = DType::kFloat32;

  // NOLINTNEXTLINE(google-explicit-constructor): a DerivativeId is a KernelId
  operator KernelId() const { return {derivative_form(order, from_result), dtype}; }
};

// One kernel of one activation.
struct KernelCase {
  int activation = 0;
  DerivativeId id;
  Parameters parameters = default_parameters(activations()[activation]);

  [[nodiscard]] const Activation& info() const { return activations()[activation]; }
  [[nodiscard]] const Format& format() const { return format_of(id.dtype); }
  [[nodiscard]] int operands() const { return id.order + 2; }
  // Returns a name such as "selu_order1_from_result_bfloat16".
  [[nodiscard]] std::string name() const {
    return std::string(info().name) + "_order" + std::to_string(id.order) +
           (id.from_result ? "_from_result_" : "_") + format().name;
  }
};

inline void PrintTo(const KernelCase& kernel, std::ostream* stream) { *stream << kernel.name(); }

// Returns the name and the parameters, for which the name has no room.
inline std::string described(const KernelCase& kernel) {
  std::string text = kernel.name() + " at";
  for (const double value : kernel.parameters.values) text += ' ' + std::to_string(value);
  return text;
}

inline std::vector<KernelCase> all_kernels() {
  std::vector<KernelCase> kernels;
  for (int activation = 0; activation < static_cast<int>(activations().size()); ++activation) {
    const bool with_result = activations()[activation].traits.gradient_from_result;
    for (int order = 0; order <= kTopOrder; ++order) {
      for (const Format& format : kFormats) {
        kernels.push_back({activation, {order, false, format.dtype}});
        if (with_result && order > 0) kernels.push_back({activation, {order, true, format.dtype}});
      }
    }
  }
  return kernels;
}

// Returns the kernels whose results depend on parameters, each with `count` random sets.
inline std::vector<KernelCase> kernels_at_drawn_parameters(int count, uint64_t seed) {
  std::vector<KernelCase> kernels;
  Random random = seeded(seed);
  for (KernelCase kernel : all_kernels()) {
    if (kernel.info().parameters.empty()) continue;
    for (int i = 0; i < count; ++i) {
      kernel.parameters = draw_parameters(random);
      kernels.push_back(kernel);
    }
  }
  return kernels;
}

template <class Predicate>
std::vector<KernelCase> kernels_where(const Predicate& predicate) {
  std::vector<KernelCase> kernels = all_kernels();
  std::erase_if(kernels, [&](const KernelCase& kernel) { return !predicate(kernel.id); });
  return kernels;
}

struct KernelCaseName {
  std::string operator()(const ::testing::TestParamInfo<KernelCase>& info) const {
    return info.param.name();
  }
};

// Runs the kernel on n contiguous elements of the output, the gradients and x.
inline void run_dense(const KernelCase& kernel, cpu::InstructionSet set,
                      std::span<char* const> operands, int64_t n) {
  int64_t strides[2 * kMaxOperands] = {};
  std::fill_n(strides, kernel.operands(), kernel.format().bytes);
  cpu::find_kernel(kernel.activation, kernel.id, set)(kernel.parameters, operands.data(), strides,
                                                      n, 1);
}

// Returns the kernel's result for one element. `inputs` are the gradients, then x.
inline uint64_t run_one(const KernelCase& kernel, cpu::InstructionSet set,
                        std::span<const uint64_t> inputs) {
  alignas(8) char elements[kMaxOperands][8] = {};
  char* operands[kMaxOperands];
  for (int i = 0; i < kernel.operands(); ++i) {
    operands[i] = elements[i];
    if (i > 0) kernel.format().store(elements[i], inputs[i - 1]);
  }
  run_dense(kernel, set, operands, 1);
  return kernel.format().load(elements[0]);
}

// Runs the kernel on vectors of elements: the gradients, then x. Omitted gradients are 1.
inline std::vector<uint64_t> run_all(const KernelCase& kernel, cpu::InstructionSet set,
                                     std::span<const uint64_t> x,
                                     std::span<const std::vector<uint64_t>> gradients = {}) {
  const Format& format = kernel.format();
  std::vector<std::vector<char>> memory(kernel.operands());
  char* operands[kMaxOperands];
  for (int i = 0; i < kernel.operands(); ++i) {
    if (i == kernel.operands() - 1) {
      memory[i] = pack(format, x);
    } else if (i == 0) {
      memory[i].resize(x.size() * format.bytes);
    } else {
      memory[i] = pack(format, gradients.empty() ? std::vector<uint64_t>(x.size(), format.one())
                                                 : gradients[i - 1]);
    }
    operands[i] = memory[i].data();
  }
  run_dense(kernel, set, operands, static_cast<int64_t>(x.size()));
  std::vector<uint64_t> results(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    results[i] = format.load(memory[0].data() + i * format.bytes);
  }
  return results;
}

}  // namespace fastact::testing

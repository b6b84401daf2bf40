// Computes a part of the digests of prove/digests.json with the engine alone. Torch is not needed,
// so this test runs wherever the engine runs. The inputs are those of prove/inputs.py, and the sum
// in 64-bit integers is that of prove/digest.py.
//
// FASTACT_DIGEST_RESULTS=N omits spaces whose part has more than N results. The default, 65536,
// keeps all inputs of the 16-bit types; 16777216 keeps everything.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <map>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cpp_tests/ops/support.h"

namespace fastact::testing {
namespace {

struct Digest {
  std::string_view activation;  // "elu-alpha=1.0-scale=1.0-input_scale=1.0"
  std::string_view dtype;
  std::string_view form;
  std::string_view space;
  uint64_t part;
};

// Without constexpr, GCC compiles an initialization of each row.
constexpr Digest kDigests[] = {
#include "cpp_tests/digests.inc"
};

constexpr uint64_t kResults = 1 << 16;

uint64_t largest_part() {
  const char* text = std::getenv("FASTACT_DIGEST_RESULTS");  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr || *text == '\0' ? kResults : std::strtoull(text, nullptr, 10);
}

// ---- Words: the increment of splitmix64, and two rounds of its finalizer

constexpr uint64_t kStep = 0x9E3779B97F4A7C15;

uint64_t mix(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
  return (word ^ (word >> 27)) * 0x94D049BB133111EB;
}

uint64_t fold(uint64_t word) { return word ^ (word >> 32); }

// ---- Spaces

constexpr uint64_t kBlock = 1 << 17;
constexpr uint64_t kPart = 256;
constexpr uint64_t kStripe = 1 << 12;

enum class Inputs : uint8_t { kPatterns, kPairs, kMixed };

struct Space {
  Inputs inputs;
  bool gradients;  // gradients of the same kind as the inputs; otherwise they are 1
  uint64_t elements;
};

const std::map<std::string, Space>& spaces() {
  static const std::map<std::string, Space> kSpaces = {
      {"all 2^16 inputs", {Inputs::kPatterns, false, uint64_t{1} << 16}},
      {"all 2^32 inputs", {Inputs::kPatterns, false, uint64_t{1} << 32}},
      {"fixed 2^28 inputs", {Inputs::kMixed, false, uint64_t{1} << 28}},
      {"all 2^32 pairs", {Inputs::kPairs, true, uint64_t{1} << 32}},
      {"fixed 2^30 sets of operands", {Inputs::kMixed, true, uint64_t{1} << 30}},
  };
  return kSpaces;
}

uint64_t results_in_part(const Space& space) {
  return space.elements <= kBlock * kPart ? space.elements : space.elements / kPart;
}

template <class Bits>
void fill_patterns(Bits* to, uint64_t first, uint64_t count, int shift) {
  for (uint64_t i = 0; i < count; ++i) to[i] = static_cast<Bits>((first + i) >> shift);
}

// Fills memory with pseudo-random words. Every second stripe contains elements of ordinary size.
void fill_mixed(const Format& format, char* to, int operand, uint64_t first, uint64_t count) {
  const int width = 8 * format.bytes;
  const int kept = std::min(5, width - 2 - format.fraction_bits);
  const uint64_t keep = format.sign() | ((uint64_t{1} << (kept + format.fraction_bits)) - 1);
  const auto exponent = static_cast<uint64_t>(format.bias() - (1 << (kept - 1)));
  uint64_t keeps = 0;
  uint64_t starts = 0;
  for (int lane = 0; lane < 64; lane += width) {
    keeps |= keep << lane;
    starts |= exponent << format.fraction_bits << lane;
  }
  const uint64_t first_word = first * format.bytes / 8;
  const uint64_t counter = ((static_cast<uint64_t>(operand) + 1) << 40) + first_word;
  for (uint64_t i = 0; i < count * format.bytes / 8; ++i) {
    uint64_t word = fold(mix((counter + i) * kStep));
    if (i / kStripe % 2 != 0) word = (word & keeps) + starts;
    std::memcpy(to + 8 * i, &word, 8);
  }
}

void fill(const Format& format, const Space& space, char* to, int operand, int operands,
          uint64_t first, uint64_t count) {
  const bool is_gradient = operand < operands - 1;
  if (is_gradient && !space.gradients) {
    for (uint64_t i = 0; i < count; ++i) format.store(to + i * format.bytes, format.one());
  } else if (space.inputs == Inputs::kMixed) {
    fill_mixed(format, to, space.gradients ? operand : 0, first, count);
  } else if (format.bytes == 2) {
    const int shift = space.inputs == Inputs::kPairs && is_gradient ? 16 : 0;
    fill_patterns(reinterpret_cast<uint16_t*>(to), first, count, shift);
  } else {
    fill_patterns(reinterpret_cast<uint32_t*>(to), first, count, 0);
  }
}

// ---- Kernels

struct Case {
  Digest digest;
  const Format* format;
  Space space;
};

void PrintTo(const Case& digest, std::ostream* stream) {
  *stream << digest.digest.activation << " " << digest.digest.dtype << " " << digest.digest.form;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Digest& digest : kDigests) {
    const auto format = std::ranges::find(kFormats, digest.dtype, &Format::name);
    if (format == std::end(kFormats))
      throw std::out_of_range("no format " + std::string(digest.dtype));
    const Space& space = spaces().at(std::string(digest.space));
    if (results_in_part(space) <= largest_part()) all.push_back({digest, format, space});
  }
  return all;
}

// Returns the schema's numbers from the name of a digest, such as "elu-alpha=1.0-scale=1.0".
Parameters parameters_of(const Activation& activation, std::string_view id) {
  Parameters parameters;
  for (size_t i = 0; i < activation.parameters.size(); ++i) {
    const std::string name = "-" + std::string(activation.parameters[i].name) + "=";
    const size_t where = id.find(name);
    if (where == std::string::npos) throw std::out_of_range("a name lacks " + name);
    parameters.values[i] = std::strtod(id.data() + where + name.size(), nullptr);
  }
  return parameters;
}

struct Call {
  int family = -1;
  KernelId id;
  Parameters parameters;
};

Call call_of(const Case& digest) {
  const DType dtype = digest.format->dtype;
  const std::string_view form = digest.digest.form;
  if (digest.digest.activation == "prelu") {
    const std::map<std::string, int> forms = {{"value", 0},
                                              {"gradients_by_input", 1},
                                              {"gradients_by_weight", 2},
                                              {"second_by_weight", 3}};
    return {family_index("prelu"), {forms.at(std::string(form)), dtype}, {}};
  }
  const std::string_view name =
      digest.digest.activation.substr(0, digest.digest.activation.find('-'));
  const int family = family_index(name);
  if (family < 0) return {};
  const size_t number = form.find('_');
  const int order = form == "value" ? 0 : form[number + 1] - '0';
  return {family,
          {derivative_form(order, form.ends_with("_from_result")), dtype},
          parameters_of(activations()[family], digest.digest.activation)};
}

class DigestsTest : public ::testing::TestWithParam<Case> {};

TEST_P(DigestsTest, EveryInstructionSetGivesTheRecordedBits) {
  const auto& [digest, format, space] = GetParam();
  const Call call = call_of(GetParam());
  if (call.family < 0) {
#if defined(FASTACT_ONLY)
    GTEST_SKIP() << "this build leaves the activation out";
#else
    FAIL() << "expected an activation of the catalogue, but got " << digest.activation;
#endif
  }
  const int operands = 1 + families()[call.family].forms[call.id.form].inputs;
  const uint64_t count = std::min(kBlock, space.elements);

  std::vector<std::vector<uint64_t>> memory(operands);
  char* data[kMaxOperands];
  int64_t strides[2 * kMaxOperands] = {};
  for (int i = 0; i < operands; ++i) {
    memory[i].resize(count * format->bytes / 8);
    data[i] = reinterpret_cast<char*>(memory[i].data());
    strides[i] = format->bytes;
  }
  std::map<cpu::InstructionSet, uint64_t> sums;
  for (uint64_t block = 0; block < space.elements / count; ++block) {
    if (space.elements > kBlock * kPart && (block * 0x9E3779B1 >> 16) % kPart != 0) continue;
    const uint64_t first = block * count;
    for (int i = 1; i < operands; ++i) {
      fill(*format, space, data[i], i - 1, operands - 1, first, count);
    }
    for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
      cpu::find_kernel(call.family, call.id, set)(call.parameters, data, strides,
                                                  static_cast<int64_t>(count), 1);
      const uint64_t place = first * format->bytes / 8;
      uint64_t& sum = sums[set];
      for (uint64_t i = 0; i < memory[0].size(); ++i) {
        sum += fold(mix((place + i) * kStep ^ memory[0][i]));
      }
    }
  }
  for (const auto& [set, sum] : sums) {
    EXPECT_EQ(sum, digest.part) << cpu::name_of(set) << ": the bits differ from those recorded";
  }
}

struct CaseName {
  std::string operator()(const ::testing::TestParamInfo<Case>& info) const {
    const Digest& digest = info.param.digest;
    std::string name(digest.activation);
    name.append("_").append(digest.form).append("_").append(digest.dtype);
    std::ranges::replace_if(name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return name;
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, DigestsTest, ::testing::ValuesIn(cases()), CaseName());

}  // namespace
}  // namespace fastact::testing

// The definitions of the activations for the tests: in long double, and in 113 bits where long
// double leaves a doubt. Nothing here is shared with the library. A new activation adds one row.
#pragma once

#include <cfloat>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "cpp_tests/ops/support.h"

namespace fastact::testing {

// A type with at least 106 correct bits: the compiler's 128-bit type, or long double if it is that
// wide.
#if defined(__SIZEOF_FLOAT128__) && LDBL_MANT_DIG < 113
using Quad = __float128;
#else
using Quad = long double;
#endif

// Returns a constant from its decimal digits, such as "1.0507...".
template <class Real>
Real decimal(std::string_view digits) {
  Quad numerator = 0;
  Quad denominator = 1;
  bool after_point = false;
  for (const char c : digits) {
    if (c == '.') {
      after_point = true;
      continue;
    }
    numerator = numerator * 10 + (c - '0');
    if (after_point) denominator *= 10;
  }
  return static_cast<Real>(numerator / denominator);
}

// e^x and e^x - 1: in long double by the C library, in Quad by the Taylor series.
template <class Real>
Real taylor_exponential_minus_one(Real r) {
  Real sum = 0;
  for (int k = 34; k >= 1; --k) sum = (sum + 1) * r / k;
  return sum;
}

template <class Real>
Real exponential(Real x) {
  if constexpr (std::is_same_v<Real, long double>) {
    return std::exp(x);
  } else {
    static const Real kLn2 = decimal<Real>("0.693147180559945309417232121458176568");
    const auto n = static_cast<int>(std::nearbyint(static_cast<double>(x / kLn2)));
    return (1 + taylor_exponential_minus_one(x - n * kLn2)) * std::ldexp(1.0L, n);
  }
}

template <class Real>
Real exponential_minus_one(Real x) {
  if constexpr (std::is_same_v<Real, long double>) {
    return std::expm1(x);
  } else {
    return x > -0.5 && x < 0.5 ? taylor_exponential_minus_one(x) : exponential(x) - 1;
  }
}

// The accuracy that a row promises for its kernels with gradients of 1.
struct Promise {
  // Orders up to this one are correctly rounded in the 16-bit types, for every input.
  int exact_16bit_orders = kTopOrder;
  // ULP; 0.5 means correctly rounded.
  long double float32_value = 0.5L;
  long double float32_first = 0.501L;
  // The first derivative with any gradient, except close to underflow.
  long double float32_products = 0.51L;
  long double float32_derivatives = 0.501L;  // the other derivatives
  long double float64 = 1.5L;
};

struct Oracle {
  std::string_view name;
  // f^(order)(x).
  long double (*quick)(int order, long double x);
  Quad (*precise)(int order, Quad x);
  // d^(order - 1)(y) for d(y) = f'(f^-1(y)). Null if the library has no such kernel.
  long double (*from_result)(int order, long double y);
  Promise promise;
  // Points where the formula changes. Tests examine their neighbourhoods.
  std::vector<double> branch_points;
};

struct ReluDefinition {
  template <class Real>
  static Real derivative(int order, Real x) {
    if (x != x) return x;
    if (order == 0) return x < 0 ? Real{0} : x;
    return order == 1 && x > 0 ? 1 : 0;
  }
};

struct SeluDefinition {
  template <class Real>
  static Real lambda() {
    static const Real kLambda = decimal<Real>("1.0507009873554804934193349852946");
    return kLambda;
  }
  template <class Real>
  static Real lambda_alpha() {
    static const Real kLambdaAlpha =
        static_cast<Real>(decimal<Quad>("1.0507009873554804934193349852946") *
                          decimal<Quad>("1.6732632423543772848170429916717"));
    return kLambdaAlpha;
  }

  template <class Real>
  static Real derivative(int order, Real x) {
    if (order == 0) {
      return x > 0 ? lambda<Real>() * x : lambda_alpha<Real>() * exponential_minus_one(x);
    }
    if (x > 0) return order == 1 ? lambda<Real>() : 0;
    return lambda_alpha<Real>() * exponential(x);
  }

  // y = lambda alpha (e^x - 1), so lambda alpha e^x = y + lambda alpha. Never below zero, although
  // y may have been rounded below its limit.
  static long double derivative_from_result(int order, long double y) {
    if (std::isnan(y)) return y;
    if (order == 1) {
      return y > 0 ? lambda<long double>() : std::max(0.0L, y + lambda_alpha<long double>());
    }
    return order == 2 && y <= 0 ? 1 : 0;
  }
};

template <class Definition>
Oracle oracle_row(std::string_view name, const std::vector<double>& branch_points,
                  Promise promise = {}) {
  Oracle oracle = {.name = name,
                   .quick = &Definition::template derivative<long double>,
                   .precise = &Definition::template derivative<Quad>,
                   .from_result = nullptr,
                   .promise = promise,
                   .branch_points = std::move(branch_points)};
  if constexpr (requires { &Definition::derivative_from_result; }) {
    oracle.from_result = &Definition::derivative_from_result;
  }
  return oracle;
}

// One row for each activation. The branch points of SELU are the points where the reduction of e^x
// begins, and where a result reaches its limit or the subnormal numbers, in one of the formats.
inline const std::vector<Oracle>& oracles() {
  static const std::vector<Oracle> kOracles = {
      oracle_row<ReluDefinition>("relu", {0}),
      oracle_row<SeluDefinition>("selu",
                                 {0, -0.3465735902799726, -16.635532, -17.32868, -20, -36.7368, -40,
                                  -87.33655, -103.97208, -708.396, -745.133},
                                 {.float32_first = 0.85L, .float32_products = 1.0L}),
  };
  return kOracles;
}

inline const Oracle& oracle_of(const KernelCase& kernel) {
  for (const Oracle& oracle : oracles()) {
    if (oracle.name == kernel.info().name) return oracle;
  }
  throw std::out_of_range("no oracle for " + std::string(kernel.info().name));
}

// Bounds of the relative errors of `quick` and `precise`, which oracle_test.cpp checks. The bound
// of `precise` follows from the 31 decimals of the constants.
inline constexpr long double kQuickError = 0x1p-60L;
inline constexpr long double kPreciseError = 0x1p-98L;

// Returns the kernels whose activation has a row here. Only python_tests check the others.
inline std::vector<KernelCase> with_oracle(std::vector<KernelCase> kernels) {
  std::erase_if(kernels, [](const KernelCase& kernel) {
    return std::ranges::none_of(
        oracles(), [&](const Oracle& oracle) { return oracle.name == kernel.info().name; });
  });
  return kernels;
}

// Returns f^(order)(x), rounded to nearest even, or nothing if a tie is too close for the oracle.
inline std::optional<uint64_t> correctly_rounded(const Oracle& oracle, int order,
                                                 const Format& format, long double x) {
  const long double y = oracle.quick(order, x);
  if (y == 0 || !std::isfinite(y)) return encode_nearest(format, y);
  const long double margin = std::fabs(y) * kQuickError;
  const uint64_t low = encode_nearest(format, y - margin);
  const uint64_t high = encode_nearest(format, y + margin);
  if (low == high) return low;
  // The two neighbours. Neither is infinite: the exact value would have to exceed the largest
  // element.
  const long double tie = (decode(format, low) + decode(format, high)) / 2;
  const Quad distance = oracle.precise(order, x) - static_cast<Quad>(tie);
  const Quad doubt = static_cast<Quad>(std::fabs(tie) * kPreciseError);
  if (distance > doubt) return high;
  if (distance < -doubt) return low;
  return std::nullopt;
}

// Returns the bound in ULP that the row promises for a kernel with gradients of 1.
inline long double promised_ulp(const KernelCase& kernel) {
  const Promise& promise = oracle_of(kernel).promise;
  if (kernel.format().bytes == 8) return promise.float64;
  if (kernel.format().bytes == 4) {
    return kernel.id.order == 0   ? promise.float32_value
           : kernel.id.order == 1 ? promise.float32_first
                                  : promise.float32_derivatives;
  }
  return kernel.id.order <= promise.exact_16bit_orders ? 0.5L : 0.501L;
}

// Checks the result of a kernel that computes from the result y, with gradients of 1. Returns an
// empty string, or the expected value if the error is too large. The bound is the absolute error of
// one addition in the wider type, plus one rounding.
inline std::string broken_promise_from_result(const KernelCase& kernel, uint64_t y,
                                              uint64_t result) {
  const Format& format = kernel.format();
  const long double exact = oracle_of(kernel).from_result(kernel.id.order, decode(format, y));
  if (std::isnan(exact) && result == format.canonical_nan()) return "";
  if (exact == 0) return result == 0 ? "" : "+0";
  // The largest derivative is below 2, so this is one unit in its last place in float or double.
  const long double addition = format.bytes == 2 ? 0x1p-23L : 0x1p-52L;
  const long double unit = std::ldexp(1.0L, last_place_exponent(format, exact));
  const long double error = std::fabs(decode(format, result) - exact);
  return error <= 0.501L * unit + addition ? "" : std::to_string(exact);
}

// Checks a kernel's result at x, with gradients of 1, against the promise of its row. Returns an
// empty string, or the expected value. Half a ULP means correctly rounded, to the bit.
inline std::string broken_promise(const KernelCase& kernel, uint64_t x, uint64_t result) {
  if (kernel.id.from_result) return broken_promise_from_result(kernel, x, result);
  const Format& format = kernel.format();
  const Oracle& oracle = oracle_of(kernel);
  const long double bound = promised_ulp(kernel);
  const long double input = decode(format, x);
  if (bound == 0.5L) {
    const auto exact = correctly_rounded(oracle, kernel.id.order, format, input);
    if (!exact.has_value()) return "the oracle to decide a tie";
    return result == *exact ? "" : hex(format, *exact);
  }
  const long double exact = oracle.quick(kernel.id.order, input);
  // The sign of a zero must be exact, too.
  if (exact == 0 && result != encode_nearest(format, exact)) {
    return hex(format, encode_nearest(format, exact));
  }
  if (ulp_error(format, result, exact) <= bound) return "";
  return std::to_string(exact) + " within " + std::to_string(bound) + " ULP";
}

}  // namespace fastact::testing

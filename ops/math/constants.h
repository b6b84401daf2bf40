// Mathematical constants that several formulas use, each rounded to nearest. A constant that needs
// more precision is the sum of two numbers. scripts/coefficients/fit_polynomials.py knows the exact
// values.
#pragma once

namespace fastact {

// log2(e).
template <class T>
inline constexpr T kLog2E = static_cast<T>(0x1.71547652b82fep0);

// ln(2).
template <class T>
inline constexpr T kLn2 = static_cast<T>(0x1.62e42fefa39efp-1);

// ln(2) as the sum of two numbers. The first has few enough digits that its product with an
// exponent is exact. The split in double is that of Sun's fdlibm.
template <class T>
inline constexpr T kLn2High = static_cast<T>(sizeof(T) == 8 ? 0x1.62e42feep-1 : 0x1.62e4p-1);
template <class T>
inline constexpr T kLn2Low =
    static_cast<T>(sizeof(T) == 8 ? 0x1.a39ef35793c76p-33 : 0x1.7f7d1cp-20);

// phi(0) = 1 / sqrt(2 pi), the density of the normal distribution at 0, as the sum of two numbers.
inline constexpr double kNormalDensity = 0x1.9884533d43651p-2;
inline constexpr double kNormalDensityRest = -0x1.cbc0d30ebfd15p-56;

}  // namespace fastact

#!/usr/bin/env python3
"""Recomputes or checks the polynomials and constants of ops/math/ and ops/activations/.

    python scripts/coefficients/fit_polynomials.py [HEADER...]

POLYNOMIALS lists each `constexpr Coefficients` of a header and the function that it approximates.
The script prints one of two verdicts. "found again": it computes the same coefficients to the bit,
by interpolation at the Chebyshev nodes. "near the best": the coefficients came from the Remez
algorithm or least squares. They were then changed until no result was misrounded, so no fit
reproduces them. Their largest error is compared with that of the minimax polynomial of the same
degree with rounded coefficients, and must be below a multiple of it. The mean of their errors must
equal the mean recorded here, which changes with any last digit. The largest error, rounded up, must
be the "2^-..." in the comment above the polynomial.

CONSTANTS must equal their exact values. Exit code: 0, or 1 if a check fails.

fit_segments.py writes the tables of ops/activations/tables/.
"""

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mpmath import mp, mpf

OPS = Path(__file__).resolve().parents[2] / "ops"
HEADERS = {
    path.name: path
    for folder in ("math", "activations", "activations/shared")  # not tables/: it reuses names
    for path in (OPS / folder).glob("*.h")
}
POLYNOMIAL = re.compile(
    r"((?:[ ]*//[^\n]*\n)+)[ ]*(?:inline|static) constexpr Coefficients (k\w+)\s*\{([^}]*)\};"
)
CONSTANT = re.compile(r"constexpr (?:T|auto|float|double)\s+(k\w+)\s*=([^;]*);")
NUMBER = re.compile(r"-?(?:0x[0-9a-f.]+p[+-]?\d+|\d+\.\d+)(f?)")
BOUND = re.compile(r"\b[Tt]o\s+(?://\s+)?2\^-(\d+\.\d)")

mp.prec = 160
"""Bits: three times a float64's, so that no fit sees it."""
POINTS_A_DEGREE = 24
ROUNDS = 10  # of the Remez algorithm
MEAN_DIGITS = 20
ONE = mpf(1)


# ---- Functions to fit


@dataclass(frozen=True)
class Fit:
    """The function that a polynomial approximates."""

    what: str
    value: Callable
    low: mpf
    high: mpf
    # The error of the polynomial times `weight` is the relative error of the result.
    weight: Callable
    # The coefficients are those of the value times this factor.
    factor: mpf = ONE
    # The largest ratio of its error to the best one's. None: interpolated at the Chebyshev nodes.
    within: float | None = None
    # The root mean square of its errors, in MEAN_DIGITS digits. Empty for an interpolated
    # polynomial.
    mean: str = ""


HALF_LN2 = mp.log(2) / 2
LAMBDA = mpf("1.0507009873554804934193349852946")
ALPHA = mpf("1.6732632423543772848170429916717")
LAMBDA_ALPHA = LAMBDA * ALPHA


def exponential_quotient(r):
    return mp.expm1(r) / r if r else mpf(1)


def exponential_tail(r):
    return (mp.expm1(r) - r) / r**2 if abs(r) > mpf(2) ** -50 else mpf("0.5") + r / 6


def tanh_tail(z):
    """(tanh(x) / x - 1) / x^2 by x^2."""
    return (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def shrink_tail(z):
    """(1 - tanh(x) / x) / x^2 by x^2, minus its value at 0, divided by x^2."""
    return (-tanh_tail(z) - mpf(1) / 3) / z


def atanh_tail(z):
    """(atanh(t) / t - 1) / t^2 by t^2."""
    return (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def mills(v):
    """Phi(-a) e^(a^2 / 2) by v = 1 / (a + 3)."""
    a = 1 / v - 3
    return mp.erfc(a / mp.sqrt(2)) / 2 * mp.exp(a * a / 2)


def normal_slope(a):
    """(R(a) - 2) / a in error_function.h."""
    return (2 * mp.exp(-a * a / 2) / mp.erfc(a / mp.sqrt(2)) - 2) / a


NORMAL_SLOPE = mpf(float(normal_slope(mpf(4))))


def normal_correction(u):
    """Q in error_function.h, by u = (a - 4) / (a + 4)."""
    return normal_slope(4 * (1 + u) / (1 - u)) - NORMAL_SLOPE


def relative(value):
    return lambda x: 1 / abs(value(x))


def exponential(within, mean):
    """(e^r - 1) / r. The error of e^r is r times its error."""
    return Fit("(e^r - 1) / r", exponential_quotient, -HALF_LN2, HALF_LN2,
               lambda r: r / mp.exp(r), ONE, within, mean)  # fmt: skip


def expm1(within, mean, factor=ONE, low=-HALF_LN2, high=HALF_LN2):
    """The same for a formula that computes e^r - 1 itself."""
    return Fit("(e^r - 1) / r", exponential_quotient, mpf(low), mpf(high),
               relative(exponential_quotient), factor, within, mean)  # fmt: skip


def whole_exponential(within, mean, factor=ONE):
    return Fit("e^r", mp.exp, -HALF_LN2, HALF_LN2, lambda r: mp.exp(-r), factor, within, mean)


def tail(within, mean, factor=ONE):
    """(e^r - 1 - r) / r^2. The error of e^r is r^2 times its error."""
    return Fit("(e^r - 1 - r) / r^2", exponential_tail, -HALF_LN2, HALF_LN2,
               lambda r: r * r * mp.exp(-r), factor, within, mean)  # fmt: skip


def log1p(within, mean, factor=ONE):
    def value(e):
        return mp.log1p(e) / e if e else mpf(1)

    return Fit("log(1 + e) / e", value, mpf(0), mpf(1), relative(value), factor, within, mean)


def normal(within, mean, end):
    return Fit("Phi(-a) e^(a^2 / 2) by 1 / (a + 3)", mills, 1 / (mpf(end) + 3), mpf(1) / 3,
               relative(mills), ONE, within, mean)  # fmt: skip


def near_zero(what, value, end, within, mean):
    return Fit(what, value, mpf(2) ** -60, mpf(end), relative(value), ONE, within, mean)


def interpolated_at(what, value, end, constant):
    """Interpolated from 0 on; the limit at 0 is not a node. The result is constant + z * value."""
    return Fit(what, value, mpf(0), end, lambda z: z / (constant + z * value(z)))


def normal_ratio(within, mean):
    """Q in error_function.h for 0 <= a <= 39. The error of 1 / (Phi(-a) e^(a^2 / 2)) is a times its
    error."""

    def weight(u):
        a = 4 * (1 + u) / (1 - u)
        return a / (2 + NORMAL_SLOPE * a + a * normal_correction(u))

    what = "(1 / (Phi(-a) e^(a^2 / 2)) - 2 - slope a) / a by (a - 4) / (a + 4)"
    return Fit(what, normal_correction, mpf(-1), mpf(35) / 43, weight, ONE, within, mean)


def tanh_quotient(z):
    return mp.tanh(mp.sqrt(z)) / mp.sqrt(z)


# The part of |x| < 0.55 that float64's tanhshrink uses, with a margin.
SQUARE_END = mpf("0.3026")
BFLOAT16_GUARD = mpf(2) ** -20

# The coefficients for 16-bit types were searched until none of the 65,536 results was misrounded.
# Some are far from the best of their degree, because a float16 result needs only 2^-12.
POLYNOMIALS = {
    "error_function.h": {"kNormalCorrection": normal_ratio(1, "3.8177856997936052829e-18")},
    "exponential.h": {
        "kExponentialTailFloat": tail(1, "1.9811437877311515874e-9"),
        # Each coefficient compensates for the rounding of the ones before it.
        "kExponentialTailDouble": tail(0.125, "3.7387157152110197747e-20"),
        "kExpm1Float": expm1(1.25, "8.8472404741952546348e-16"),
        "kExpm1BFloat16": expm1(1.25, "3.1283643057912892176e-7"),
        "kExpm1Float16": expm1(1.01, "1.3326814932253445807e-8"),
        "kExponentialFloat": whole_exponential(1.01, "5.476087570209723715e-13"),
        "kExponentialBFloat16": exponential(0.5, "8.1091446549283603024e-8"),
        "kExponentialFloat16": exponential(16, "2.0806168296895471744e-7"),
    },
    "exponential_linear.h": {
        "kTail": tail(1, "2.0110672225266714176e-9"),
        "kNearZeroBFloat16": expm1(16, "6.0036675856486329854e-8", low="-0.25", high="0"),
        "kNearZeroFloat16": expm1(64, "1.2390365508925411898e-7", low="-0.5", high="0"),
    },
    "gelu.h": {
        "kMillsBFloat16": normal(3, "6.0773367171583511571e-7", "14"),
        "kMillsFloat16": normal(1.25, "1.8995570268485948479e-8", "6.5"),
        "kSlopeMillsFloat16": normal(64, "5.9345198220574082232e-7", "6.5"),
        "kValueExponentialFloat16": exponential(0.5, "3.0738778733609034917e-9"),
        "kSlopeExponentialFloat16": exponential(32, "3.8815169260369838129e-7"),
    },
    "gelu_tanh.h": {
        "kValueExponentialFloat16": exponential(32, "2.7629595881186336124e-7"),
        "kSlopeExponentialFloat16": exponential(64, "7.0574064270115784374e-7"),
    },
    "logarithm.h": {
        "kAtanhTail": interpolated_at(
            "(atanh(t) / t - 1) / t^2 by t^2", atanh_tail, mpf(1) / 9, ONE
        ),
        "kAtanhTailFloat": interpolated_at(
            "(atanh(t) / t - 1) / t^2 by t^2", atanh_tail, (3 - 2 * mp.sqrt(2)) ** 2, ONE
        ),
        "kLog1pBFloat16": log1p(1, "1.3927857463132312439e-7", BFLOAT16_GUARD),
        "kLog1pFloat16": log1p(2, "4.8007078512584865771e-8"),
        "kApproximateLog1pBFloat16": log1p(3, "2.5970565049685055586e-7", BFLOAT16_GUARD),
        "kApproximateLog1pFloat16": log1p(1.5, "4.8923232734672568361e-8"),
        "kLog1pExponentialFloat16": exponential(4, "6.6223760510696969567e-8"),
    },
    "logistic.h": {
        "kLogisticExponentialFloat16": exponential(1.5, "2.6504771104735578979e-8"),
        "kGateExponentialBFloat16": exponential(3, "6.5802873972908379793e-7"),
    },
    "mish.h": {
        "kSlopeExponentialBFloat16": exponential(32, "6.4874445578021655327e-6"),
        "kValueExponentialFloat16": exponential(32, "2.1222221903085176667e-7"),
        "kSlopeExponentialFloat16": exponential(32, "3.438333558447912809e-7"),
    },
    "quick_gelu.h": {
        "kExponentialBFloat16": exponential(3, "5.8422444003361287363e-7"),
        "kValueExponentialFloat16": exponential(16, "1.5304130972607459348e-7"),
        "kSlopeExponentialFloat16": exponential(128, "8.0468182788498528575e-7"),
    },
    "selu.h": {
        "kExpm1Float": expm1(4, "2.0482766116559569894e-15", LAMBDA_ALPHA),
        "kExpm1BFloat16": expm1(1.25, "3.1389027424579777844e-7", LAMBDA_ALPHA),
        "kExpm1Float16": expm1(1, "2.5256811445774329677e-8", LAMBDA_ALPHA),
        "kExponentialFloat": whole_exponential(1.25, "5.7728054561572491159e-13", LAMBDA_ALPHA),
        "kTail": tail(1.25, "2.1310044245306895418e-9", LAMBDA_ALPHA),
    },
    "silu.h": {
        "kValueExponentialFloat16": exponential(32, "2.7804820400189107869e-7"),
        "kSlopeExponentialFloat16": exponential(32, "2.0152031690310243325e-7"),
    },
    "tanh.h": {
        "kNearZeroBFloat16": near_zero(
            "tanh(x) / x by x^2", tanh_quotient, "0.25", 1.25, "3.8578288320898446672e-7"
        ),
        "kNearZeroFloat16": near_zero(
            "tanh(x) / x by x^2", tanh_quotient, "0.5625", 1, "3.3573231732954053834e-8"
        ),
        "kExpm1Float16": expm1(1, "1.2823227208851254965e-8"),
    },
    "tanhshrink.h": {
        "kNearZero": interpolated_at(
            "((1 - tanh(x) / x) / x^2 - 1/3) / x^2 by x^2", shrink_tail, SQUARE_END, ONE / 3
        ),
        "kNearZeroBFloat16": near_zero(
            "(1 - tanh(x) / x) / x^2 by x^2",
            lambda z: -tanh_tail(z),
            1,
            1,
            "5.1877236483033470835e-7",
        ),
        "kNearZeroFloat16": near_zero(
            "(1 - tanh(x) / x) / x^2 by x^2",
            lambda z: -tanh_tail(z),
            1,
            8,
            "3.3232683200720481271e-7",
        ),
        "kExpm1BFloat16": expm1(8, "1.4566138122910897003e-6"),
        "kExpm1Float16": expm1(128, "1.3882001507397443384e-6"),
    },
}


def rounded(value: mpf, digits: int) -> mpf:
    with mp.workprec(digits):
        return +value


def shortened(value: mpf, digits: int) -> mpf:
    """Returns the value rounded towards zero."""
    unit = mpf(2) ** (mp.frexp(value)[1] - digits)
    return mp.floor(value / unit) * unit


def rest(value: mpf) -> mpf:
    """Returns the rounding error of the value in double."""
    return rounded(value - rounded(value, 53), 53)


LN2 = mp.log(2)
LN2_HIGH = shortened(LN2, 32)
LN2_HIGH_FLOAT = shortened(LN2, 17)
NORMAL_DENSITY = 1 / mp.sqrt(2 * mp.pi)
TANH_LINEAR = 2 * mp.sqrt(2 / mp.pi)
TANH_CUBIC = mpf("0.044715") * TANH_LINEAR
QUICK_FACTOR = mpf("1.702")
LAMBDA_HIGH = rounded(LAMBDA, 53) - mpf(2) ** -52


# The numbers in the definition of a constant. A template lists the double, and the float if it is
# not the rounded double.
CONSTANTS = {
    "constants.h": {
        "kLog2E": (rounded(1 / LN2, 53),),
        "kLn2": (rounded(LN2, 53),),
        "kLn2High": (LN2_HIGH, LN2_HIGH_FLOAT),
        "kLn2Low": (rounded(LN2 - LN2_HIGH, 53), rounded(LN2 - LN2_HIGH_FLOAT, 24)),
        "kNormalDensity": (rounded(NORMAL_DENSITY, 53),),
        "kNormalDensityRest": (rest(NORMAL_DENSITY),),
    },
    "double_float.h": {"kBelowThird": (shortened(ONE / 3, 21),)},
    "error_function.h": {"kNormalSlope": (NORMAL_SLOPE,)},
    "gelu_tanh.h": {
        "kC1": (rounded(TANH_CUBIC, 53),),
        "kC0High": (shortened(TANH_LINEAR, 25),),
        "kC1Low": (rest(TANH_CUBIC),),
    },
    "quick_gelu.h": {
        "kFactor": (rounded(QUICK_FACTOR, 53),),
        "kFactorRest": (rest(QUICK_FACTOR),),
        "kPeriodHigh": (rounded(LN2 / QUICK_FACTOR, 14),),
    },
    "selu.h": {
        "kLambda": (rounded(LAMBDA, 53),),
        "kLambdaHigh": (LAMBDA_HIGH,),
        "kLambdaLow": (rounded(LAMBDA - LAMBDA_HIGH, 53),),
        "kLambdaAlpha": (rounded(LAMBDA_ALPHA, 53),),
        "kLambdaAlphaLow": (rest(LAMBDA_ALPHA),),
        "kHigh": (shortened(LAMBDA, 23),),
    },
}


# ---- The headers' contents


@dataclass(frozen=True)
class Standing:
    """A polynomial in a header."""

    constants: list[mpf]
    digits: int
    # The largest error is 2^-bound according to the comment; empty if the comment states none.
    bound: str


def polynomials_of(header: str) -> dict[str, Standing]:
    """Returns a header's polynomials by name."""
    result = {}
    for comment, name, values in POLYNOMIAL.findall(HEADERS[header].read_text()):
        numbers = list(NUMBER.finditer(values))
        bounds = BOUND.findall(comment)
        result[name] = Standing(
            [mpf(number(n[0])) for n in numbers],
            24 if numbers[0][1] else 53,
            bounds[0] if len(bounds) == 1 else "",
        )
    return result


def constants_of(header: str) -> dict[str, tuple]:
    """Returns the numbers in a header's constants, by name."""
    return {
        name: tuple(mpf(number(n[0])) for n in NUMBER.finditer(value))
        for name, value in CONSTANT.findall(HEADERS[header].read_text())
    }


def number(text: str) -> float:
    text = text.removesuffix("f")
    return float.fromhex(text) if "x" in text else float(text)


# ---- Fits


def at(coefficients: list[mpf], x: mpf) -> mpf:
    return mp.polyval(coefficients[::-1], x)


def nodes(fit: Fit, count: int) -> list[mpf]:
    """Returns the Chebyshev nodes of the interval."""
    middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    return [middle + half * mp.cos(mp.pi * (k + mpf("0.5")) / count) for k in range(count)]


def solve(rows: list[list[mpf]], values: list[mpf]) -> list[mpf]:
    return list(mp.lu_solve(mp.matrix(rows), mp.matrix(values)))


def interpolated(fit: Fit, degree: int) -> list[mpf]:
    points = nodes(fit, degree + 1)
    rows = [[x**k for k in range(degree + 1)] for x in points]
    return solve(rows, [fit.factor * fit.value(x) for x in points])


def largest_error(fit: Fit, coefficients: list[mpf], samples) -> mpf:
    return max(abs((at(coefficients, x) - y) * w) for x, y, w in samples)


def minimax(fit: Fit, degree: int, samples) -> list[mpf]:
    """Runs the Remez algorithm on the samples, which are dense."""
    count = degree + 2
    step = (len(samples) - 1) / (count - 1)
    reference = [round(i * step) for i in range(count)]
    for _ in range(ROUNDS):
        rows = [
            [samples[i][0] ** k for k in range(degree + 1)] + [(-1) ** n / samples[i][2]]
            for n, i in enumerate(reference)
        ]
        coefficients = solve(rows, [samples[i][1] for i in reference])[:-1]
        errors = [(at(coefficients, x) - y) * w for x, y, w in samples]
        extremes: list[int] = []
        for i, error in enumerate(errors):
            if not extremes or (error > 0) != (errors[extremes[-1]] > 0):
                extremes.append(i)
            elif abs(error) > abs(errors[extremes[-1]]):
                extremes[-1] = i
        while len(extremes) > count:
            extremes.pop(0 if abs(errors[extremes[0]]) < abs(errors[extremes[-1]]) else -1)
        if len(extremes) < count or extremes == reference:
            break
        reference = extremes
    return coefficients


def sampled(fit: Fit, degree: int):
    """Returns (x, value, weight) at the Chebyshev nodes with a weight other than zero."""
    points = sorted(nodes(fit, POINTS_A_DEGREE * (degree + 2)))
    weighed = ((x, fit.factor * fit.value(x), fit.weight(x) / abs(fit.factor)) for x in points)
    return [sample for sample in weighed if sample[2] != 0]


@dataclass(frozen=True)
class Verdict:
    """The result of comparing a header's polynomial with the script's."""

    held: bool
    text: str


def mean_error(constants: list[mpf], samples) -> str:
    squares = [((at(constants, x) - y) * w) ** 2 for x, y, w in samples]
    return mp.nstr(mp.sqrt(sum(squares) / len(squares)), MEAN_DIGITS)


def bound_of(error: mpf) -> str:
    """Returns -log2(error) with one decimal, rounded towards the larger error."""
    return f"{float(mp.floor(-10 * mp.log(error, 2)) / 10):.1f}"


def compare(fit: Fit, standing: Standing) -> Verdict:
    constants, digits = standing.constants, standing.digits
    degree = len(constants) - 1
    samples = sampled(fit, degree)
    found = largest_error(fit, constants, samples)
    bound = bound_of(found)
    if bound != standing.bound:
        return Verdict(False, f"to 2^-{bound}, where the comment SAYS 2^-{standing.bound}")
    if fit.within is None:
        with mp.workprec(2 * mp.prec):
            again = interpolated(fit, degree)
        differ = sum(rounded(a, digits) != c for a, c in zip(again, constants))
        text = "found again" if not differ else f"{differ} of {degree + 1} coefficients DIFFER"
        return Verdict(not differ, f"to 2^-{bound}, {text}")
    mean = mean_error(constants, samples)
    if mean != fit.mean:
        return Verdict(False, f"to 2^-{bound}, in the mean {mean}, expected {fit.mean}: CHANGED")
    best = [rounded(c, digits) for c in minimax(fit, degree, samples)]
    times = float(found / largest_error(fit, best, samples))
    if times > fit.within:
        text = f"{times:.2f} times the best, expected at most {fit.within:g}: FAR"
        return Verdict(False, f"to 2^-{bound}, {text}")
    return Verdict(True, f"to 2^-{bound}, near the best: {times:.2f} times its error")


def compare_constants(header: str) -> list[str]:
    """Returns the errors in a header's constants."""
    standing = constants_of(header)
    return [
        f"{name}: expected {[float(c).hex() for c in exact]}, but got "
        f"{[float(c).hex() for c in standing.get(name, ())]}"
        for name, exact in CONSTANTS.get(header, {}).items()
        if standing.get(name) != exact
    ]


def main(headers: list[str]) -> int:
    failed = 0
    for header in headers or sorted({*POLYNOMIALS, *CONSTANTS}):
        fits, standing = POLYNOMIALS.get(header, {}), polynomials_of(header)
        if fits.keys() != standing.keys():
            print(f"{header}: expected {sorted(fits)}, but got {sorted(standing)}")
            failed += 1
            continue
        for name, fit in fits.items():
            verdict = compare(fit, standing[name])
            failed += not verdict.held
            degree = len(standing[name].constants) - 1
            kind = "float" if standing[name].digits == 24 else "double"
            print(f"{header}: {name}, {fit.what}, degree {degree}, {kind}: {verdict.text}")
        wrong = compare_constants(header)
        for text in wrong:
            print(f"{header}: {text}")
        if not wrong and header in CONSTANTS:
            print(f"{header}: {', '.join(CONSTANTS[header])}: exact")
        failed += len(wrong)
    return int(failed > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("header", nargs="*", help="as gelu.h; all, if none is named")
    headers = parser.parse_args().header
    known = {*POLYNOMIALS, *CONSTANTS}
    if unknown := set(headers) - known:
        parser.error(f"expected names of {', '.join(sorted(known))}, but got {unknown.pop()}")
    sys.exit(main(headers))

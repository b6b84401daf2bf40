#!/usr/bin/env python3
"""Finds the polynomials of ops/math/ and ops/activations/ again, and holds those there to them.

    python scripts/fit_polynomials.py [HEADER...]

For each it prints one of two things. "found again": the script gives these coefficients to the
bit, by interpolation at Chebyshev's points. "near the best": the coefficients came from Remez'
algorithm or least squares and were then moved until no result was misrounded, so that no fit gives
them; their largest error is then held to a multiple of that of the minimax polynomial of the same
degree, whose coefficients are rounded to the type. Exit code: 0, or 1 if one is neither.

The tables of ops/activations/tables/ are fit_segments.py's.
"""

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mpmath import mp, mpf

OPS = Path(__file__).resolve().parent.parent / "ops"
HEADERS = {
    path.name: path
    for folder in ("math", "activations", "activations/shared")  # not tables/: the same names
    for path in (OPS / folder).glob("*.h")
}
CALL = re.compile(
    r"\b(?:(?:scaled_)?polynomial|exponential_16|gaussian_16|split_exponential)(?:<Element>)?\("
)
CONSTANT = re.compile(r"-?(?:0x[0-9a-f.]+p[+-]?\d+|\d+\.\d+)(f?)")

mp.prec = 160
"""Bits: three times a float64's, so that no fit sees it."""
POINTS_A_DEGREE = 24
ROUNDS = 10  # of Remez' algorithm
ONE = mpf(1)


# ---- What is fitted


@dataclass(frozen=True)
class Fit:
    """What a polynomial stands for."""

    what: str
    value: Callable
    low: mpf
    high: mpf
    # The polynomial's error times this is the result's, relative to its size.
    weight: Callable
    # The coefficients are those of the value times this.
    factor: mpf = ONE
    # Its error is at most so many times the best one's; None: interpolated at Chebyshev's points.
    within: float | None = None
    # Constants in the call before the coefficients.
    skipped: int = 0


HALF_LN2 = mp.log(2) / 2
LAMBDA_ALPHA = mpf("1.7580993408473768599402175208123")


def exponential_quotient(r):
    return mp.expm1(r) / r if r else mpf(1)


def exponential_tail(r):
    return (mp.expm1(r) - r) / r**2 if abs(r) > mpf(2) ** -50 else mpf("0.5") + r / 6


def tanh_tail(z):
    """(tanh(x) / x - 1) / x^2 by x^2."""
    return (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def shrink_tail(z):
    """(1 - tanh(x) / x) / x^2 by x^2, less its value at 0 and divided by x^2."""
    return (-tanh_tail(z) - mpf(1) / 3) / z


def atanh_tail(z):
    """(atanh(t) / t - 1) / t^2 by t^2."""
    return (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def mills(v):
    """Phi(-a) e^(a^2 / 2) by v = 1 / (a + 3)."""
    a = 1 / v - 3
    return mp.erfc(a / mp.sqrt(2)) / 2 * mp.exp(a * a / 2)


NORMAL_SLOPE = mpf(float.fromhex("0x1.12f1e13c3adc5p1"))


def normal_correction(u):
    """Q of error_function.h, by u = (a - 4) / (a + 4)."""
    a = 4 * (1 + u) / (1 - u)
    ratio = 2 * mp.exp(-a * a / 2) / mp.erfc(a / mp.sqrt(2))
    return (ratio - 2 - NORMAL_SLOPE * a) / a


def relative(value):
    return lambda x: 1 / abs(value(x))


def exponential(within, factor=ONE, weight=lambda r: r / mp.exp(r), skipped=0):
    """(e^r - 1) / r, of whose error e^r has r times as much."""
    return Fit("(e^r - 1) / r", exponential_quotient, -HALF_LN2, HALF_LN2, weight, factor, within,
               skipped)  # fmt: skip


def expm1(within, factor=ONE, low=-HALF_LN2, high=HALF_LN2):
    """The same, of which e^r - 1 itself is made."""
    return Fit("(e^r - 1) / r", exponential_quotient, mpf(low), mpf(high),
               relative(exponential_quotient), factor, within)  # fmt: skip


def whole_exponential(within, factor=ONE):
    return Fit("e^r", mp.exp, -HALF_LN2, HALF_LN2, lambda r: mp.exp(-r), factor, within)


def tail(within, factor=ONE, skipped=0):
    """(e^r - 1 - r) / r^2, of whose error e^r has r^2 times as much."""
    return Fit("(e^r - 1 - r) / r^2", exponential_tail, -HALF_LN2, HALF_LN2,
               lambda r: r * r * mp.exp(-r), factor, within, skipped)  # fmt: skip


def log1p(within, factor=ONE):
    def value(e):
        return mp.log1p(e) / e if e else mpf(1)

    return Fit("log(1 + e) / e", value, mpf(0), mpf(1), relative(value), factor, within)


def normal(within, end, factor=ONE):
    return Fit("Phi(-a) e^(a^2 / 2) by 1 / (a + 3)", mills, 1 / (mpf(end) + 3), mpf(1) / 3,
               relative(mills), factor, within)  # fmt: skip


def near_zero(what, value, end, within):
    return Fit(what, value, mpf(2) ** -60, mpf(end), relative(value), ONE, within)


def interpolated_at(what, value, end):
    """From 0, where the value's limit is no point of the interpolation."""
    return Fit(what, value, mpf(0), end, lambda z: ONE)


def normal_ratio(within):
    """Q of error_function.h for 0 <= a <= 39, of whose error 1 / (Phi(-a) e^(a^2 / 2)) has a times
    as much."""

    def weight(u):
        a = 4 * (1 + u) / (1 - u)
        return a / (2 + NORMAL_SLOPE * a + a * normal_correction(u))

    what = "(1 / (Phi(-a) e^(a^2 / 2)) - 2 - slope a) / a by (a - 4) / (a + 4)"
    return Fit(what, normal_correction, mpf(-1), mpf(35) / 43, weight, ONE, within)


def tanh_quotient(z):
    return mp.tanh(mp.sqrt(z)) / mp.sqrt(z)


# What is left of |x| < 0.55 for float64's tanhshrink, with a margin.
SQUARE_END = mpf("0.3026")
BFLOAT16_GUARD = mpf(2) ** -20

# In each header's order; of 16-bit types bfloat16's come first. Their coefficients were searched
# until none of the 65,536 results was misrounded, some far from the best of their degree: a float16
# result needs 2^-12.
POLYNOMIALS = {
    "error_function.h": (normal_ratio(1),),
    "exponential.h": (
        tail(1),
        tail(0.125),  # each coefficient makes good what the ones before it were rounded by
        expm1(1.25),
        expm1(1.25),
        expm1(1.01),
        whole_exponential(1.01),
        exponential(0.5),
        exponential(16),
    ),
    "exponential_linear.h": (
        tail(1, skipped=2),
        expm1(16, low="-0.25", high="0"),
        expm1(64, low="-0.5", high="0"),
    ),
    "gelu.h": (
        normal(3, 14, BFLOAT16_GUARD),
        normal(1.25, "6.5"),
        exponential(0.5),
        normal(3, 14),
        exponential(0.5),
        normal(1.25, "6.5"),
        exponential(32),
        normal(64, "6.5"),
    ),
    "gelu_tanh.h": (exponential(3), exponential(32), exponential(64)),
    "log_sigmoid.h": (exponential(0.5), exponential(4)),
    "logarithm.h": (
        interpolated_at("(atanh(t) / t - 1) / t^2 by t^2", atanh_tail, mpf(1) / 9),
        log1p(1, BFLOAT16_GUARD),
        log1p(2),
        log1p(3, BFLOAT16_GUARD),
        log1p(1.5),
    ),
    "logistic.h": (exponential(0.5), exponential(1.5)),
    "mish.h": (exponential(0.5), exponential(32), exponential(32), exponential(32)),
    "quick_gelu.h": (exponential(3), exponential(16), exponential(128)),
    "selu.h": (
        expm1(4, LAMBDA_ALPHA),
        expm1(1.25, LAMBDA_ALPHA),
        expm1(1, LAMBDA_ALPHA),
        whole_exponential(1.25, LAMBDA_ALPHA),
        exponential(0.5),
        exponential(16),
        tail(1.25, LAMBDA_ALPHA, skipped=2),
    ),
    "silu.h": (exponential(3), exponential(32), exponential(32)),
    "softplus.h": (exponential(0.5), exponential(4)),
    "tanh.h": (
        near_zero("tanh(x) / x by x^2", tanh_quotient, "0.25", 1.25),
        near_zero("tanh(x) / x by x^2", tanh_quotient, "0.5625", 1),
        expm1(1.25),
        expm1(1),
    ),
    "tanhshrink.h": (
        interpolated_at("((1 - tanh(x) / x) / x^2 - 1/3) / x^2 by x^2", shrink_tail, SQUARE_END),
        near_zero("(1 - tanh(x) / x) / x^2 by x^2", lambda z: -tanh_tail(z), 1, 1),
        near_zero("(1 - tanh(x) / x) / x^2 by x^2", lambda z: -tanh_tail(z), 1, 8),
        expm1(8),
        expm1(128),
    ),
}


# ---- What stands in the headers


def calls(text: str):
    """The arguments of every call that evaluates a polynomial."""
    for found in CALL.finditer(text):
        end, depth = found.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield [argument.strip() for argument in text[found.end() : end - 1].split(",")]


def polynomials_of(header: str) -> list[tuple[list[mpf], int]]:
    """The constants of each polynomial of a header, and how many digits theirs have."""
    result = []
    for arguments in calls(HEADERS[header].read_text()):
        constants = [c for c in map(CONSTANT.fullmatch, arguments) if c]
        if len(constants) >= 3:
            numbers = [mpf(number(c[0])) for c in constants]
            result.append((numbers, 24 if constants[0][1] else 53))
    return result


def number(text: str) -> float:
    text = text.removesuffix("f")
    return float.fromhex(text) if "x" in text else float(text)


# ---- Fits


def at(coefficients: list[mpf], x: mpf) -> mpf:
    return mp.polyval(coefficients[::-1], x)


def nodes(fit: Fit, count: int) -> list[mpf]:
    """Chebyshev's points of the interval."""
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
    """Remez' algorithm over the samples, which are dense."""
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
    """(x, value, weight) at Chebyshev's points, where the weight is not zero."""
    points = sorted(nodes(fit, POINTS_A_DEGREE * (degree + 2)))
    weighed = ((x, fit.factor * fit.value(x), fit.weight(x) / abs(fit.factor)) for x in points)
    return [sample for sample in weighed if sample[2] != 0]


@dataclass(frozen=True)
class Verdict:
    """How a header's polynomial compares with the script's."""

    held: bool
    text: str


def compare(fit: Fit, constants: list[mpf], digits: int) -> Verdict:
    degree = len(constants) - 1
    if fit.within is None:
        with mp.workprec(2 * mp.prec):
            again = interpolated(fit, degree)
        differ = sum(rounded(a, digits) != c for a, c in zip(again, constants))
        text = "found again" if not differ else f"{differ} of {degree + 1} coefficients DIFFER"
        return Verdict(not differ, text)
    samples = sampled(fit, degree)
    best = [rounded(c, digits) for c in minimax(fit, degree, samples)]
    allowed = largest_error(fit, best, samples)
    found = largest_error(fit, constants, samples)
    times = float(found / allowed)
    held = times <= fit.within
    text = f"2^{float(mp.log(found, 2)):.1f}, {times:.2f} times the best"
    text = f"near the best: {text}" if held else f"{text}, expected at most {fit.within:g}: FAR"
    return Verdict(held, text)


def rounded(value: mpf, digits: int) -> mpf:
    with mp.workprec(digits):
        return +value


def main(headers: list[str]) -> int:
    failed = 0
    for header in headers or POLYNOMIALS:
        standing = polynomials_of(header)
        if len(standing) != len(POLYNOMIALS[header]):
            wanted = len(POLYNOMIALS[header])
            print(f"{header}: expected {wanted} polynomials, but got {len(standing)}")
            failed += 1
            continue
        for fit, (constants, digits) in zip(POLYNOMIALS[header], standing):
            constants = constants[fit.skipped :]
            verdict = compare(fit, constants, digits)
            failed += not verdict.held
            kind = "float" if digits == 24 else "double"
            print(f"{header}: {fit.what}, degree {len(constants) - 1}, {kind}: {verdict.text}")
    return int(failed > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("header", nargs="*", help="as gelu.h; all, if none is named")
    headers = parser.parse_args().header
    if unknown := set(headers) - set(POLYNOMIALS):
        parser.error(f"expected names of {', '.join(POLYNOMIALS)}, but got {unknown.pop()}")
    sys.exit(main(headers))

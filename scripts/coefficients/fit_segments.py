#!/usr/bin/env python3
"""Writes ops/activations/tables/*.h, the polynomials of functions in segments (segments.h).

    python scripts/coefficients/fit_segments.py [--check] [NAME...]

With --check, writes nothing. The exit code is 1 if a header differs from the text that the script
would write.

A fit is minimax in relative error, by Lawson's iteration on the Chebyshev nodes. Coefficients are
rounded to float32 one after another. After each, the remaining coefficients are fitted again.
"""

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from mpmath import mp, mpf

TABLES = Path(__file__).resolve().parents[2] / "ops" / "activations" / "tables"

SEGMENTS = 16
DEGREE = 6
# v = scale |x| + OFFSET at the ends of the segments: four from each power of two to the next. The
# last is v = 1.
ENDS = [2.0**octave * (1 + step / 4) for octave in range(-4, 0) for step in range(4)][1:] + [1.0]
OFFSET = ENDS[0]
LAST_INDEX = 12  # for v = 1, see segment_index()
POINTS = 60
ITERATIONS = 30
CANDIDATES = 400
# For a FullTable: the share of its width by which a segment overlaps each neighbour, the sizes of
# tables, the centers to try (0 is the lower and 1 the upper end of the segment), and the number of
# inputs of which the rounding error is computed.
EDGE = 1e-5
SIZES = (16, 48)
CENTERS = (0.35, 0.45, 0.55, 0.65, 0.75, 0.8, 0.85, 0.9, 0.94, 0.97)
SAMPLES = 1_000

GUARD = 2.0**40
"""kGuardFloat of ops/math/exponential.h, for functions that reach the subnormal numbers."""

mp.prec = 160
"""Bits, as in fit_polynomials.py: mpmath has one precision for both."""


@dataclass(frozen=True)
class Function:
    """The function in a table."""

    comment: str
    value: Callable
    # The start of the last segment.
    end: float
    # The function in the last segment, as coefficients of t = |x| - center. Empty if it is not
    # reached.
    beyond: tuple = ()
    beyond_center: float = 0.0
    zero: float | None = None  # bracketed by zero +- 0.3; 0 for f(0) = 0
    # The error of the result divided by the error of the function.
    weight: Callable | None = None

    @property
    def scale(self) -> float:
        return (1 - OFFSET) / self.end

    def segments(self):
        """Yields (index, low, high) of all segments except the last."""
        for i, (low, high) in enumerate(pairwise(ENDS)):
            yield (
                (LAST_INDEX + 1 + i) % SEGMENTS,
                (low - OFFSET) / self.scale,
                (high - OFFSET) / self.scale,
            )


@dataclass(frozen=True)
class Full:
    """A function of a = |x| in a FullTable, whose segments cover the function's whole range."""

    comment: str
    value: Callable
    # From here on, the function is constant in float32.
    end: float
    # The segment of a is round(index[0] a + index[1] a^2 + index[2] a^3).
    index: tuple[float, ...]
    degree: int
    reflection: str
    zero: float | None = None  # bracketed by zero +- 0.3; 0 for f(0) = 0
    guard: float = GUARD

    def scaled(self, a):
        return self.guard * self.value(mpf(a))

    def segments(self):
        """Yields (low, high) of all segments."""
        c = [float(np.float32(value)) for value in self.index]
        grid = np.linspace(0, self.end, 400_001)
        position = grid * (c[0] + grid * (c[1] + grid * c[2]))
        last = int(np.rint(position[-1]))
        inner = [float(np.interp(i + 0.5, position, grid)) for i in range(last)]
        # The index is rounded twice, so an input at the edge may be in either segment.
        for low, high in pairwise([0.0, *inner, self.end]):
            slack = EDGE * (high - low)
            yield max(low - slack, 0.0), high + slack


def silu_tail(a):
    """f'(-a)."""
    return logistic(-a) * (1 - a * logistic(a))


def normal_tail(a):
    return mp.erfc(a / mp.sqrt(2)) / 2 * mp.exp(a * a / 2)


def logistic(w):
    return 1 / (1 + mp.exp(-w))


def gate_slope(w: Callable) -> Callable:
    return lambda a: (1 - a * mp.diff(w, a) * logistic(w(a))) * logistic(w(a))


def quick_argument(a):
    return mpf("1.702") * a


def tanh_argument(a):
    return 2 * mp.sqrt(2 / mp.pi) * (a + mpf("0.044715") * a**3)


def mish_slope(x):
    gate = mp.tanh(mp.log1p(mp.exp(x)))
    return gate + x * (1 - gate**2) * logistic(x)


FUNCTIONS = {
    "gelu": {
        "Gelu": Function("a Phi(-a) e^(a^2 / 2)", lambda a: a * normal_tail(a), 14.7, zero=0),
        "GeluSlope": Function(
            "(Phi(-a) - a phi(a)) e^(a^2 / 2)",
            lambda a: normal_tail(a) - a / mp.sqrt(2 * mp.pi),
            14.7,
            zero=0.75,
        ),
    },
    "gelu_tanh": {
        "GeluTanhSlope": Function(
            "(1 - a w' / (1 + e^-w)) / (1 + e^-w)", gate_slope(tanh_argument), 11.1, zero=0.75
        ),
    },
    "quick_gelu": {
        "QuickGeluSlope": Function(
            "(1 - 1.702 a / (1 + e^(-1.702 a))) / (1 + e^(-1.702 a))",
            gate_slope(quick_argument),
            11.0,
            (float(1 - 10 * quick_argument(1)), float(-quick_argument(1))),
            10.0,
            zero=0.75,
        ),
    },
    "silu": {
        "SiluSlope": Full(
            "(1 - a / (1 + e^-a)) / (1 + e^a)",
            silu_tail,
            109.0,
            (0.71, -0.004625, 1.927e-5),
            10,
            "kSumIsOne",
            zero=1.28,
        ),
    },
    "mish": {
        "MishSlope": (
            Function(
                "f'(-a) e^a", lambda a: mish_slope(-a) * mp.exp(a), 18.0, (-16, -1), 17.0, zero=1.19
            ),
            Function(
                "and (1 - f'(a)) e^a",
                lambda a: (1 - mish_slope(a)) * mp.exp(a),
                18.0,
                weight=lambda a: mp.exp(-a),
            ),
        ),
    },
    "softplus": {
        "Softplus": Function(
            "log(1 + e^-a) e^a", lambda a: mp.log1p(mp.exp(-a)) * mp.exp(a), 18.0, (1,)
        ),
    },
    "tanh": {
        "Tanh": Full("tanh(a)", mp.tanh, 9.1, (1.6, -0.0878, 0), 7, "kOdd", zero=0, guard=1.0),
    },
    "tanhshrink": {
        "Tanhshrink": Function("(a - tanh(a)) / a^3", lambda a: (a - mp.tanh(a)) / a**3, 9.2, (1,)),
        "TanhshrinkSlope": Function("tanh(a), whose square is f'(a)", mp.tanh, 9.2, (1,), zero=0),
    },
}


def error_in_ulp(exact) -> float:
    rounded = np.float32(float(exact))
    return abs(float((exact - mpf(float(rounded))) / mpf(float(np.spacing(abs(rounded))))))


def accurate_center(value: Callable, low: float, high: float) -> float:
    """Returns the point near the middle at which the value is closest to a float32 number."""
    middle, step = (low + high) / 2, (high - low) / (2 * CANDIDATES)
    candidates = [
        float(np.float32(middle + k * step)) for k in range(-CANDIDATES // 2, CANDIDATES // 2)
    ]
    return min(candidates, key=lambda center: error_in_ulp(value(mpf(center))))


def minimax(t, rest, weight, first: int, degree: int = DEGREE):
    """Returns the coefficients of t^first to t^degree."""
    powers = np.stack([t**k for k in range(first, degree + 1)], axis=1)
    lawson = np.ones_like(t)
    for _ in range(ITERATIONS):
        scaled = powers * (weight * np.sqrt(lawson))[:, None]
        size = np.abs(scaled).max(axis=0)
        fit = np.linalg.lstsq(scaled / size, rest * weight * np.sqrt(lawson), rcond=None)[0] / size
        error = np.abs((powers @ fit - rest) * weight)
        if error.max() == 0:
            break
        lawson *= error / error.max() + 1e-3
        lawson /= lawson.mean()
    return fit


def fit(function: Function, low: float, high: float):
    """Returns the center and the coefficients for low <= |x| <= high, and the largest relative
    error."""
    value = function.value
    zero = function.zero
    if zero:
        zero = float(mp.findroot(value, (zero - 0.3, zero + 0.3), solver="anderson"))
        # The neighbouring segments are small at their ends as well.
        is_near = low - (high - low) / 2 < zero < high + (high - low) / 2
        center = float(np.float32(zero)) if is_near else accurate_center(value, low, high)
    elif zero == 0 and low == 0:
        center, low = 0.0, high * 1e-3
    else:
        center = accurate_center(value, low, high)
    nodes = np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)
    x = [mpf(float((low + high) / 2 + (high - low) / 2 * node)) for node in nodes]
    t = np.array([float(point - mpf(center)) for point in x])
    exact = [value(point) for point in x]
    if function.weight:
        weight = np.array([float(function.weight(point)) for point in x])
    else:
        weight = np.array([float(1 / abs(y)) for y in exact])
    coefficients = [np.float32(float(value(mpf(center))))]
    rest = np.array([float(y - mpf(float(coefficients[0]))) for y in exact])
    for k in range(1, DEGREE + 1):
        coefficients.append(np.float32(minimax(t, rest, weight, k)[0]))
        rest = rest - float(coefficients[-1]) * t**k
    return center, coefficients, float(np.abs(rest * weight).max())


def literal(value) -> str:
    """Returns a float32 as C++ writes it."""
    digits, exponent = float(np.float32(value)).hex().split("p")
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return "0.0f" if value == 0 else f"{digits}p{exponent}f"


def full_rows(function: Full):
    """Returns the center and the coefficients of each segment, and the largest error of a
    polynomial."""
    zero = function.zero
    if zero:
        zero = float(mp.findroot(function.value, (zero - 0.3, zero + 0.3), solver="anderson"))
    rows, worst = [], 0.0
    for low, high in function.segments():
        near = (high - low) / 10
        if zero == 0 and low == 0:
            centers = [0.0]
        elif zero and low - near < zero < high + near:
            centers = [float(np.float32(zero))]
        else:
            centers = [accurate_near(function, low, high, part) for part in CENTERS]
        samples = np.linspace(max(low, high * 1e-3), high, SAMPLES).astype(np.float32)
        values = np.array([float(function.scaled(float(a))) for a in samples])
        fits = [full_fit(function, low, high, center) for center in centers]
        row, error = min(fits, key=lambda fit: rounding_error(fit[0], samples, values))
        rows.append(row)
        worst = max(worst, error)
    return rows, worst


def accurate_near(function: Full, low: float, high: float, part: float) -> float:
    """Returns the point near low + part (high - low) at which the value is closest to a float32."""
    middle, reach = low + part * (high - low), 0.04 * (high - low)
    candidates = [float(np.float32(middle + reach * step)) for step in np.linspace(-1, 1, 81)]
    return min(candidates, key=lambda center: error_in_ulp(function.scaled(center)))


def full_fit(function: Full, low: float, high: float, center: float):
    """Returns the center and the coefficients for low <= a <= high, and the largest relative
    error."""
    nodes = np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)
    low = max(low, high * 1e-3)
    x = [mpf(float((low + high) / 2 + (high - low) / 2 * node)) for node in nodes]
    t = np.array([float(point - mpf(center)) for point in x])
    exact = [function.scaled(point) for point in x]
    # The last place of a subnormal result does not shrink with the result.
    smallest = function.guard * 2.0**-126
    weight = np.array([float(1 / max(abs(y), smallest)) for y in exact])
    coefficients = [np.float32(float(function.scaled(center)))]
    rest = np.array([float(y - mpf(float(coefficients[0]))) for y in exact])
    for k in range(1, function.degree + 1):
        coefficients.append(np.float32(minimax(t, rest, weight, k, function.degree)[0]))
        rest = rest - float(coefficients[-1]) * t**k
    return [center, *coefficients], float(np.abs(rest * weight).max())


def rounding_error(row, samples, values) -> float:
    """Returns the largest error in ULP of the polynomial in float32, without the last rounding."""
    t = (samples - np.float32(row[0])).astype(np.float64)
    y = np.full_like(t, float(row[-1]))
    for coefficient in row[-2:0:-1]:
        exact = y * t + float(coefficient)
        y = exact.astype(np.float32).astype(np.float64)
    return float((np.abs(exact - values) / np.spacing(np.abs(values.astype(np.float32)))).max())


def block(values) -> str:
    """Returns the values as an initialiser, four per line."""
    rows = (", ".join(map(literal, values[i : i + 4])) for i in range(0, len(values), 4))
    return "{" + ",\n      ".join(rows) + "}"


def rows_of(function: Function):
    """Returns the center and the coefficients by index, and the largest error."""
    rows = [None] * SEGMENTS
    worst = 0.0
    for index, low, high in function.segments():
        center, coefficients, error = fit(function, low, high)
        rows[index] = [center, *coefficients]
        worst = max(worst, error)
    beyond = (*function.beyond, *[0.0] * (DEGREE + 1 - len(function.beyond)))
    rows[LAST_INDEX] = [function.beyond_center, *beyond]
    return rows, worst


def full_table(name: str, function: Full) -> str:
    rows, worst = full_rows(function)
    # A lookup ignores the higher bits of the index.
    size = next(size for size in SIZES if size >= len(rows))
    rows += rows[-1:] * (size - len(rows))
    columns = [block([row[k] for row in rows]) for k in range(function.degree + 2)]
    coefficients = ",\n     ".join(columns[1:])
    index = ", ".join(map(literal, function.index))
    return (
        f"// {function.comment}, to 2^{np.log2(worst):.1f}.\n"
        f"inline constexpr FullTable<{size}, {function.degree}> k{name}Segments = {{\n"
        f"    Reflection::{function.reflection},\n"
        f"    {literal(function.end)},\n    {{{index}}},\n    {columns[0]},\n"
        f"    {{{coefficients}}}}};\n"
    )


def table(name: str, functions) -> str:
    if isinstance(functions, Full):
        return full_table(name, functions)
    functions = functions if isinstance(functions, tuple) else (functions,)
    rows, comments = [], []
    for function in functions:
        own, worst = rows_of(function)
        rows += own
        comments.append(f"// {function.comment}, to 2^{np.log2(worst):.1f}.\n")
    columns = [block([row[k] for row in rows]) for k in range(DEGREE + 2)]
    coefficients = ",\n     ".join(columns[1:])
    return (
        f"{''.join(comments)}"
        f"inline constexpr SegmentTable<{len(rows)}> k{name}Segments = {{\n"
        f"    {literal(functions[0].scale)},\n    {columns[0]},\n    {{{coefficients}}}}};\n"
    )


def header_of(name: str) -> str:
    """Returns the text of a header."""
    tables = "\n".join(table(*item) for item in FUNCTIONS[name].items())
    return (
        "// Written by scripts/coefficients/fit_segments.py.\n#pragma once\n\n"
        '#include "ops/math/segments.h"\n\n// clang-format off\nnamespace fastact {\n\n'
        f"{tables}\n}}  // namespace fastact\n// clang-format on\n"
    )


def path_of(name: str) -> Path:
    return TABLES / f"{name}.h"


def main(names: list[str], check: bool) -> int:
    TABLES.mkdir(exist_ok=True)
    wrong = 0
    for name in names or FUNCTIONS:
        text = header_of(name)
        print(name, *re.findall(r"^// .* to 2\^-.*$", text, re.MULTILINE), sep="\n  ")
        if not check:
            path_of(name).write_text(text)
        elif path_of(name).read_text() != text:
            print(f"{path_of(name).name} DIFFERS")
            wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("name", nargs="*", help="as gelu; all, if none is named")
    arguments = parser.parse_args()
    if unknown := set(arguments.name) - set(FUNCTIONS):
        parser.error(f"expected names of {', '.join(FUNCTIONS)}, but got {unknown.pop()}")
    sys.exit(main(arguments.name, arguments.check))

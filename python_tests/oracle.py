"""Exact values: number formats, correct rounding and errors in ULP.

Long double decides nearly every rounding. If a value is within a margin of a rounding boundary,
mpmath computes it again with 200 bits, and with 1200 bits if these leave two answers.
"""

import math
from dataclasses import dataclass

import gmpy2
import mpmath
import numpy as np
import torch

# The permitted relative error of the long double oracle. numpy's 80-bit functions have errors of
# about 2^-62 on x86. An exponential multiplies the error of its argument by the argument, which is
# up to a hundred in the range of the narrower formats. If long double is no wider than double,
# mpmath computes every value.
MARGIN = np.longdouble(2.0) ** -58
MARGIN_OF_NARROW = np.longdouble(2.0) ** -50
WIDE = np.finfo(np.longdouble).nmant >= 63
PRECISION = 200
# The second one resolves the square of a subnormal bfloat16 next to 1.
PRECISIONS = (PRECISION, 1200)
PI = "3.14159265358979323846264338327950288419716939937510582097494459"


@dataclass(frozen=True)
class Format:
    """A binary floating-point format and the bits of its canonical NaN."""

    dtype: torch.dtype
    integer: torch.dtype
    digits: int  # of the significand, including the hidden one
    smallest: int  # exponent of the smallest subnormal number
    nan: int

    @property
    def largest(self):
        return np.longdouble(torch.finfo(self.dtype).max)


FORMATS = {
    f.dtype: f
    for f in (
        Format(torch.float32, torch.int32, 24, -149, 0x7FFFFFFF),
        Format(torch.float64, torch.int64, 53, -1074, 0x7FFFFFFFFFFFFFFF),
        Format(torch.bfloat16, torch.int16, 8, -133, 0x7FFF),
        Format(torch.float16, torch.int16, 11, -24, 0x7FFF),
    )
}


def complementary_error_function(x):
    """Computes erfc of a long double array with MPFR, because numpy has none."""
    flat = np.asarray(x, np.longdouble).ravel()
    high = flat.astype(np.float64)
    low = np.where(np.isfinite(high), flat - high, 0).astype(np.float64)
    parts = np.empty((3, len(flat)))
    with gmpy2.context(precision=64):
        for i, (a, b) in enumerate(zip(high.tolist(), low.tolist())):
            y = gmpy2.erfc(gmpy2.mpfr(a) + b)
            exponent, fraction = gmpy2.frexp(y) if gmpy2.is_regular(y) else (0, y)
            first = float(fraction)
            parts[:, i] = exponent, first, fraction - first if math.isfinite(first) else 0.0
    with np.errstate(under="ignore"):
        y = np.ldexp(parts[1].astype(np.longdouble) + parts[2], parts[0].astype(np.int64))
    return y.reshape(np.shape(x))


class LongDouble:
    """Arithmetic with numpy long double arrays."""

    exp = staticmethod(np.exp)
    expm1 = staticmethod(np.expm1)
    log1p = staticmethod(np.log1p)
    tanh = staticmethod(np.tanh)
    sqrt = staticmethod(np.sqrt)
    erfc = staticmethod(complementary_error_function)

    @staticmethod
    def pi():
        return np.longdouble(PI)

    @staticmethod
    def number(text):
        return np.longdouble(text)

    @staticmethod
    def where(condition, yes, no, x):
        result = np.empty_like(x)
        result[condition] = yes(x[condition])
        result[~condition] = no(x[~condition])
        return result


class Multiprecision:
    """Arithmetic with mpmath scalars."""

    exp = staticmethod(mpmath.exp)
    expm1 = staticmethod(mpmath.expm1)
    log1p = staticmethod(mpmath.log1p)
    tanh = staticmethod(mpmath.tanh)
    sqrt = staticmethod(mpmath.sqrt)
    erfc = staticmethod(mpmath.erfc)

    @staticmethod
    def pi():
        return +mpmath.pi

    @staticmethod
    def number(text):
        return mpmath.mpf(text)

    @staticmethod
    def where(condition, yes, no, x):
        return yes(x) if condition else no(x)


class Differentiable:
    """Arithmetic with tensors. PyTorch differentiates the row's formula to any order."""

    exp = staticmethod(torch.exp)
    expm1 = staticmethod(torch.expm1)
    log1p = staticmethod(torch.log1p)
    tanh = staticmethod(torch.tanh)
    erfc = staticmethod(torch.special.erfc)

    @staticmethod
    def sqrt(x):
        return torch.sqrt(x) if isinstance(x, torch.Tensor) else math.sqrt(x)

    @staticmethod
    def pi():
        return math.pi

    @staticmethod
    def number(text):
        return float(text)

    @staticmethod
    def where(condition, yes, no, x):
        return torch.where(condition, yes(x), no(x))


def reference(act):
    """Returns the activation composed of PyTorch's elementary functions."""
    return lambda x: act.derivative(Differentiable, x, 0)


def exact(function, x, k, precision=PRECISION):
    """Returns function(x, k) of a Python float as an mpmath number."""
    with mpmath.workprec(precision):
        return function(Multiprecision, mpmath.mpf(x), k)


def _rounded_exactly(function, x, k, fmt):
    """Returns exact() rounded. If the last precision leaves two answers, the value is a tie."""
    for precision in PRECISIONS:
        y = exact(function, x, k, precision)
        with mpmath.workprec(PRECISIONS[-1]):
            doubt = mpmath.ldexp(abs(y), 20 - precision) if mpmath.isfinite(y) else 0
            low, high = y - doubt, y + doubt
        if _round_exact(low, fmt) == _round_exact(high, fmt):
            break
    return _round_exact(y, fmt)


def wide(x):
    """Returns the elements of a tensor as a flat long double array."""
    return x.detach().cpu().double().reshape(-1).numpy().astype(np.longdouble)


def bits(t):
    """Returns a tensor's bits as integers of the same width and shape."""
    return t.detach().contiguous().view(FORMATS[t.dtype].integer).reshape(t.shape)


def from_bits(patterns, dtype, device="cpu"):
    """Returns a tensor with the given bit patterns (Python integers, unsigned or signed)."""
    width = 8 * dtype.itemsize
    signed = [p - (1 << width) if p >= 1 << (width - 1) else p for p in patterns]
    return torch.tensor(signed, dtype=FORMATS[dtype].integer).view(dtype).to(device)


def every_16_bit_value(dtype):
    return torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)


def _spacing(y, fmt):
    """Returns the exponent of the unit in the last place at each y."""
    _, exponent = np.frexp(y)
    return np.maximum(exponent - fmt.digits, fmt.smallest)


def _round(y, fmt):
    """Rounds to the nearest number of the format, ties to even. Overflows to infinity."""
    q = _spacing(y, fmt)
    rounded = np.ldexp(np.rint(np.ldexp(y, -q)), q)
    return np.where(np.abs(rounded) > fmt.largest, np.copysign(np.inf, y), rounded)


def _round_exact(y, fmt):
    """Does the same as _round() for one mpmath number."""
    if not mpmath.isfinite(y) or y == 0:
        return float(y)
    with mpmath.workprec(PRECISIONS[-1]):
        q = max(mpmath.frexp(y)[1] - fmt.digits, fmt.smallest)
        rounded = mpmath.ldexp(mpmath.nint(mpmath.ldexp(y, -q)), q)
        if abs(rounded) > mpmath.mpf(float(fmt.largest)):
            return float("inf") if y > 0 else float("-inf")
    return math.copysign(float(rounded), y)


def rounded(y, dtype):
    """Rounds a long double array once to a tensor of the dtype, with canonical NaNs."""
    with np.errstate(all="ignore"):
        tensor = torch.from_numpy(_round(y, FORMATS[dtype]).astype(np.float64)).to(dtype)
    tensor.view(FORMATS[dtype].integer)[torch.from_numpy(np.isnan(y))] = FORMATS[dtype].nan
    return tensor


def correctly_rounded(act, x, k):
    """Returns the k-th derivative at every x, correctly rounded to x's dtype; NaN is canonical."""
    fmt = FORMATS[x.dtype]
    values = wide(x)
    nan = np.isnan(values)
    values[nan] = 0
    with np.errstate(all="ignore"):
        y = np.broadcast_to(act.derivative(LongDouble, values, k), values.shape)
        margin = MARGIN if fmt.digits == 53 else MARGIN_OF_NARROW
        lost = margin * act.cancelling(k, values)
        lost = np.where(y < 0, -lost, lost)
        low, high = _round(y * (1 - margin) - lost, fmt), _round(y * (1 + margin) + lost, fmt)
    undecided = np.flatnonzero((low != high) & np.isfinite(y)) if WIDE else np.arange(len(y))
    result = low.astype(np.float64)
    for i in undecided:
        result[i] = _rounded_exactly(act.derivative, float(values[i]), k, fmt)
    if k == 0:
        result[(values == 0) & np.signbit(values)] = act.at_minus_zero
    else:
        result[result == 0] = 0.0  # a zero derivative is +0
    tensor = torch.from_numpy(result).to(x.dtype)
    integers = tensor.view(fmt.integer)
    integers[torch.from_numpy(nan)] = fmt.nan
    return tensor.reshape(x.shape).to(x.device)


def ulp_of(y, dtype):
    """Returns the unit in the last place of a dtype at each element of a long double array."""
    return np.ldexp(np.longdouble(1), _spacing(y, FORMATS[dtype]))


def ulp_errors(actual, function, k, x):
    """Returns |actual - function(x, k)| in ULP of the exact value, for finite elements.

    For float64 this is only a rough bound; exact_ulp_errors() is precise.
    """
    with np.errstate(all="ignore"):
        y = function(LongDouble, wide(x), k)
        return np.abs(wide(actual) - y) / ulp_of(y, actual.dtype)


def exact_ulp_errors(actual, function, k, x, floor=lambda x: 0.0):
    """Does the same with mpmath, element by element. If floor(x) is larger than the exact value,
    the result is in ULP of floor(x)."""
    fmt = FORMATS[actual.dtype]
    errors = []
    with mpmath.workprec(PRECISION):
        flat = zip(actual.detach().cpu().reshape(-1).tolist(), x.cpu().reshape(-1).tolist())
        for a, v in flat:
            y = function(Multiprecision, mpmath.mpf(v), k)
            size = max(abs(y), floor(v))
            q = fmt.smallest if size == 0 else max(mpmath.frexp(size)[1] - fmt.digits, fmt.smallest)
            errors.append(float(abs(mpmath.mpf(a) - y) / mpmath.ldexp(1, q)))
    return np.array(errors)

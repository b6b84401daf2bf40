"""Computes exact results: by enclosures if they decide the rounding, otherwise by MPFR. MPFR also
computes infinite inputs, zeros, and every input of the 16-bit types."""

from collections.abc import Callable
from dataclasses import dataclass

import gmpy2
import numpy as np
import torch

from enclosure import DOUBLE, EXTENDED, SLACK, Multiprecision
from oracle import FORMATS

# One in this many enclosures is compared with MPFR.
CHECKED = 1 << 16
# Precisions in bits: 200 decide nearly all roundings. The second precision suffices for the square
# of a subnormal float64.
PRECISIONS = (200, 4500)


class OracleError(Exception):
    """The oracle contradicts itself, so no verdict of this run can be trusted."""


@dataclass(frozen=True)
class Exact:
    """The exact results at some inputs."""

    # Correctly rounded. The value for a NaN is unspecified.
    expected: torch.Tensor
    # errors(results): the errors as doubles, in units of the last place of the exact value or of
    # the floor, whichever is larger (Activation.floor).
    errors: Callable


def _top_exponent(fmt):
    """Returns the exponent of the first power of two beyond the format's range."""
    return 3 - fmt.smallest - fmt.digits


_CONTEXTS = {
    dtype: gmpy2.context(
        precision=fmt.digits, emin=fmt.smallest + 1, emax=_top_exponent(fmt), subnormalize=True
    )
    for dtype, fmt in FORMATS.items()
}


def _round(y, dtype):
    with _CONTEXTS[dtype]:
        return +y


def exactly(act, x, k, dtype):
    """Returns f^(k)(x) for a float x that is not NaN: rounded to nearest even as a float, and as an
    MPFR number."""
    for precision in PRECISIONS:
        with gmpy2.context(precision=precision):
            y = act.derivative(Multiprecision, gmpy2.mpfr(x), k)
            if gmpy2.is_infinite(y):
                break
            doubt = abs(y) * gmpy2.exp2(20 - precision)
            low, high = y - doubt, y + doubt
        # If they differ even in the second precision, y is exactly between two numbers.
        if _round(low, dtype) == _round(high, dtype):
            break
    rounded = float(_round(y, dtype))
    if rounded == 0 and k > 0:
        rounded = 0.0  # a zero derivative is +0
    elif k == 0 and x == 0 and gmpy2.is_signed(gmpy2.mpfr(x)):
        rounded = act.at_minus_zero
    return rounded, y


def exact_error(result, y, dtype, floor=0.0):
    """Returns |result - y| in units of the last place of y, or of a larger floor. Infinity counts
    as the power of two beyond the largest number."""
    fmt = FORMATS[dtype]
    with gmpy2.context(precision=PRECISIONS[0]):
        if gmpy2.is_infinite(gmpy2.mpfr(result)):
            result = gmpy2.copy_sign(gmpy2.exp2(_top_exponent(fmt)), gmpy2.mpfr(result))
        size = max(abs(y), gmpy2.mpfr(floor))
        exponent = fmt.smallest
        if size != 0:
            exponent = max(gmpy2.get_exp(size) - fmt.digits, fmt.smallest)
        return float(abs(result - y) * gmpy2.exp2(-exponent))


def exact(act, x, k):
    """Returns Exact for the elements of a vector."""
    return {2: _exact_16_bit, 4: _exact_32_bit, 8: _exact_64_bit}[x.dtype.itemsize](act, x, k)


def _exact_16_bit(act, x, k):
    pairs = _ask_mpfr(act, torch.where(x.isnan(), 0, x), k)
    expected, y = (t.to(x.device) for t in pairs)
    return Exact(expected.to(x.dtype), lambda results: _errors_in_double(results, y))


def _exact_32_bit(act, x, k):
    enclosure = act.derivative(DOUBLE, DOUBLE.input(x.double()), k)
    y, doubt = (
        torch.as_tensor(t, dtype=torch.float64, device=x.device).expand(x.shape).contiguous()
        for t in (enclosure.value, enclosure.error * SLACK)
    )
    _check_sample(act, x, k, y, doubt)
    expected = y.float()
    if k > 0:
        expected += 0.0
    undecided = (y - doubt).float() != (y + doubt).float()
    undecided = (undecided | (x == 0) | x.isinf()) & ~x.isnan()
    where = undecided.nonzero().flatten()
    if len(where):
        answers, values = _ask_mpfr(act, x[where], k)
        expected[where], y[where] = answers.to(expected), values.to(y)
    return Exact(expected, lambda results: _errors_in_double(results, y))


def _exact_64_bit(act, x, k):
    on_cpu = x.cpu()
    with np.errstate(all="ignore"):
        values = on_cpu.numpy().astype(np.longdouble)
        enclosure = act.derivative(EXTENDED, EXTENDED.input(values), k)
        y, doubt = (
            np.broadcast_to(t, values.shape) for t in (enclosure.value, enclosure.error * SLACK)
        )
        rounded, low, high = (t.astype(np.float64) for t in (y, y - doubt, y + doubt))
    _check_sample(act, on_cpu, k, y, doubt)
    expected = torch.from_numpy(rounded)
    if k > 0:
        expected += 0.0
    undecided = (low != high) | (values == 0) | np.isinf(values)
    # An error in ULP needs more accuracy than a rounding: an uncertainty of 1/8 ULP is too large.
    with np.errstate(all="ignore"):
        undecided |= ~(doubt <= np.spacing(np.abs(rounded)) / 8)
    where = torch.from_numpy(undecided & (values == values)).nonzero().flatten()
    if len(where):
        y = y.copy()
        for i in where.tolist():
            expected[i], true = exactly(act, float(values[i]), k, torch.float64)
            y[i] = _extended(true)
    with np.errstate(all="ignore"):
        counted = np.maximum(np.abs(y), act.floor(torch.float64, k)(values))
    return Exact(expected.to(x.device), lambda results: _errors_in_extended(results, y, counted))


def _ask_mpfr(act, x, k):
    """Returns the rounded and the exact value at each element, as doubles."""
    pairs = [exactly(act, v, k, x.dtype) for v in x.double().tolist()]
    return (torch.tensor([float(p[i]) for p in pairs], dtype=torch.float64) for i in (0, 1))


def _errors_in_double(results, y):
    """Returns the errors for formats whose last places are far above those of a double."""
    fmt = FORMATS[results.dtype]
    wide = results.double()
    top = torch.tensor(2.0 ** _top_exponent(fmt), dtype=torch.float64)
    wide = torch.where(wide.isinf(), torch.copysign(top, wide), wide)
    # 2^-place, by its bits: place = max(exponent of y - digits, smallest).
    exponent = (y.view(torch.int64) >> 52).bitwise_and_(0x7FF).sub_(1022)
    place = exponent.sub_(fmt.digits).clamp_(min=fmt.smallest)
    scale = place.neg_().add_(1023).bitwise_left_shift_(52).view(torch.float64)
    return (wide - y).abs_().mul_(scale)


def _errors_in_extended(results, y, counted):
    """Returns the errors in units of the last places of `counted`."""
    fmt = FORMATS[results.dtype]
    with np.errstate(all="ignore"):
        wide = results.cpu().double().numpy().astype(np.longdouble)
        top = np.ldexp(np.longdouble(1), _top_exponent(fmt))
        wide = np.where(np.isinf(wide), np.copysign(top, wide), wide)
        place = np.maximum(np.frexp(counted)[1] - fmt.digits, fmt.smallest)
        errors = np.abs(np.ldexp(wide - y, -place)).astype(np.float64)
    return torch.from_numpy(errors).to(results.device)


def _check_sample(act, x, k, y, doubt):
    """Checks the enclosures themselves: MPFR's value must be inside."""
    for i in range(0, len(x), CHECKED):
        at = float(x[i])
        if not np.isfinite(at):
            continue
        with gmpy2.context(precision=PRECISIONS[0]):
            true = act.derivative(Multiprecision, gmpy2.mpfr(at), k)
            # If the arithmetic overflowed, the enclosure contains nothing. MPFR computes all of
            # these.
            if np.isinf(float(y[i])) and _round(true, x.dtype) == float(y[i]):
                continue
            own = abs(true) * gmpy2.exp2(20 - PRECISIONS[0])
            if not abs(true - _mpfr(y[i])) <= _mpfr(doubt[i]) + own:
                raise OracleError(f"{act.id}, order {k}: the enclosure at {at!r} is wrong")


def _extended(number):
    """Returns an MPFR number as the nearest 80-bit number, or one next to it."""
    if not gmpy2.is_regular(number):
        return np.longdouble(float(number))
    with gmpy2.context(precision=PRECISIONS[0]), np.errstate(all="ignore"):
        exponent, fraction = gmpy2.frexp(number)
        high = float(fraction)
        return np.ldexp(np.longdouble(high) + float(fraction - high), exponent)


def _mpfr(number):
    """Returns a double or an 80-bit number as an MPFR number, exactly."""
    if isinstance(number, torch.Tensor):
        return gmpy2.mpfr(number.item())
    fraction, exponent = np.frexp(number)
    high = np.float64(fraction)
    return (gmpy2.mpfr(high) + gmpy2.mpfr(np.float64(fraction - high))) * gmpy2.exp2(int(exponent))

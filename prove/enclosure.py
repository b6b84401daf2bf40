"""Arithmetics for the formulas of the oracle table: enclosures, and arbitrary precision.

An enclosure is a value and a bound of its error, which every operation propagates. It proves most
roundings. If the bound leaves two possible results, MPFR (by gmpy2) decides.
"""

from fractions import Fraction

import gmpy2
import numpy as np
import torch

from oracle import PI, complementary_error_function

# Rounding errors of the bounds' own arithmetic: a few operations of relative error 2^-52 each.
SLACK = 1 + 2.0**-30


class Enclosure:
    """|exact - value| <= error, element by element; `error` may be a number for all elements."""

    def __init__(self, backend, value, error):
        self.backend, self.value, self.error = backend, value, error

    def _of(self, other):
        return other if isinstance(other, Enclosure) else Enclosure(self.backend, other, 0.0)

    def _rounded(self, value, error):
        """Returns the result of one operation: the error from the operands, plus half an ULP."""
        b = self.backend
        return Enclosure(b, value, error + abs(value) * b.half_ulp + b.tiny)

    def __neg__(self):
        return Enclosure(self.backend, -self.value, self.error)

    def __add__(self, other):
        other = self._of(other)
        a, b = self.value, other.value
        total = a + b
        if _is_zero(self.error) and _is_zero(other.error):
            # The exact rounding error of a sum (Knuth). It is often zero, as in 1 - 2x.
            taken = total - a
            return Enclosure(self.backend, total, abs((a - (total - taken)) + (b - taken)))
        return self._rounded(total, self.error + other.error)

    def __sub__(self, other):
        return self + -self._of(other)

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        if isinstance(other, int) and abs(other).bit_count() == 1:
            # A product with a whole power of two is exact.
            error = self.error if _is_zero(self.error) else self.error * abs(other)
            return Enclosure(self.backend, self.value * other, error)
        other = self._of(other)
        error = self.error * other.error
        # Exact operands, such as x itself, add no error.
        if not _is_zero(other.error):
            error = error + abs(self.value) * other.error
        if not _is_zero(self.error):
            error = error + abs(other.value) * self.error
        return self._rounded(self.value * other.value, error)

    def __truediv__(self, other):
        other = self._of(other)
        value = self.value / other.value
        if _is_zero(self.error) and _is_zero(other.error):
            return self._rounded(value, 0.0)
        # A quotient whose divisor may be zero has no bound.
        least = abs(other.value) - other.error
        known = self.backend.library.where(least > 0, least, 0.0 * least)
        return self._rounded(value, (self.error + abs(value) * other.error) / known)

    def __rtruediv__(self, other):
        return self._of(other) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def _exact(self):
        assert _is_zero(self.error), "a formula may branch on its input alone"
        return self.value

    def __gt__(self, other):
        return self._exact() > other

    def __ge__(self, other):
        return self._exact() >= other

    def __lt__(self, other):
        return self._exact() < other

    def __le__(self, other):
        return self._exact() <= other


def _is_zero(error):
    return isinstance(error, float) and error == 0.0


class Enclosing:
    """Arithmetic on enclosures of one array type.

    Elementary functions are those of the array library. Their documented errors are at most 4 ULP,
    for the double functions of SLEEF and CUDA and for glibc's 80-bit ones. LIBRARY_ULP is assumed,
    and accuracy.py compares a sample with MPFR on every run. The error of an argument is multiplied
    by the largest slope over its interval.

    erfc in double is torch's, with a documented error of 1.5 (SLEEF) to 5 ULP (CUDA, glibc) for
    normal results. In 80 bits it is MPFR's.
    """

    LIBRARY_ULP = 8
    # Below this, erfc in double has no relative accuracy.
    ERFC_TINY = 2.0**-1000

    def __init__(self, library, number, digits, tiny, erfc):
        self.library = library
        self._erfc = erfc
        self._number = number
        self.half_ulp = 2.0**-digits
        self.tiny = tiny

    def input(self, x):
        return Enclosure(self, x, 0.0)

    def number(self, text):
        value = self._number(text)
        is_exact = Fraction(*value.item().as_integer_ratio()) == Fraction(text)
        return Enclosure(self, value, 0.0 if is_exact else abs(value) * self.half_ulp)

    def pi(self):
        return self.number(PI)

    def where(self, condition, yes, no, x):
        a, b = yes(x), no(x)
        where = self.library.where
        value = where(condition, a.value, b.value)
        if _is_zero(a.error) and _is_zero(b.error):
            return Enclosure(self, value, 0.0)
        return Enclosure(self, value, where(condition, a.error, b.error))

    def _elementary(self, function, a, spread):
        """Returns function(a). spread(value, error) bounds the change of the function over a.value
        +- error."""
        value = function(a.value)
        error = abs(value) * (2 * self.LIBRARY_ULP * self.half_ulp) + self.tiny
        if not _is_zero(a.error):
            # The function's own rounding errors, and those of the bound.
            error = error + spread(value, a.error) * SLACK + self.tiny
        return Enclosure(self, value, error)

    def exp(self, a):
        return self._elementary(self.library.exp, a, self._spread_of_exponential(a))

    def expm1(self, a):
        return self._elementary(self.library.expm1, a, self._spread_of_exponential(a))

    def _spread_of_exponential(self, a):
        # The slope is e^x, which is largest at the right end.
        return lambda value, e: e * self.library.exp(a.value + e)

    def log1p(self, a):
        # The slope is 1 / (1 + x), which is largest at the left end.
        where = self.library.where

        def spread(value, e):
            least = 1 + a.value - e
            return e / where(least > 0, least, 0.0 * least)

        return self._elementary(self.library.log1p, a, spread)

    def tanh(self, a):
        return self._elementary(self.library.tanh, a, lambda value, e: e)

    def erfc(self, a):
        # The slope is 2 / sqrt(pi) e^(-x^2), which is largest where |x| is smallest.
        where = self.library.where

        def spread(value, e):
            least = abs(a.value) - e
            least = where(least > 0, least, 0.0 * least)
            return 1.13 * e * self.library.exp(-(least * least))

        result = self._elementary(self._erfc, a, spread)
        return Enclosure(self, result.value, 2 * result.error + self.ERFC_TINY)

    def sqrt(self, a):
        # sqrt(a + e) - sqrt(a) <= e / sqrt(a), and <= sqrt(e).
        library = self.library

        def spread(value, e):
            far = library.sqrt(e)
            return library.where(value > far, e / value, far)

        return self._elementary(library.sqrt, a, spread)


# float32 results are compared with double, float64 results with the processor's 80-bit format.
DOUBLE = Enclosing(
    torch, lambda s: torch.tensor(float(s), dtype=torch.float64), 53, 2.0**-1074, torch.special.erfc
)
EXTENDED = Enclosing(
    np, np.longdouble, 64, np.finfo(np.longdouble).smallest_subnormal, complementary_error_function
)


class Multiprecision:
    """Arithmetic over MPFR numbers, in the precision of gmpy2's context."""

    exp = staticmethod(gmpy2.exp)
    expm1 = staticmethod(gmpy2.expm1)
    log1p = staticmethod(gmpy2.log1p)
    tanh = staticmethod(gmpy2.tanh)
    sqrt = staticmethod(gmpy2.sqrt)
    erfc = staticmethod(gmpy2.erfc)
    pi = staticmethod(gmpy2.const_pi)
    number = staticmethod(gmpy2.mpfr)

    @staticmethod
    def where(condition, yes, no, x):
        return yes(x) if condition else no(x)

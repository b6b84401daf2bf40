"""Compares PReLU with its exact results. Its operators take two tensors or more, so no input space
can be tested completely.

Every result is one product, or an unchanged operand. A product of two numbers of at most 24 digits
is exact in the processor's 80-bit format. For float64, the IEEE product is the nearest number by
definition; MPFR confirms this for a sample.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import gmpy2
import numpy as np
import torch
from _digests.inputs import SAMPLE, mixed
from _digests.kernels import PRELU

from accuracy import Tally, tally
from exact import CHECKED, Exact, OracleError, _errors_in_extended, _round
from oracle import FORMATS, rounded, wide

BOUND = 0.5


def _value(w, x):
    return np.where(x > 0, x, w * x)


def _by_input(g, w, x):
    """Returns g df/dx. A derivative of zero gives +0 for any gradient."""
    result = np.where(x > 0, g, np.where(w == 0, 0, g * w))
    return np.where(x != x, x, result)


def _by_weight(g, x):
    result = np.where(x >= 0, 0, g * x)
    return np.where(x != x, x, result)


def _by_both(h, g, x):
    return np.where(x != x, x, np.where(x > 0, 0, h * g))


@dataclass(frozen=True)
class Form:
    """One of the elementwise operators that compose prelu and its derivatives."""

    name: str
    order: int
    operator: str
    operands: int
    exactly: Callable
    # PyTorch's function of the same operands; None if there is none.
    aten: Callable | None = None


def _aten_gradient(which):
    """Returns one of the two results of ATen's backward operator, with one weight per element."""

    def gradient(*operands):
        g, x = operands[0], operands[-1]
        w = operands[1] if which == 0 else torch.ones_like(x)
        return torch.ops.aten._prelu_kernel_backward(g, x, w)[which]

    return gradient


FORMS = (
    Form("", 0, "_prelu", 2, _value, lambda w, x: torch.ops.aten._prelu_kernel(x, w)),
    Form(" by input", 1, "_prelu_backward", 3, _by_input, _aten_gradient(0)),
    Form(" by weight", 1, "_prelu_weight_backward", 2, _by_weight, _aten_gradient(1)),
    Form(" by weight and input", 2, "_prelu_weight_double_backward", 3, _by_both),
)


@dataclass(frozen=True)
class PreluJob:
    """One of the forms in one dtype, over fixed pseudo-random sets of operands."""

    form: Form
    dtype: torch.dtype
    device: str
    sample: int = SAMPLE

    bound = BOUND

    @property
    def inputs(self):
        return 1 << self.sample

    @property
    def act(self):
        """The name under which states are stored."""
        return SimpleNamespace(id=PRELU + self.form.name)

    @property
    def order(self):
        return self.form.order

    @property
    def name(self):
        form = self.act.id.replace(" ", "-")
        return f"{form}_order{self.order}_{str(self.dtype).removeprefix('torch.')}"

    def confirmed(self, found):
        """Returns the largest error of a piece, which is exact."""
        return found.max_ulp

    def piece(self, first, count):
        """Returns the tallies of a piece for FastAct and PyTorch."""
        operands = [
            mixed(self.dtype, i, first, count, self.device) for i in range(self.form.operands)
        ]
        target = self.exact(*operands)
        x = operands[-1]
        ours = getattr(torch.ops.fastact, self.form.operator)(*operands)
        theirs = self.form.aten(*operands) if self.form.aten else None
        # A NaN may also come from an operand besides x, or from zero times infinity.
        unclear = target.expected.isnan() & ~x.isnan()
        return tuple(
            Tally()
            if results is None
            else tally(torch.where(unclear, torch.nan, x), results, target, BOUND, is_ours)
            for results, is_ours in ((ours, True), (theirs, False))
        )

    def exact(self, *operands):
        with np.errstate(all="ignore"):
            values = [wide(t) for t in operands]
            y = self.form.exactly(*values)
            if self.dtype == torch.float64:
                narrow = [v.astype(np.float64) for v in values]
                expected = torch.from_numpy(self.form.exactly(*narrow))
                self._check_sample(expected, narrow)
            else:
                expected = rounded(y, self.dtype)
        device = operands[0].device
        counted = np.where(np.isfinite(y), np.abs(y), 0)
        return Exact(expected.to(device), lambda results: _errors_in_extended(results, y, counted))

    def _check_sample(self, expected, operands):
        for i in range(0, len(expected), CHECKED >> 4):
            numbers = [gmpy2.mpfr(float(t[i])) for t in operands]
            if all(map(gmpy2.is_finite, numbers)):
                with gmpy2.context(precision=2 * FORMATS[torch.float64].digits):
                    true = gmpy2.mpfr(self.form.exactly(*numbers).item())
                if float(_round(true, self.dtype)) != float(expected[i]):
                    raise OracleError(f"{self.act.id}: the product at {numbers} is wrong")

"""The oracle table: one row an activation, and nothing else to add when an activation is added.

A row gives the exact mathematics (value and three derivatives, written once over the arithmetics of
oracle.py), PyTorch's own operators as the oracle for semantics, and what FastAct promises. How
exact it is, the header of its formula says.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch

FORMULAS = Path(__file__).resolve().parent.parent / "ops" / "formulas"

SUFFIXES = ("", "_backward", "_double_backward", "_triple_backward")
GRADIENT_NAMES = (
    (),
    ("grad_output",),
    ("grad_grad_input", "grad_output"),
    ("grad_grad_grad", "grad_grad_input", "grad_output"),
)
TOP_ORDER = 3


def contract(name):
    """Largest errors in ULP of the value and the derivatives, by dtype: what the comment of the
    formula's header promises. 0.5 means correctly rounded."""
    path = FORMULAS / f"{name}.h"
    table = re.search(
        r"^// Accuracy \(ULP\):.*\n((?://   \w+ .*\n)+)", path.read_text(), re.MULTILINE
    )
    rows = [line.split()[1:] for line in table[1].splitlines()] if table else []
    ulp = {getattr(torch, dtype): tuple(map(float, bounds)) for dtype, *bounds in rows}
    dtypes = {torch.bfloat16, torch.float16, torch.float32, torch.float64}
    if set(ulp) != dtypes or any(len(bounds) != TOP_ORDER + 1 for bounds in ulp.values()):
        raise ValueError(f"{path}: expected a table 'Accuracy (ULP)', but got {rows}")
    return ulp


@dataclass(frozen=True)
class Activation:
    """What FastAct promises for one activation; see the rows below for examples."""

    name: str
    # derivative(m, x, k): the k-th derivative at x (k = 0: the value) in the arithmetic m.
    derivative: Callable
    # exactly_zero(x, k): where the k-th derivative is zero, for a float x that is not NaN.
    exactly_zero: Callable
    at_minus_zero: float
    # PyTorch's functional, in-place, out= and backward forms: the oracle for semantics.
    aten: Callable
    aten_: Callable
    aten_out: Callable
    aten_backward: Callable
    saves: str  # "input" or "result": what the functional form keeps for backward
    # from_result(m, r, k): d(r) = f'(f^-1(r)) and its derivatives by r (k = 1: d itself), where
    # the operators take is_result.
    from_result: Callable | None = None
    kinks: tuple = (0.0,)  # gradcheck stays away from these
    # Where else the float64 formula changes; `make prove` looks closely there.
    branch_points: tuple = ()
    parameters: dict = field(default_factory=dict)  # passed by keyword to every form

    @property
    def id(self):
        return self.name + "".join(f"-{k}={v}" for k, v in self.parameters.items())

    @cached_property
    def ulp(self):
        """The contract with unit gradients, by dtype and order."""
        return contract(self.name)

    @property
    def has_is_result(self):
        return self.from_result is not None

    def packet(self, suffix=""):
        return getattr(torch.ops.fastact, self.name + suffix)

    def op(self, x):
        return self.packet()(x, **self.parameters)

    def op_(self, x):
        return self.packet("_")(x, **self.parameters)

    def out(self, x, out):
        return self.packet().out(x, **self.parameters, out=out)

    def ladder(self, *tensors, **options):
        """D_k(g1..gk, x): the family's operator that takes so many tensors."""
        return self.packet(SUFFIXES[len(tensors) - 1])(*tensors, **self.parameters, **options)

    def grad_input(self, grad, x, grad_input, **options):
        overload = self.packet("_backward").grad_input
        return overload(grad, x, **self.parameters, **options, grad_input=grad_input)

    def product_ulp(self, dtype, order):
        """The largest error of D_order with any gradients. Those of 16-bit types are multiplied in
        float and those of float32 in double, and rounded once; float64's may each add half an ULP.
        So may float32's first, where a formula has a backward() of its own."""
        wide = dtype == torch.float64 or (dtype == torch.float32 and order == 1)
        return self.ulp[dtype][order] + (0.5 * order if wide else 0.01)

    @cached_property
    def derivative_options(self):
        """The keyword sets that a derivative operator takes: with is_result where there is one."""
        return ({}, {"is_result": True}) if self.has_is_result else ({},)


SELU_SCALE = "1.0507009873554804934193349852946"
SELU_ALPHA = "1.6732632423543772848170429916717"


def selu(m, x, k):
    scale = m.number(SELU_SCALE)
    slope = scale * m.number(SELU_ALPHA)
    if k == 0:
        return m.where(x > 0, lambda x: scale * x, lambda x: slope * m.expm1(x), x)
    positive = scale if k == 1 else m.number("0")
    return m.where(x > 0, lambda x: positive, lambda x: slope * m.exp(x), x)


def selu_from_result(m, r, k):
    scale = m.number(SELU_SCALE)
    slope = scale * m.number(SELU_ALPHA)
    positive = scale if k == 1 else m.number("0")
    negative = {1: lambda r: r + slope, 2: lambda r: m.number("1"), 3: lambda r: m.number("0")}[k]
    return m.where(r > 0, lambda r: positive, negative, r)


def relu(m, x, k):
    if k == 0:
        return m.where(x > 0, lambda x: x, lambda x: m.number("0"), x)
    return m.where(x > 0, lambda x: m.number("1" if k == 1 else "0"), lambda x: m.number("0"), x)


ELU_ARGUMENTS = (float(SELU_ALPHA), float(SELU_SCALE), 1)

ACTIVATIONS = (
    Activation(
        name="selu",
        derivative=selu,
        exactly_zero=lambda x, k: k >= 1 and x == -torch.inf or k >= 2 and x > 0,
        at_minus_zero=-0.0,
        # Where e^x changes its reduction, where the value reaches its limit and e^x is subnormal.
        branch_points=(*(-(n + 0.5) * math.log(2) for n in range(60)), -40.0, -708.396, -745.133),
        aten=torch.selu,
        aten_=torch.selu_,
        aten_out=lambda x, out: torch.ops.aten.elu.out(x, *ELU_ARGUMENTS, out=out),
        aten_backward=lambda g, x: torch.ops.aten.elu_backward(g, *ELU_ARGUMENTS, False, x),
        saves="input",
        from_result=selu_from_result,
    ),
    Activation(
        name="relu",
        derivative=relu,
        exactly_zero=lambda x, k: k >= 1 and x <= 0 or k >= 2,
        at_minus_zero=-0.0,
        aten=torch.relu,
        aten_=torch.relu_,
        aten_out=lambda x, out: torch.ops.aten.clamp_min.out(x, 0, out=out),
        aten_backward=lambda g, x: torch.ops.aten.threshold_backward(g, x, 0),
        saves="result",
    ),
)

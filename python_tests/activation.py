"""The fields of a row of op_table.py: what FastAct promises for one activation. Also calls the
operators of the row."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

FORMULAS = Path(__file__).resolve().parent.parent / "ops" / "activations"

SUFFIXES = ("", "_backward", "_double_backward", "_triple_backward")
GRADIENT_NAMES = (
    (),
    ("grad_output",),
    ("grad_grad_input", "grad_output"),
    ("grad_grad_grad", "grad_grad_input", "grad_output"),
)
TOP_ORDER = 3


def contract(name):
    """Returns the largest errors in ULP of the value and the derivatives, by dtype, from the
    comment of the formula's header. 0.5 means correctly rounded."""
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


def orders_that_cancel(name):
    """Returns the orders of the derivatives whose terms cancel next to a zero, from the header."""
    text = (FORMULAS / f"{name}.h").read_text()
    line = re.search(r"^// Terms cancel \(float64\): (f'+(?:, f'+)*)$", text, re.MULTILINE)
    return frozenset(form.count("'") for form in line[1].split(", ")) if line else frozenset()


@dataclass(frozen=True)
class Activation:
    """What FastAct promises for one activation. op_table.py contains the rows."""

    name: str
    # derivative(m, x, k): the k-th derivative at x (k = 0: the value), computed in the arithmetic
    # m.
    derivative: Callable
    # exactly_zero(x, k): where the k-th derivative is zero, for a float x that is not NaN.
    exactly_zero: Callable
    at_minus_zero: float
    # PyTorch's functional, in-place, out= and backward forms: the oracle for semantics.
    # aten_forms() and composed() give all four.
    aten: Callable
    aten_: Callable
    aten_out: Callable
    aten_backward: Callable
    # Whether these forms are composed of several operators. Their values are right, but not their
    # versions, nor the strides of dimensions of size 1.
    is_composed: bool = field(default=False, kw_only=True)
    # Whether aten_backward uses autograd, and so also runs a forward pass.
    is_backward_by_autograd: bool = field(default=False, kw_only=True)
    saves: str  # "input" or "result": what the functional form saves for backward
    # The derivative operators take the result as `output`, like ATen's tanh_backward. Then
    # derivative(m, y, k) for k > 0 is a function of the result: d^(k - 1)(y) for d(y) =
    # f'(f^-1(y)).
    takes_output: bool = False
    # from_result(m, r, k): d(r) = f'(f^-1(r)) and its derivatives by r (k = 1: d itself), if the
    # operators have is_result.
    from_result: Callable | None = None
    # Whether the in-place form saves its result, used in place of the input, although the
    # functional form saves the input.
    in_place_saves_result: bool = False
    # Whether is_result may be True with these parameters.
    result_suffices: bool = True
    kinks: tuple = (0.0,)  # gradcheck avoids these
    # Other points where the float64 formula changes; `make prove` tests their neighbourhoods.
    branch_points: tuple = ()
    parameters: dict = field(default_factory=dict)  # passed by keyword to every form
    defaults: dict | None = None  # the schema's defaults, if they differ from `parameters`
    # (dtype, order): bounds with other parameters, from the header's text.
    bounds_of_others: dict = field(default_factory=dict)
    # Invalid parameters: (parameters, the error's class, a text in the message).
    forbidden: tuple = ()

    @property
    def id(self):
        return self.name + "".join(f"-{k}={v}" for k, v in self.parameters.items())

    @cached_property
    def ulp(self):
        """The bounds with gradients of 1, by dtype and order."""
        ulp = contract(self.name)
        if self.defaults is None:
            return ulp
        # Other parameters add one rounding, in the compute type.
        others = {dtype: lambda bound: max(bound, 0.51) for dtype in ulp}
        others[torch.float64] = lambda bound: 2 * bound
        return {
            dtype: tuple(
                self.bounds_of_others.get((dtype, order), others[dtype](bound))
                for order, bound in enumerate(bounds)
            )
            for dtype, bounds in ulp.items()
        }

    @cached_property
    def _orders_that_cancel(self):
        return orders_that_cancel(self.name)

    def cancelling(self, order, x):
        """Returns 1/16 where this derivative's terms may cancel, otherwise 0, for a number or an
        array x."""
        return 0.0625 * (abs(x) < 10) if order in self._orders_that_cancel else 0.0

    def floor(self, dtype, order):
        """Returns floor(x). The bounds are in ULP of the exact value, or of floor(x) if that is
        larger."""
        return lambda x: self.cancelling(order, x) if dtype == torch.float64 else 0.0

    @property
    def is_pytorchs(self):
        """Whether PyTorch has an operator of this name. Otherwise, the composition determines signs
        of zeros and layouts of gradients."""
        name = {"gelu_tanh": "gelu"}.get(self.name, self.name)
        return hasattr(torch.nn.functional, name) or torch._C._dispatch_has_kernel(f"aten::{name}")

    @property
    def has_is_result(self):
        return self.from_result is not None

    @property
    def takes_is_result(self):
        return self.has_is_result and self.result_suffices

    @cached_property
    def self_leads(self):
        """Whether PyTorch's gradient has the layout of self, instead of the incoming gradient's."""
        x = torch.ones(3, 2).t()
        return self.aten_backward(torch.ones(2, 3), x).stride() == x.stride()

    @property
    def in_place_keeps_input(self):
        """Whether the in-place form must copy its input for backward."""
        return self.saves == "input" and not (self.takes_is_result or self.in_place_saves_result)

    def packet(self, suffix=""):
        return getattr(torch.ops.fastact, self.name + suffix)

    def op(self, x):
        return self.packet()(x, **self.parameters)

    def op_(self, x):
        return self.packet("_")(x, **self.parameters)

    def out(self, x, out):
        return self.packet().out(x, **self.parameters, out=out)

    def ladder(self, *tensors, **options):
        """Calls D_k(g1..gk, x), the derivative operator for this number of tensors."""
        return self.packet(SUFFIXES[len(tensors) - 1])(*tensors, **self.parameters, **options)

    def gradient(self, grad, x):
        """Returns the gradient of the activation at x, by the derivative operator."""
        return self.ladder(grad, self.op(x) if self.takes_output else x)

    def grad_input(self, grad, x, grad_input, **options):
        overload = self.packet("_backward").grad_input
        return overload(grad, x, **self.parameters, **options, grad_input=grad_input)

    def allowed_error(self, dtype, order, x, derivative, factor, ulp_of):
        """Returns the largest permitted error of D_order at x, given the exact derivative and the
        exact product of the gradients. ulp_of(y, dtype) is the ULP of a number."""
        size, product = abs(derivative), abs(derivative * factor)
        bound = self.ulp[dtype][order]
        if dtype == torch.float64:
            # The derivative's own error times the gradients: up to twice as many ULP of the
            # product. Each product adds up to one ULP, the last one half an ULP.
            floor = self.floor(dtype, order)(x)
            own = bound * ulp_of(np.maximum(size, floor), dtype) * abs(factor)
            return own + max(order - 0.5, 0) * ulp_of(product, dtype)
        if dtype == torch.float32 and order == 1:
            # Either f' is rounded to float32 (in segments), which is up to twice as many ULP of the
            # product, or a formula's backward() computes the product.
            own = bound * np.maximum(ulp_of(size, dtype) * abs(factor), ulp_of(product, dtype))
            return own + 0.5 * ulp_of(product, dtype)
        # 16-bit types are multiplied in float, and the other orders of float32 in double; both are
        # rounded once.
        bound += 0.01
        # In 16-bit types, the float that is rounded to the correct derivative has lost digits where
        # terms cancel.
        lost = 2.0**-14 * torch.finfo(dtype).eps if dtype.itemsize == 2 else 0.0
        cancelling = size < self.cancelling(order, x)
        return bound * ulp_of(product, dtype) + lost * cancelling * abs(factor)

    @cached_property
    def derivative_options(self):
        """The sets of keyword arguments of a derivative operator, with is_result if it has one."""
        return ({}, {"is_result": True}) if self.takes_is_result else ({},)


def composed(aten, backward=None):
    """Returns the forms of an activation for which PyTorch lacks some operators. They are composed
    of PyTorch's other operators, and have the semantics of those."""

    def in_place(x):
        return x.copy_(aten(x))

    def out(x, out):
        y = aten(x)
        torch.sigmoid(x, out=out)  # type, shape, strides and errors of any elementwise operator
        return out.copy_(y)

    def through_autograd(grad, x):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            return grad * torch.autograd.grad(aten(x).sum(), x)[0]

    return {
        "aten": aten,
        "aten_": in_place,
        "aten_out": out,
        "aten_backward": backward or through_autograd,
        "is_composed": True,
        "is_backward_by_autograd": backward is None,
    }


def aten_forms(name, *arguments, backward=None):
    """Returns the forms of ATen's operator of this name, with these arguments besides the
    tensor."""

    def bound(packet):
        def call(x):
            return packet(x, *arguments)

        call.__name__ = packet.__name__
        return call

    packet = getattr(torch.ops.aten, name)
    forms = composed(bound(packet), backward)
    if hasattr(torch.ops.aten, name + "_"):
        forms["aten_"] = bound(getattr(torch.ops.aten, name + "_"))
    if "out" in packet.overloads():
        forms["aten_out"] = lambda x, out: packet.out(x, *arguments, out=out)
    forms["is_composed"] = not (hasattr(torch.ops.aten, name + "_") and "out" in packet.overloads())
    return forms


# ---- Points where the formulas in ops/activations/ change

EXPONENTIAL_BRANCHES = (
    *(-(n + 0.5) * math.log(2) for n in range(60)), -40.0, -600.0, -708.396, -745.133,
)  # fmt: skip


# Points where e^-|z| changes its reduction, and where it becomes subnormal.
REDUCTIONS = (*((n + 0.5) * math.log(2) for n in range(60)), 40.0, 708.396, 745.133)


def segment_ends(end):
    """Returns the points where segments.h changes the polynomial, up to `end`."""
    steps = [2.0**octave * (1 + step / 4) for octave in range(-4, 0) for step in range(4)]
    return tuple((v - steps[1]) / (1 - steps[1]) * end for v in (*steps[2:], 1.0))


def full_table_ends(end, linear, quadratic=0.0, cubic=0.0):
    """Returns the points where a full table of segments.h changes the polynomial, up to its end."""
    grid = np.linspace(0, end, 100_001)
    index = grid * (linear + grid * (quadratic + grid * cubic))
    ends = np.interp(np.arange(round(index[-1])) + 0.5, index, grid)
    return (*ends.tolist(), end)


def both_signs(points):
    return tuple(sign * point for point in points for sign in (1, -1))


def gelu_tanh_inverse(w):
    """Returns the x for which gelu_tanh's exponent is w."""
    scale = math.sqrt(3 * 0.044715)
    return 2 / scale * math.sinh(math.asinh(1.5 * scale * w / math.sqrt(8 / math.pi)) / 3)

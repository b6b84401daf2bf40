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

import numpy as np
import torch

from oracle import Multiprecision

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


def orders_that_cancel(name):
    """The derivatives whose terms cancel next to a zero, as the header says."""
    text = (FORMULAS / f"{name}.h").read_text()
    line = re.search(r"^// Terms cancel \(float64\): (f'+(?:, f'+)*)$", text, re.MULTILINE)
    return frozenset(form.count("'") for form in line[1].split(", ")) if line else frozenset()


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
    # aten_forms() and composed() give all four.
    aten: Callable
    aten_: Callable
    aten_out: Callable
    aten_backward: Callable
    # Whether these are made of several operators: right in value, but not in versions, and not in
    # the strides of dimensions of size 1.
    is_composed: bool = field(default=False, kw_only=True)
    saves: str  # "input" or "result": what the functional form keeps for backward
    # The derivative operators take the result, as `output`, as ATen's tanh_backward does. Then
    # derivative(m, y, k) for k > 0 is a function of it: d^(k - 1)(y) for d(y) = f'(f^-1(y)).
    takes_output: bool = False
    # from_result(m, r, k): d(r) = f'(f^-1(r)) and its derivatives by r (k = 1: d itself), where
    # the operators take is_result.
    from_result: Callable | None = None
    # Whether with these parameters is_result may be True.
    result_suffices: bool = True
    kinks: tuple = (0.0,)  # gradcheck stays away from these
    # Where else the float64 formula changes; `make prove` looks closely there.
    branch_points: tuple = ()
    parameters: dict = field(default_factory=dict)  # passed by keyword to every form
    defaults: dict | None = None  # the schema's, where they are others than `parameters`
    # (dtype, order): bounds with other parameters that the header gives in its text.
    bounds_of_others: dict = field(default_factory=dict)
    # (parameters, the error's class, what the message says) that are an error.
    forbidden: tuple = ()

    @property
    def id(self):
        return self.name + "".join(f"-{k}={v}" for k, v in self.parameters.items())

    @cached_property
    def ulp(self):
        """The contract with unit gradients, by dtype and order."""
        ulp = contract(self.name)
        if self.defaults is None:
            return ulp
        # Other parameters round once more, in the type that is computed in.
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
        """1/16 where that derivative's terms may cancel, else 0, at a number x or for each of an
        array."""
        return 0.0625 * (abs(x) < 10) if order in self._orders_that_cancel else 0.0

    def floor(self, dtype, order):
        """floor(x): the bounds count in ULP of the exact value, or of this where it is larger."""
        return lambda x: self.cancelling(order, x) if dtype == torch.float64 else 0.0

    @property
    def is_pytorchs(self):
        """Whether PyTorch has it by name: what it composes has the sign of zero, and the layout of
        a gradient, that its parts happen to give."""
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
        """Whether PyTorch's gradient lies as self, not as the incoming gradient."""
        x = torch.ones(3, 2).t()
        return self.aten_backward(torch.ones(2, 3), x).stride() == x.stride()

    @property
    def in_place_keeps_input(self):
        """Whether the in-place form has to copy its input for backward."""
        return self.saves == "input" and not self.takes_is_result

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

    def gradient(self, grad, x):
        """The gradient of the activation at x, by the derivative operator."""
        return self.ladder(grad, self.op(x) if self.takes_output else x)

    def grad_input(self, grad, x, grad_input, **options):
        overload = self.packet("_backward").grad_input
        return overload(grad, x, **self.parameters, **options, grad_input=grad_input)

    def allowed_error(self, dtype, order, x, derivative, factor, ulp_of):
        """The largest error of D_order at x, where the derivative and the product of the gradients
        have these exact values; ulp_of(y, dtype) is the last place of a number."""
        size, product = abs(derivative), abs(derivative * factor)
        bound = self.ulp[dtype][order]
        if dtype == torch.float64:
            # The derivative's own error times the gradients, which may be up to twice as many ULP
            # of the product; each product but the last may be an ULP off, and that one half.
            floor = self.floor(dtype, order)(x)
            own = bound * ulp_of(np.maximum(size, floor), dtype) * abs(factor)
            return own + max(order - 0.5, 0) * ulp_of(product, dtype)
        if dtype == torch.float32 and order == 1:
            # f' may be rounded to float32 (in segments), which is up to twice as many ULP of the
            # product; or the product that of a formula's backward().
            own = bound * np.maximum(ulp_of(size, dtype) * abs(factor), ulp_of(product, dtype))
            return own + 0.5 * ulp_of(product, dtype)
        # 16-bit types are multiplied in float and float32's others in double, and rounded once.
        bound += 0.01
        # Of 16-bit types, the float that is rounded to the right derivative has lost digits where
        # terms cancel.
        lost = 2.0**-14 * torch.finfo(dtype).eps if dtype.itemsize == 2 else 0.0
        cancelling = size < self.cancelling(order, x)
        return bound * ulp_of(product, dtype) + lost * cancelling * abs(factor)

    @cached_property
    def derivative_options(self):
        """The keyword sets that a derivative operator takes: with is_result where there is one."""
        return ({}, {"is_result": True}) if self.takes_is_result else ({},)


def composed(aten, backward=None):
    """The forms of an activation that PyTorch has no operator for, or not all forms of one: its
    semantics are those of the operators of which they are composed."""

    def in_place(x):
        return x.copy_(aten(x))

    def out(x, out):
        y = aten(x)
        torch.sigmoid(x, out=out)  # as any elementwise operator: its type, shape, strides, errors
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
    }


def aten_forms(name, *arguments, backward=None):
    """The forms of ATen's operator of this name, with these arguments beside the tensor."""

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


def leaky_relu(m, x, k, slope):
    positive = {0: lambda x: x, 1: lambda x: m.number(1)}.get(k, lambda x: m.number(0))
    negative = {0: lambda x: m.number(slope) * x, 1: lambda x: m.number(slope)}
    return m.where(x > 0, positive, negative.get(k, lambda x: m.number(0)), x)


def clamp(m, x, k, low, high):
    """low, x or high."""
    outside = (lambda x: m.number(low), lambda x: m.number(high)) if k == 0 else (zero(m),) * 2

    def inside(x):
        return x if k == 0 else m.number(int(k == 1))

    def above_low(x):
        return m.where(x < high, inside, outside[1], x)

    return m.where(x > low, above_low, outside[0], x)


def zero(m):
    return lambda x: m.number(0)


def threshold(m, x, k, threshold, value):
    above = {0: lambda x: x, 1: lambda x: m.number(1)}.get(k, zero(m))
    return m.where(x > threshold, above, lambda x: m.number(value if k == 0 else 0), x)


def shrink(m, x, k, lambd, shift):
    """0 for |x| <= lambd, beyond x moved by shift towards 0."""

    def beyond(sign):
        forms = {0: lambda x: x - m.number(sign * shift), 1: lambda x: m.number(1)}
        return forms.get(k, zero(m))

    def not_above(x):
        return m.where(x < -lambd, beyond(-1), zero(m), x)

    return m.where(x > lambd, beyond(1), not_above, x)


def piecewise(m, x, k, bound, middle, beyond):
    """0 for x <= -bound, beyond(x) for x >= bound, middle(x) between them."""

    def above(x):
        return m.where(x < bound, middle, beyond, x)

    return m.where(x > -bound, above, zero(m), x)


def hardsigmoid(m, x, k):
    middle = {0: lambda x: (x + m.number(3)) / m.number(6), 1: lambda x: m.number(1) / m.number(6)}
    one = m.number(int(k == 0))
    return piecewise(m, x, k, 3, middle.get(k, zero(m)), lambda x: one)


def hardswish(m, x, k):
    middle = {
        0: lambda x: x * (x + m.number(3)) / m.number(6),
        1: lambda x: (x + m.number("1.5")) / m.number(3),
        2: lambda x: m.number(1) / m.number(3),
    }
    beyond = {0: lambda x: x, 1: lambda x: m.number(1)}
    return piecewise(m, x, k, 3, middle.get(k, zero(m)), beyond.get(k, zero(m)))


def softsign(m, x, k):
    def side(sign):
        def form(x):
            t = m.number(1) / (m.number(1) + m.number(sign) * x)
            if k == 0:
                return m.number(sign) * (m.number(1) - t)
            power = t * t * {1: m.number(1), 2: t, 3: t * t}[k]
            return m.number({1: 1, 2: -2 * sign, 3: 6}[k]) * power

        return form

    def middle(sign):
        """Without the cancellation of 1 - t."""
        return lambda x: x / (m.number(1) + m.number(sign) * x)

    def not_above(x):
        if k == 0:
            return m.where(x > -1, middle(-1), side(-1), x)
        return m.where(x < 0, side(-1), zero(m) if k == 2 else side(1), x)

    def above(x):
        return m.where(x < 1, middle(1), side(1), x) if k == 0 else side(1)(x)

    return m.where(x > 0, above, not_above, x)


def squared_relu(m, x, k):
    positive = {0: lambda x: x * x, 1: lambda x: m.number(2) * x, 2: lambda x: m.number(2)}
    return m.where(x > 0, positive.get(k, zero(m)), zero(m), x)


def elu(m, x, k, alpha, scale, rate):
    """`rate` is a function of m: 1 / alpha is no decimal number."""
    positive = {0: lambda x: m.number(scale) * x, 1: lambda x: m.number(scale)}.get(k, zero(m))
    # Nothing, at an infinity too.
    is_flat = not (scale and alpha and rate(Multiprecision))

    def negative(x):
        factor = m.number(scale) * m.number(alpha)
        for _ in range(k):
            factor = factor * rate(m)
        if is_flat:
            return factor if k else factor * m.number("-0")
        return factor * (m.exp if k else m.expm1)(rate(m) * x)

    # A zero stays what it is, also where the rate is negative.
    return m.where(x >= 0 if k == 0 else x > 0, positive, negative, x)


def elu_from_result(m, r, k, alpha, scale, rate):
    positive = m.number(scale if k == 1 else 0)
    negative = {
        1: lambda r: rate(m) * (r + m.number(scale) * m.number(alpha)),
        2: lambda r: rate(m),
        3: zero(m),
    }[k]
    return m.where(r > 0, lambda r: positive, negative, r)


# Beyond it, and below its negative, the transcendental activations are their limits in every type;
# an exponential would give an infinity for a zero to meet.
FAR = 2.0**60


def between(m, x, low, middle, high, far=FAR):
    """low(x) below -far, high(x) beyond far, middle(x) between them."""

    def not_above(x):
        return m.where(x < -far, low, middle, x)

    return m.where(x > far, high, not_above, x)


def limit(m, k, value, slope):
    """What is at an infinity: a value ("x": x itself), a slope, and no more."""

    def form(x):
        if k == 0:
            return x if value == "x" else m.number(value)
        return m.number(slope if k == 1 else 0)

    return form


@dataclass(frozen=True)
class Logistic:
    """Of z, which has the sign of x: sigma(z), sigma(-z), their product and sigma(-z) - sigma(z),
    each with relative accuracy in both tails."""

    rising: object
    falling: object
    slope: object
    difference: object


def logistic(m, x, z):
    """`z` is a function of x: conditions are on exact numbers."""

    def near_one(sign):
        return lambda x: 1 / (1 + m.exp(sign * z(x)))

    def near_zero(sign):
        def form(x):
            e = m.exp(sign * z(x))
            return e / (1 + e)

        return form

    def difference(sign):
        return lambda x: sign * m.expm1(-sign * z(x)) / (1 + m.exp(-sign * z(x)))

    rising = m.where(x > 0, near_one(-1), near_zero(1), x)
    falling = m.where(x > 0, near_zero(-1), near_one(1), x)
    return Logistic(
        rising, falling, rising * falling, m.where(x > 0, difference(1), difference(-1), x)
    )


def gated(m, x, k, w, *slopes):
    """x sigma(w(x)); `slopes` are the derivatives of w, zero beyond the last."""

    def middle(x):
        s = logistic(m, x, w)
        if k == 0:
            return x * s.rising
        w1, w2, w3 = (*(slope(x) for slope in slopes), *(0 * x,) * (3 - len(slopes)))
        if k == 1:
            return s.rising * (1 + x * s.falling * w1)
        bend = s.difference * w1 * w1 + w2
        if k == 2:
            return s.slope * (2 * w1 + x * bend)
        third = (1 - 6 * s.slope) * w1 * w1 * w1 + 3 * s.difference * w1 * w2 + w3
        return s.slope * (3 * bend + x * third)

    return between(m, x, limit(m, k, "-0", 0), middle, limit(m, k, "x", 1))


def silu(m, x, k):
    return gated(m, x, k, lambda x: x, lambda x: m.number(1))


def quick_gelu(m, x, k):
    rate = m.number("1.702")
    return gated(m, x, k, lambda x: rate * x, lambda x: rate)


def gelu_tanh(m, x, k):
    linear = m.sqrt(m.number(8) / m.pi())
    cubic = linear * m.number("0.044715")
    return gated(
        m, x, k,
        lambda x: x * (linear + cubic * x * x),
        lambda x: linear + 3 * cubic * x * x,
        lambda x: 6 * cubic * x,
        lambda x: 6 * cubic,
    )  # fmt: skip


def sigmoid(m, x, k):
    """The derivatives: of y (1 - y), by the result."""
    if k > 0:
        return {1: lambda y: y * (1 - y), 2: lambda y: 1 - 2 * y, 3: lambda y: m.number(-2)}[k](x)
    return between(
        m, x, limit(m, 0, 0, 0), lambda x: logistic(m, x, lambda x: x).rising, limit(m, 0, 1, 0)
    )


def tanh(m, x, k):
    """The derivatives: of 1 - y^2, by the result."""
    forms = {
        0: m.tanh,
        1: lambda y: (1 - y) * (1 + y),
        2: lambda y: -2 * y,
        3: lambda y: m.number(-2),
    }
    return forms[k](x)


def gelu(m, x, k):
    def middle(x):
        if k <= 1:
            cumulative = m.number("0.5") * m.erfc(-x / m.sqrt(m.number(2)))
            if k == 0:
                return x * cumulative
        density = m.exp(m.number("-0.5") * x * x) / m.sqrt(2 * m.pi())
        if k == 1:
            return cumulative + x * density
        return density * ((2 - x * x) if k == 2 else x * (x - 2) * (x + 2))

    return between(m, x, limit(m, k, "-0", 0), middle, limit(m, k, "x", 1))


def softplus(m, x, k, beta, threshold):
    """log(1 + e^(beta x)) / beta, beyond the threshold x."""
    if beta < 0:
        # Turned about the origin.
        return (-1) ** (k + 1) * softplus(m, -x, k, -beta, threshold)
    rate = m.number(beta)

    def middle(x):
        if k == 0:
            rising = m.where(
                x > 0,
                lambda x: rate * x + m.log1p(m.exp(-rate * x)),
                lambda x: m.log1p(m.exp(rate * x)),
                x,
            )
            return rising / rate
        s = logistic(m, x, lambda x: rate * x)
        return (s.rising, rate * s.slope, rate * rate * s.slope * s.difference)[k - 1]

    def below(x):
        ends = limit(m, k, 0, 0), limit(m, k, "x", 1)
        return between(m, x, ends[0], middle, ends[1], FAR / beta)

    return m.where(x > threshold / beta, limit(m, k, "x", 1), below, x)


def log_sigmoid(m, x, k):
    def middle(x):
        if k == 0:
            return m.where(
                x > 0,
                lambda x: -m.log1p(m.exp(-x)),
                lambda x: x - m.log1p(m.exp(x)),
                x,
            )
        s = logistic(m, x, lambda x: x)
        return (s.falling, -s.slope, -s.slope * s.difference)[k - 1]

    return between(m, x, limit(m, k, "x", 1), middle, limit(m, k, "-0", 0))


def mish(m, x, k):
    def side(sign):
        """By e = e^-|x|: tanh(log(1 + e^x)) = n / d."""

        def form(x):
            e = m.exp(-sign * x)
            if sign > 0:
                n = 1 + 2 * e
                d = n + 2 * e * e
                slope, h, s = 4 * e * e * (1 + e) / (d * d), (1 + e) / d, 1 / (1 + e)
            else:
                n = e * (e + 2)
                d = n + 2
                slope, h, s = 4 * e * (1 + e) / (d * d), e * (1 + e) / d, e / (1 + e)
            if k == 0:
                return x * n / d
            if k == 1:
                return n / d + x * slope
            rate = 1 + s - 4 * h
            if k == 2:
                return slope * (2 + x * rate)
            bend = rate * rate + s * (1 - s) - 4 * h * (1 + s - 2 * h)
            return slope * (3 * rate + x * bend)

        return form

    def middle(x):
        return m.where(x > 0, side(1), side(-1), x)

    return between(m, x, limit(m, k, "-0", 0), middle, limit(m, k, "x", 1))


def tanhshrink(m, x, k):
    def series(x):
        """By tanh's continued fraction, where x - tanh(x) would cancel."""
        z = x * x
        c = 61 + 0 * x
        for n in range(59, 1, -2):
            c = n + z / c
        g = z / c
        return x * g / (1 + g)

    def near(x):
        return x - m.tanh(x)

    # Far out any precision would take tanh(x) for 1, and x - 1 for halfway between two numbers:
    # 1 - |tanh(x)|, which is below 2^-287, may as well be 2^-140.
    def above(x):
        return m.where(x < 100, near, lambda x: x - 1 + 2.0**-140, x)

    def below(x):
        return m.where(x > -100, near, lambda x: x + 1 - 2.0**-140, x)

    if k == 0:
        return m.where(x < 1, lambda x: m.where(x > -1, series, below, x), above, x)
    t = m.tanh(x)
    e = m.where(x > 0, lambda x: m.exp(-2 * x), lambda x: m.exp(2 * x), x)
    s = 4 * e / ((1 + e) * (1 + e))  # 1 - t^2
    return (t * t, 2 * t * s, 2 * s * (s - 2 * t * t))[k - 1]


ELU_ARGUMENTS = (float(SELU_ALPHA), float(SELU_SCALE), 1)


def others(parameters, **defaults):
    """What a row says of its parameters."""
    return {"parameters": parameters, "defaults": None if parameters == defaults else defaults}


def leaky_relu_row(slope):
    return Activation(
        name="leaky_relu",
        derivative=lambda m, x, k: leaky_relu(m, x, k, slope),
        exactly_zero=lambda x, k: k >= 2,
        at_minus_zero=-0.0 if slope > 0 else 0.0,
        **aten_forms(
            "leaky_relu",
            slope,
            backward=lambda g, x: torch.ops.aten.leaky_relu_backward(g, x, slope, False),
        ),
        saves="input",
        from_result=lambda m, r, k: leaky_relu(m, r, k, slope),
        result_suffices=slope >= 0,
        **others({"negative_slope": slope}, negative_slope=0.01),
    )


def clamp_forms(low, high):
    """ATen's hardtanh itself does not give a result the strides that elementwise operators give."""
    return composed(
        lambda x: torch.clamp(x, low, high),
        lambda g, x: torch.ops.aten.hardtanh_backward(g, x, low, high),
    )


def relu6_row():
    return Activation(
        name="relu6",
        derivative=lambda m, x, k: clamp(m, x, k, 0, 6),
        exactly_zero=lambda x, k: k >= 1 and not 0 < x < 6 or k >= 2,
        at_minus_zero=-0.0,
        **clamp_forms(0, 6),
        saves="result",
        kinks=(0.0, 6.0),
    )


def hardtanh_row(low, high):
    return Activation(
        name="hardtanh",
        derivative=lambda m, x, k: clamp(m, x, k, low, high),
        exactly_zero=lambda x, k: k >= 1 and not low < x < high or k >= 2,
        at_minus_zero=-0.0,
        **clamp_forms(low, high),
        saves="result",
        kinks=(low, high),
        forbidden=(
            ({"min_val": 2.0, "max_val": 1.0}, ValueError, "min_val to be at most max_val"),
        ),
        **others({"min_val": low, "max_val": high}, min_val=-1.0, max_val=1.0),
    )


def threshold_row(limit, value):
    return Activation(
        name="threshold",
        derivative=lambda m, x, k: threshold(m, x, k, limit, value),
        exactly_zero=lambda x, k: k >= 1 and x <= limit or k >= 2,
        at_minus_zero=-0.0 if limit < 0 else value,
        # ATen's threshold_ writes to tensors that overlap themselves.
        **composed(
            lambda x: torch.ops.aten.threshold(x, limit, value),
            lambda g, x: torch.ops.aten.threshold_backward(g, x, limit),
        ),
        saves="input",
        kinks=(limit,),
        **others({"threshold": limit, "value": value}),
    )


def hard_row(derivative):
    """hardswish or hardsigmoid."""
    name = derivative.__name__
    is_swish = derivative is hardswish
    top = 3 if is_swish else 2
    return Activation(
        name=name,
        derivative=derivative,
        exactly_zero=lambda x, k: (
            k >= top
            or k >= 1
            and x <= -3
            or x >= 3
            and k >= (2 if is_swish else 1)
            or is_swish
            and k == 1
            and x == -1.5
        ),
        at_minus_zero=-0.0 if is_swish else 0.5,
        **aten_forms(name, backward=getattr(torch.ops.aten, name + "_backward")),
        saves="input",
        kinks=(-3.0, 3.0),
    )


def shrink_row(name, lambd, shift):
    return Activation(
        name=name,
        derivative=lambda m, x, k: shrink(m, x, k, lambd, shift),
        exactly_zero=lambda x, k: k >= 1 and abs(x) <= lambd or k >= 2,
        at_minus_zero=0.0,
        **aten_forms(
            name,
            lambd,
            backward=lambda g, x: getattr(torch.ops.aten, name + "_backward")(g, x, lambd),
        ),
        saves="input" if shift else "result",
        kinks=(-lambd, lambd),
        forbidden=(
            tuple(
                ({"lambd": wrong}, RuntimeError, "lambd to be at least 0")
                for wrong in (-1.0, math.nan)
            )
            if shift
            else ()
        ),
        **others({"lambd": lambd}, lambd=0.5),
    )


EXPONENTIAL_BRANCHES = (
    *(-(n + 0.5) * math.log(2) for n in range(60)), -40.0, -600.0, -708.396, -745.133,
)  # fmt: skip


def exponential_row(name, alpha, scale, rate, aten_rate, **rest):
    """elu or celu."""
    arguments = alpha, scale, aten_rate

    def backward(g, x):
        return torch.ops.aten.elu_backward(g, *arguments, False, x)

    forms = aten_forms(name, *arguments if name == "elu" else (alpha,), backward=backward)
    return Activation(
        name=name,
        derivative=lambda m, x, k: elu(m, x, k, alpha, scale, rate),
        exactly_zero=lambda x, k: k >= 1 and x == -torch.inf and aten_rate > 0 or k >= 2 and x > 0,
        at_minus_zero=-0.0,
        branch_points=tuple(x / aten_rate for x in EXPONENTIAL_BRANCHES if aten_rate > 0),
        **forms,
        saves="input",
        from_result=lambda m, r, k: elu_from_result(m, r, k, alpha, scale, rate),
        result_suffices=(
            scale > 0
            and alpha * aten_rate >= 0
            and all(
                v == 0 or 2**-100 <= abs(v) <= 2**100 for v in (scale, alpha * scale, aten_rate)
            )
        ),
        **rest,
    )


def elu_row(alpha, scale, input_scale):
    parameters = {"alpha": alpha, "scale": scale, "input_scale": input_scale}
    parameters = others(parameters, alpha=1.0, scale=1.0, input_scale=1.0)
    return exponential_row(
        "elu", alpha, scale, lambda m: m.number(input_scale), input_scale, **parameters
    )


def celu_row(alpha):
    return exponential_row(
        "celu", alpha, 1.0, lambda m: m.number(1) / m.number(alpha), 1 / alpha,
        forbidden=(({"alpha": 0.0}, RuntimeError, "alpha to be other than 0"),),
        **others({"alpha": alpha}, alpha=1.0),
    )  # fmt: skip


# Where e^-|z| changes its reduction, and where it is subnormal.
REDUCTIONS = (*((n + 0.5) * math.log(2) for n in range(60)), 40.0, 708.396, 745.133)


def segment_ends(end):
    """Where segments.h goes from one polynomial to the next, to the last one at `end`."""
    steps = [2.0**octave * (1 + step / 4) for octave in range(-4, 0) for step in range(4)]
    return tuple((v - steps[1]) / (1 - steps[1]) * end for v in (*steps[2:], 1.0))


def both_signs(points):
    return tuple(sign * point for point in points for sign in (1, -1))


def gelu_tanh_inverse(w):
    """The x where gelu_tanh's exponent is w."""
    scale = math.sqrt(3 * 0.044715)
    return 2 / scale * math.sinh(math.asinh(1.5 * scale * w / math.sqrt(8 / math.pi)) / 3)


def gate_row(derivative, forms, branch_points, zeros=()):
    """x times a function like sigmoid; `zeros` are pairs (x, k) where the k-th derivative is 0."""
    return Activation(
        name=derivative.__name__,
        derivative=derivative,
        exactly_zero=lambda x, k: (
            k >= 1 and x == -math.inf or k >= 2 and x == math.inf or (x, k) in zeros
        ),
        at_minus_zero=-0.0,
        branch_points=both_signs(branch_points),
        **forms,
        saves="input",
        kinks=(),
    )


def softplus_row(beta, threshold):
    return Activation(
        name="softplus",
        derivative=lambda m, x, k: softplus(m, x, k, beta, threshold),
        exactly_zero=lambda x, k: (
            k >= 1 and x == -math.inf or k >= 2 and x * beta > threshold or k == 3 and x == 0
        ),
        at_minus_zero=math.log(2) / beta,
        branch_points=both_signs(x / beta for x in (*REDUCTIONS, *segment_ends(18))),
        **aten_forms(
            "softplus", beta, threshold,
            backward=lambda g, x: torch.ops.aten.softplus_backward(g, x, beta, threshold),
        ),
        saves="input",
        kinks=(threshold / beta,),
        bounds_of_others={(torch.float32, 0): 2.0},
        **others({"beta": beta, "threshold": threshold}, beta=1.0, threshold=20.0),
    )  # fmt: skip


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
    *(leaky_relu_row(slope) for slope in (0.01, 0.25, -0.5)),
    relu6_row(),
    *(hardtanh_row(*bounds) for bounds in ((-1.0, 1.0), (-2.5, 0.75))),
    *(threshold_row(*arguments) for arguments in ((0.5, 0.25), (-1.0, 20.0))),
    *(hard_row(hard) for hard in (hardswish, hardsigmoid)),
    Activation(
        name="softsign",
        derivative=softsign,
        exactly_zero=lambda x, k: k >= 1 and abs(x) == torch.inf or k == 2 and x == 0,
        at_minus_zero=-0.0,
        **composed(torch.nn.functional.softsign),
        saves="input",
    ),
    *(shrink_row("softshrink", lambd, lambd) for lambd in (0.5, 0.75)),
    *(shrink_row("hardshrink", lambd, 0) for lambd in (0.5, 0.75)),
    Activation(
        name="squared_relu",
        derivative=squared_relu,
        exactly_zero=lambda x, k: x <= 0 and k >= 1 or k == 3,
        at_minus_zero=0.0,
        **composed(
            lambda x: torch.relu(x).square(),
            lambda g, x: torch.ops.aten.threshold_backward(g * 2 * x, x, 0),
        ),
        saves="input",
    ),
    *(elu_row(*a) for a in ((1.0, 1.0, 1.0), (1.75, 0.875, 0.625), (1.0, 1.0, -1.0))),
    *(celu_row(alpha) for alpha in (1.0, 0.3)),
    Activation(
        name="sigmoid",
        derivative=sigmoid,
        exactly_zero=lambda y, k: k == 1 and y in (0, 1) or k == 2 and y == 0.5,
        at_minus_zero=0.5,
        branch_points=both_signs(REDUCTIONS),
        **aten_forms("sigmoid", backward=torch.ops.aten.sigmoid_backward),
        saves="result",
        takes_output=True,
        kinks=(),
    ),
    Activation(
        name="tanh",
        derivative=tanh,
        exactly_zero=lambda y, k: k == 1 and abs(y) == 1 or k == 2 and y == 0,
        at_minus_zero=-0.0,
        branch_points=both_signs((0.55, 20.0, *(x / 2 for x in REDUCTIONS), *segment_ends(9.2))),
        **aten_forms("tanh", backward=torch.ops.aten.tanh_backward),
        saves="result",
        takes_output=True,
        kinks=(),
    ),
    gate_row(
        silu,
        aten_forms("silu", backward=torch.ops.aten.silu_backward),
        (*REDUCTIONS, *segment_ends(19)),
        {(0, 3)},
    ),
    gate_row(
        gelu,
        aten_forms("gelu", backward=torch.ops.aten.gelu_backward),
        (39.0, *(math.sqrt(2 * x) for x in REDUCTIONS), *segment_ends(14.7)),
        {(0, 3), (2, 3), (-2, 3)},
    ),
    gate_row(
        gelu_tanh,
        composed(
            lambda x: torch.ops.aten.gelu(x, approximate="tanh"),
            lambda g, x: torch.ops.aten.gelu_backward(g, x, approximate="tanh"),
        ),
        (6.0, 22.0, *map(gelu_tanh_inverse, REDUCTIONS), *segment_ends(11.1)),
        {(0, 3)},
    ),
    gate_row(
        quick_gelu,
        composed(lambda x: x * torch.sigmoid(1.702 * x)),
        (14.0, 448.0, *(x / 1.702 for x in REDUCTIONS), *segment_ends(11)),
        {(0, 3)},
    ),
    gate_row(
        mish,
        aten_forms("mish", backward=torch.ops.aten.mish_backward),
        (14.0, *REDUCTIONS, *segment_ends(18)),
    ),
    *(softplus_row(*arguments) for arguments in ((1.0, 20.0), (2.0, 3.0))),
    Activation(
        name="log_sigmoid",
        derivative=log_sigmoid,
        exactly_zero=lambda x, k: (
            k >= 1 and x == math.inf or k >= 2 and x == -math.inf or k == 3 and x == 0
        ),
        at_minus_zero=-math.log(2),
        branch_points=both_signs((*REDUCTIONS, *segment_ends(18))),
        # ATen's log_sigmoid does not give a result the strides that elementwise operators give.
        **composed(lambda x: -torch.nn.functional.softplus(-x)),
        saves="input",
        kinks=(),
    ),
    Activation(
        name="tanhshrink",
        derivative=tanhshrink,
        exactly_zero=lambda x, k: x == 0 and k in (1, 2) or k >= 2 and abs(x) == math.inf,
        at_minus_zero=-0.0,
        branch_points=both_signs(
            (0.5, 9.0, 20.0, *(x / 2 for x in REDUCTIONS), *segment_ends(9.2))
        ),
        **composed(torch.nn.functional.tanhshrink),
        saves="input",
        kinks=(),
    ),
)

# Each operator once, with its default parameters where it has some.
OPERATORS = tuple({act.name: act for act in reversed(ACTIVATIONS)}.values())[::-1]


def kind(act):
    """What decides which of the registration's templates make an activation's operators."""
    return (bool(act.parameters), act.saves, act.takes_output, act.takes_is_result)


# The first of each kind: for tests of what does not depend on the formula.
REPRESENTATIVES = tuple({kind(act): act for act in reversed(ACTIVATIONS)}.values())[::-1]

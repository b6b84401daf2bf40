"""The operators that test_combinations.py calls: one row for each operator, as in PyTorch's OpInfo.

A row lists the operands and where each may be absent or broadcast, how the operator is called, and
its composition of PyTorch's operators. The composition runs in float64 and is the oracle.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial

import torch

from op_table import (
    ACTIVATIONS,
    GRADIENT_NAMES,
    OPERATORS,
    REPRESENTATIVES,
    SUFFIXES,
    Activation,
)
from oracle import Differentiable
from support import NIGHTLY

fastact = torch.ops.fastact
OPTIONAL = ("scale", "bias", "residual", "gate")
# Layouts and shapes of operands: words of combinations.Combination.operands.
LAYOUTS = ("", "channels_last", "transposed", "expanded", "strided", "chunk", "unaligned")
FULL = tuple(f"full {layout}".strip() for layout in LAYOUTS)
BROADCAST = ("row", "column", "zero_dim")
VECTOR = ("vector", "vector strided", "vector expanded", "one", *BROADCAST, "full", "full strided")
# Error bounds of value and gradient, in ULP by dtype, of the other operators:
# docs/reference/fused.md.
OTHER_ULP = {
    torch.float64: (3.0, 10.0),
    torch.float32: (2.5, 2.5),
    torch.bfloat16: (0.51, 0.51),
    torch.float16: (0.51, 0.51),
}


@dataclass(frozen=True)
class Operand:
    name: str
    numbers: str  # the operand's numbers: a key of combinations.NUMBERS
    placements: tuple = FULL + BROADCAST
    is_optional: bool = False


def identity(z):
    """Replaces an activation in error bounds. Its slope is 1, and its values are not near zero."""
    return z + z.sign()


@dataclass(frozen=True)
class Row:
    name: str
    family: str
    operands: tuple
    # call(tensors, dim, out=None). `tensors` contains the present operands by name.
    call: Callable
    # compose(function, tensors): the operator in PyTorch's operators. The operands broadcast.
    compose: Callable
    function: Callable | None = None  # the activation in PyTorch's operators
    call_: Callable | None = None
    has_out: bool = False
    ulp: dict = field(default_factory=lambda: OTHER_ULP)
    # True if the derivative is computed from a result rounded to the operands' type.
    from_rounded: bool = False
    promotes: bool = False
    # halves(self): the two operands in self's last dimension.
    halves: Callable | None = None
    differentiates_in_place: bool = False
    # recover(value): the mask of elements that a random operator has kept, for `compose`.
    recover: Callable | None = None
    draws: bool = False  # draws from PyTorch's generator
    leading: str = "self"  # the operand with the result's type and, in place, its shape
    # False if the row differs from another row of the family only by the activation's formula.
    is_representative: bool = True
    # True if the last operand determines the layout of the result, as in ATen's operator.
    last_leads: bool = False
    # dense_call(tensors, dim): takes operands of the result's shape, if `call` does not.
    dense_call: Callable | None = None

    @cached_property
    def optional(self):
        return tuple(o.name for o in self.operands if o.is_optional)

    def align(self, name, tensor, rank, dim):
        """Views a vector along dimension `dim` as a tensor of `rank` dimensions."""
        along = name in ("scale", "bias", "weight") and tensor.dim() == 1
        if not along or rank == 0:
            return tensor.reshape(()) if name == "weight" and rank == 0 else tensor
        shape = [1] * rank
        shape[1 if name == "weight" and rank > 1 else dim] = -1
        return tensor.reshape(shape)


def in_float64(act):
    """Returns the activation in PyTorch's operators. celu and hardsigmoid are composed, because
    PyTorch's gradients round 1 / alpha and, for single elements, 1 / 6 to float32."""
    if act.name == "celu":
        (alpha,) = act.parameters.values()
        return lambda x: alpha * torch.nn.functional.elu(x / alpha)
    return (lambda x: (x + 3).clamp(0, 6) / 6) if act.name == "hardsigmoid" else act.aten


def ulp_of(act, order=0):
    """Returns error bounds of the derivative of this order and of the next one."""
    return {
        dtype: (bounds[order], bounds[min(order + 1, len(bounds) - 1)])
        for dtype, bounds in act.ulp.items()
    }


def activation_row(act: Activation):
    return Row(
        name=act.id,
        family="activation",
        operands=(Operand("self", "argument", FULL + ("zero_dim",)),),
        call=lambda t, dim, out=None: act.op(t["self"]) if out is None else act.out(t["self"], out),
        call_=lambda t, dim: act.op_(t["self"]),
        has_out=True,
        compose=lambda function, t: function(t["self"]),
        function=in_float64(act),
        ulp=ulp_of(act),
        from_rounded=act.saves == "result",
        differentiates_in_place=True,
        is_representative=act in REPRESENTATIVES,
    )


def derivative_of(act, order):
    """Returns a derivative in PyTorch's differentiable operators: a function of x, or of f(x) for
    tanh and sigmoid."""
    function, times = in_float64(act), order
    if act.takes_output:
        function, times = (lambda y: act.aten_backward(torch.ones_like(y), y)), order - 1

    def derivative(x):
        leaf = x if x.requires_grad else x.detach().requires_grad_()
        with torch.enable_grad():
            y = function(leaf)
            for _ in range(times):
                if not y.requires_grad:
                    return torch.zeros_like(leaf)
                (y,) = torch.autograd.grad(y.sum(), leaf, create_graph=True, materialize_grads=True)
        return y

    return derivative


class InFloat64(Differentiable):
    """Arithmetic over tensors, whose constants are float64."""

    @staticmethod
    def number(text):
        return torch.tensor(float(text), dtype=torch.float64)


def derivative_row(act, order, is_result=False):
    """Returns the row of a derivative operator; with is_result, it is a function of the result."""
    options = {"is_result": True} if is_result else {}
    names = (*GRADIENT_NAMES[order], "self")

    def call(t, dim, out=None):
        if out is None:
            return act.ladder(*(t[name] for name in names), **options)
        return act.grad_input(t["grad_output"], t["self"], out, **options)

    def compose(function, t):
        return math.prod((t[name] for name in names[:-1]), start=function(t["self"]))

    return Row(
        name=act.id.replace(act.name, act.name + SUFFIXES[order], 1) + "-is_result" * is_result,
        family=FAMILIES_OF_DERIVATIVES[order - 1],
        operands=(
            *(Operand(name, "factor") for name in names[:-1]),
            Operand("self", "below_one" if act.takes_output or is_result else "argument"),
        ),
        call=call,
        has_out=order == 1,
        compose=compose,
        function=(
            (lambda r: act.from_result(InFloat64, r, order) + 0 * r)
            if is_result
            else derivative_of(act, order)
        ),
        ulp=ulp_of(act, order),
        from_rounded=is_result,
        promotes=True,
        leading=names[0],
        is_representative=act in REPRESENTATIVES,
        last_leads=act.self_leads,
    )


def fused_composition(function, t):
    z = t["self"]
    if "scale" in t:
        z = z * t["scale"]
    for name in ("bias", "residual"):
        if name in t:
            z = z + t[name]
    value = function(z)
    return value * t["gate"] if "gate" in t else value


def fused_parameters(act):
    """Renames elu's parameter that has the name of an operand."""
    return {f"output_{n}" if n in OPTIONAL else n: v for n, v in act.parameters.items()}


def fused_row(act):
    def call(suffix, t, dim, out=None):
        packet = getattr(fastact, f"fused_{act.name}{suffix}")
        options = {} if out is None else {"out": out}
        others = {name: t[name] for name in OPTIONAL if name in t}
        return packet(t["self"], **others, **fused_parameters(act), dim=dim, **options)

    return Row(
        name="fused_" + act.id,
        family="fused",
        operands=(
            Operand("self", "argument", FULL + BROADCAST),
            Operand("scale", "odd", VECTOR, is_optional=True),
            Operand("bias", "shift", VECTOR, is_optional=True),
            Operand("residual", "shift", FULL + BROADCAST + ("higher",), is_optional=True),
            Operand("gate", "factor", FULL + BROADCAST + ("higher",), is_optional=True),
        ),
        call=partial(call, ""),
        call_=partial(call, "_"),
        has_out=True,
        compose=fused_composition,
        function=in_float64(act),
        ulp=ulp_of(act),
        from_rounded=act.saves == "result",
        is_representative=act in REPRESENTATIVES,
    )


def halves(t, gate_first, interleaved=False):
    """Returns (the half that passes through the activation, the other half)."""
    pair = t.unflatten(-1, (-1, 2)).unbind(-1) if interleaved else t.chunk(2, -1)
    return pair if gate_first else pair[::-1]


def packed_row(act, gate_first):
    def call(t, dim, out=None):
        packet = getattr(fastact, f"{act.name}_and_mul")
        options = {} if out is None else {"out": out}
        return packet(t["self"], **fused_parameters(act), gate_first=gate_first, **options)

    def compose(function, t):
        through, other = halves(t["self"], gate_first)
        return function(through) * other

    def dense_call(t, dim):
        through, other = (half.contiguous() for half in halves(t["self"], gate_first))
        return getattr(fastact, f"fused_{act.name}")(through, gate=other, **fused_parameters(act))

    return Row(
        name=f"{act.id}_and_mul" + ("" if gate_first else "_gate_second"),
        family="packed",
        operands=(Operand("self", "argument", FULL),),
        call=call,
        has_out=True,
        compose=compose,
        function=in_float64(act),
        ulp=ulp_of(act),
        from_rounded=act.saves == "result",
        halves=partial(halves, gate_first=gate_first),
        dense_call=dense_call,
        is_representative=act in REPRESENTATIVES,
    )


def glu_row():
    """Along the last dimension. test_fused.py tests the others."""

    def call(t, dim, out=None):
        return fastact.glu(t["self"], **({} if out is None else {"out": out}))

    (sigmoid,) = (act for act in OPERATORS if act.name == "sigmoid")
    return replace(packed_row(sigmoid, gate_first=False), name="glu", call=call)


LIMIT, ALPHA = 1.5, 1.702


def swiglu_composition(function, gate, linear):
    """`function` is x sigmoid(alpha x)."""
    return function(gate.clamp(max=LIMIT)) * (linear.clamp(-LIMIT, LIMIT) + 1)


def swish(x):
    return x * torch.sigmoid(ALPHA * x)


def packed_swiglu_row(gate_first, interleaved):
    def call(t, dim, out=None):
        options = {} if out is None else {"out": out}
        return fastact.clamped_swiglu(
            t["self"], LIMIT, ALPHA, gate_first=gate_first, interleaved=interleaved, **options
        )

    return Row(
        name=f"clamped_swiglu-{gate_first=}-{interleaved=}",
        family="packed",
        operands=(Operand("self", "argument", FULL),),
        call=call,
        has_out=True,
        compose=lambda function, t: swiglu_composition(
            function, *halves(t["self"], gate_first, interleaved)
        ),
        function=swish,
        halves=partial(halves, gate_first=gate_first, interleaved=interleaved),
        dense_call=lambda t, dim: fastact._clamped_swiglu(
            *(half.contiguous() for half in halves(t["self"], gate_first, interleaved)),
            LIMIT,
            ALPHA,
        ),
    )


def swiglu_row():
    def call(t, dim, out=None):
        options = {} if out is None else {"out": out}
        return fastact._clamped_swiglu(t["gate"], t["linear"], LIMIT, ALPHA, **options)

    return Row(
        name="_clamped_swiglu",
        family="swiglu",
        operands=(Operand("gate", "argument"), Operand("linear", "argument")),
        call=call,
        has_out=True,
        compose=lambda function, t: swiglu_composition(function, t["gate"], t["linear"]),
        function=swish,
        promotes=True,
        leading="gate",
    )


def prelu_row():
    return Row(
        name="prelu",
        family="prelu",
        operands=(
            Operand("self", "argument", FULL),
            Operand(
                "weight",
                "factor",
                ("channels", "channels strided", "channels expanded", "one", "zero_dim"),
            ),
        ),
        call=lambda t, dim, out=None: fastact.prelu(t["self"], t["weight"]),
        compose=lambda function, t: torch.where(t["self"] > 0, t["self"], t["weight"] * t["self"]),
        dense_call=lambda t, dim: fastact._prelu(t["weight"], t["self"]),
    )


P = 0.4
LAMBDA_ALPHA = 1.7580993408473768599402175208123


def alpha_dropout_row(name, call):
    """Recovers alpha dropout's mask from the result, in which all dropped elements are equal."""
    kept = 1 - P
    a = 1 / math.sqrt((LAMBDA_ALPHA * LAMBDA_ALPHA * P + 1) * kept)
    shift, dropped = a * LAMBDA_ALPHA * P, -a * LAMBDA_ALPHA * kept

    def recover(value):
        number = torch.float64 if value.dtype == torch.float64 else torch.float32
        return value != torch.tensor(dropped, dtype=number).to(value.dtype)

    def compose(function, t):
        value = a * function(t["self"]) + shift
        return torch.where(t["kept"], value, torch.full_like(value, dropped))

    return Row(
        name=name,
        family="dropout",
        operands=(Operand("self", "argument", FULL),),
        call=call,
        compose=compose,
        function=torch.selu,
        recover=recover,
        draws=name == "selu_alpha_dropout",
    )


def seeded_dropout(t, dim, out=None):
    return fastact._selu_alpha_dropout(t["self"], torch.tensor([7], device=t["self"].device), P)


def drawn_dropout(t, dim, out=None):
    return fastact.selu_alpha_dropout(t["self"], P, True)


SLOPE = 0.25


def rrelu_row(name, call):
    """With one possible slope. test_rrelu.py tests random ones."""
    return Row(
        name=name,
        family="dropout",
        operands=(Operand("self", "argument", FULL),),
        call=call,
        compose=lambda function, t: function(t["self"]),
        function=lambda x: torch.nn.functional.leaky_relu(x, SLOPE),
        draws=name == "rrelu",
    )


def seeded_rrelu(t, dim, out=None):
    seed = torch.tensor([7], device=t["self"].device)
    return fastact._rrelu(t["self"], seed, SLOPE, SLOPE)


def drawn_rrelu(t, dim, out=None):
    return fastact.rrelu(t["self"], SLOPE, SLOPE, True)


@cache
def rows():
    """Returns this build's rows by name. Only the nightly run includes all parameter sets."""
    chosen = ACTIVATIONS if NIGHTLY else (*OPERATORS, *REPRESENTATIVES)
    acts = [act for act in ACTIVATIONS if act in chosen and hasattr(fastact, act.name)]
    listed = [
        *(activation_row(act) for act in acts),
        *(derivative_row(act, 1) for act in acts),
        *(derivative_row(act, k) for k in (2, 3) for act in acts if act in REPRESENTATIVES),
        *(
            derivative_row(act, order, is_result=True)
            for order in (1, 2, 3)
            for act in acts
            if act in REPRESENTATIVES and act.takes_is_result
        ),
        *(fused_row(act) for act in acts),
        *(packed_row(act, first) for act in acts if act in OPERATORS for first in (True, False)),
        glu_row(),
        *(packed_swiglu_row(first, inter) for first in (True, False) for inter in (True, False)),
        swiglu_row(),
        prelu_row(),
        alpha_dropout_row("_selu_alpha_dropout", seeded_dropout),
        alpha_dropout_row("selu_alpha_dropout", drawn_dropout),
        rrelu_row("_rrelu", seeded_rrelu),
        rrelu_row("rrelu", drawn_rrelu),
    ]
    return {row.name: row for row in listed}


def family(name):
    return [row for row in rows().values() if row.family == name]


FAMILIES_OF_DERIVATIVES = ("backward", "double_backward", "triple_backward")
FAMILIES = (
    "activation", *FAMILIES_OF_DERIVATIVES, "fused", "packed", "swiglu", "prelu", "dropout",
)  # fmt: skip

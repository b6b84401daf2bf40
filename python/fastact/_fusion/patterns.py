"""Patterns of several operators that compute one operator of FastAct's."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import fx

from fastact._fusion.replay import Facts


@dataclass(frozen=True)
class Op:
    """A call of ATen's functional operator `name`, with these positional arguments.

    An argument is an Op, a number, or a string: the name of a tensor or, with "=" in front, of a
    number. Sums and products match in either order. Arguments that are not listed have to have
    their defaults.
    """

    name: str
    arguments: tuple

    def __init__(self, name: str, *arguments: object):
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", arguments)


@dataclass
class Match:
    nodes: set[fx.Node] = field(default_factory=set)
    tensors: dict[str, fx.Node] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)

    def copy(self) -> "Match":
        return Match(set(self.nodes), dict(self.tensors), dict(self.numbers))


_COMMUTATIVE = ("add", "mul")
# Models write their constants with seven digits or more.
_TOLERANCE = 1e-6


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def matches(pattern: Op, node: object, facts: Facts, so_far: Match | None = None) -> Iterator:
    """Yields every match of a pattern that ends at a node."""
    so_far = so_far or Match()
    call = facts.call(node)
    if call is None or call.name != f"aten::{pattern.name}":
        return
    schema = call.op._schema.arguments
    given = [call.arguments.get(a.name) for a in schema]
    count = len(pattern.arguments)
    if any(v != a.default_value for a, v in itertools.islice(zip(schema, given), count, None)):
        return
    given = given[:count]
    orders = [given]
    if pattern.name in _COMMUTATIVE:
        orders.append(given[::-1])
    for order in orders:
        found = so_far.copy()
        found.nodes.add(node)
        yield from _match_all(list(zip(pattern.arguments, order)), facts, found)


def _match_all(pairs: list[tuple], facts: Facts, so_far: Match) -> Iterator[Match]:
    if not pairs:
        yield so_far
        return
    (wanted, value), *rest = pairs
    if isinstance(wanted, Op):
        for found in matches(wanted, value, facts, so_far):
            yield from _match_all(rest, facts, found)
        return
    found = so_far.copy()
    if isinstance(wanted, str):
        if wanted.startswith("="):
            is_same = is_number(value) and _known(found.numbers, wanted[1:], float(value))
        else:
            is_same = isinstance(value, fx.Node) and _known(found.tensors, wanted, value)
    elif wanted is None:
        is_same = value is None
    else:
        is_same = is_number(value) and math.isclose(value, wanted, rel_tol=_TOLERANCE)
    if is_same:
        yield from _match_all(rest, facts, found)


def _known(names: dict, name: str, value: object) -> bool:
    """True if the name has this value or had none."""
    return names.setdefault(name, value) == value


def _cube(x: str) -> Op:
    return Op("pow", x, 3)


_ROOT = math.sqrt(2 / math.pi)
_TANH_ARGUMENTS = (
    Op("mul", Op("add", "x", Op("mul", _cube("x"), 0.044715)), _ROOT),
    Op(
        "mul",
        Op("mul", "x", _ROOT),
        Op("add", Op("mul", Op("mul", "x", 0.044715), "x"), 1),
    ),
)


def _half_times(x: str, factor: Op) -> tuple[Op, ...]:
    """0.5 x factor, in every order of the products."""
    return (
        Op("mul", Op("mul", x, 0.5), factor),
        Op("mul", Op("mul", x, factor), 0.5),
        Op("mul", x, Op("mul", factor, 0.5)),
    )


#: Activations that models write with several operators: name and pattern.
ACTIVATIONS: tuple[tuple[str, Op], ...] = (
    ("silu", Op("mul", "x", Op("sigmoid", "x"))),
    ("mish", Op("mul", "x", Op("tanh", Op("softplus", "x")))),
    ("quick_gelu", Op("mul", "x", Op("sigmoid", Op("mul", "x", 1.702)))),
    ("squared_relu", Op("square", Op("relu", "x"))),
    ("squared_relu", Op("pow", Op("relu", "x"), 2)),
    *(("gelu", p) for p in _half_times("x", Op("add", Op("erf", Op("div", "x", 2**0.5)), 1))),
    *(
        ("gelu_tanh", p)
        for argument in _TANH_ARGUMENTS
        for p in _half_times("x", Op("add", Op("tanh", argument), 1))
    ),
    ("softsign", Op("div", "x", Op("add", Op("abs", "x"), 1))),
    ("tanhshrink", Op("sub", "x", Op("tanh", "x"))),
)

_GATE = Op("clamp", "gate", None, "=limit")
#: gpt-oss's gated unit: _clamped_swiglu(gate, linear, limit, alpha).
CLAMPED_SWIGLU = Op(
    "mul",
    Op("add", Op("clamp", "linear", "=low", "=limit"), 1),
    Op("mul", _GATE, Op("sigmoid", Op("mul", _GATE, "=alpha"))),
)

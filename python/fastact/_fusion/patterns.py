"""Patterns of several ATen operators that one FastAct operator can replace.

A pattern is a tuple: the name of an ATen operator, then its positional arguments. An argument is a
pattern, a number, None, or a string: the name of a tensor or, with "=" in front, of a number. Sums
and products match in either order. Arguments that are not listed must have their defaults.
"""

import math
from collections.abc import Iterator

from torch import fx

from fastact._aten import is_number
from fastact._fusion.replay import Facts

# Models write their constants with seven digits or more.
_TOLERANCE = 1e-6

#: The nodes of a match, and the tensors and numbers that a pattern names.
Match = tuple[frozenset[fx.Node], dict[str, fx.Node | float]]


def matches(
    pattern: object, value: object, facts: Facts, found: Match = (frozenset(), {})
) -> Iterator[Match]:
    """Yields every match of a pattern that ends at a value, which is a node or a number."""
    nodes, values = found
    if isinstance(pattern, tuple):
        yield from _calls(pattern, value, facts, found)
    elif isinstance(pattern, str):
        is_right = is_number(value) if pattern.startswith("=") else isinstance(value, fx.Node)
        if is_right and values.get(pattern, value) == value:
            yield nodes, values | {pattern: value}
    elif pattern is None or not is_number(value):
        if value is pattern:
            yield found
    elif math.isclose(value, pattern, rel_tol=_TOLERANCE):
        yield found


def _calls(pattern: tuple, node: object, facts: Facts, found: Match) -> Iterator[Match]:
    call, (name, *wanted) = facts.call(node), pattern
    if call is None or call.name != f"aten::{name}":
        return
    nodes, values = found
    schema, given = call.op._schema.arguments, list(call.arguments.values())
    if any(value != a.default_value for a, value in list(zip(schema, given))[len(wanted) :]):
        return
    given = given[: len(wanted)]
    for order in (given, given[::-1]) if name in ("add", "mul") else (given,):
        every = [(nodes | {node}, values)]
        for part, value in zip(wanted, order):
            every = [more for one in every for more in matches(part, value, facts, one)]
        yield from every


def _half_times(factor: tuple) -> list[tuple]:
    """0.5 x factor, in every order of the products."""
    return [
        ("mul", ("mul", "x", 0.5), factor),
        ("mul", ("mul", "x", factor), 0.5),
        ("mul", "x", ("mul", factor, 0.5)),
    ]


_ROOT = math.sqrt(2 / math.pi)
_TANH_ARGUMENTS = (
    ("mul", ("add", "x", ("mul", ("pow", "x", 3), 0.044715)), _ROOT),
    ("mul", ("mul", "x", _ROOT), ("add", ("mul", ("mul", "x", 0.044715), "x"), 1)),
)

#: Activations that models write with several operators, with the activation's name.
ACTIVATIONS: list[tuple[str, tuple]] = [
    ("silu", ("mul", "x", ("sigmoid", "x"))),
    ("mish", ("mul", "x", ("tanh", ("softplus", "x")))),
    ("quick_gelu", ("mul", "x", ("sigmoid", ("mul", "x", 1.702)))),
    ("squared_relu", ("square", ("relu", "x"))),
    ("squared_relu", ("pow", ("relu", "x"), 2)),
    ("softsign", ("div", "x", ("add", ("abs", "x"), 1))),
    ("tanhshrink", ("sub", "x", ("tanh", "x"))),
    *(("gelu", every) for every in _half_times(("add", ("erf", ("div", "x", 2**0.5)), 1))),
    *(
        ("gelu_tanh", every)
        for argument in _TANH_ARGUMENTS
        for every in _half_times(("add", ("tanh", argument), 1))
    ),
]

_GATE = ("clamp", "gate", None, "=limit")
#: gpt-oss's gated unit: _clamped_swiglu(gate, linear, limit, alpha).
CLAMPED_SWIGLU = (
    "mul",
    ("add", ("clamp", "linear", "=low", "=limit"), 1),
    ("mul", _GATE, ("sigmoid", ("mul", _GATE, "=alpha"))),
)

"""Finds what one operator of FastAct's can compute: activations and the operations around them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

from fastact import _aten
from fastact._aten import Call, operator
from fastact._build import ACTIVATIONS
from fastact._fusion import patterns, policy
from fastact._fusion.patterns import Match, matches
from fastact._fusion.replay import Facts

#: The parts beside the activation, in the order in which the operator computes them.
PARTS = NORM, RESIDUAL, GATE = "batch norm", "residual", "gate"
_NORM_TENSORS = ("weight", "bias", "running_mean", "running_var")
_HALVES = (torch.bfloat16, torch.float16)
_INSIDE = "its activations are inside ATen's operator"
#: Activations of ATen's without an operator of FastAct's.
WITHOUT_OPERATOR = {
    "glu": "gated by the sigmoid of a half",
    "rrelu": "its slope is random",
    "rrelu_with_noise": "its slope is random",
} | dict.fromkeys(
    ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell",
     "rnn_relu_cell", "_transformer_encoder_layer_fwd"),
    _INSIDE,
)  # fmt: skip


@dataclass(frozen=True)
class Norm:
    """Batch norm by its running statistics."""

    node: fx.Node
    input: fx.Node
    tensors: tuple[fx.Node | None, ...]
    epsilon: float


@dataclass(frozen=True)
class Site:
    """The nodes that one operator replaces."""

    #: What the operator computes, without the operations around an activation.
    call: Call
    #: In the graph's order; the last one gives the result.
    nodes: tuple[fx.Node, ...]
    operator: torch._ops.OpOverload | None
    #: The last node of what is fused with the operations around it.
    activation: fx.Node | None = None
    norm: Norm | None = None
    residual: fx.Node | None = None
    gate: fx.Node | None = None

    @property
    def last(self) -> fx.Node:
        return self.nodes[-1]

    @property
    def self(self) -> fx.Node:
        return self.call.tensors[0] if self.norm is None else self.norm.input

    @property
    def is_renaming(self) -> bool:
        """True for an activation by itself."""
        return self.activation is None and self.norm is None

    @property
    def is_fused(self) -> bool:
        """True for an operator that computes act(self * scale + bias + residual) * gate."""
        return any(part is not None for part in (self.norm, self.residual, self.gate))

    @property
    def operands(self) -> list[fx.Node]:
        """Tensors that the operator reads beside self."""
        normed = self.norm.tensors if self.norm else ()
        found = (*self.call.tensors[1:], *normed, self.residual, self.gate)
        return [node for node in found if node is not None]

    def __str__(self) -> str:
        name = self.call.name.removeprefix("_")
        parts = zip(PARTS, (self.norm, self.residual, self.gate))
        found = ", ".join(title for title, part in parts if part is not None)
        return f"fused_{name} ({found})" if found else name

    def why_unfit(self, facts: Facts) -> str | None:
        """Why the operator does not compute this, or does not compute it faster."""
        tensors = [facts.tensor(node) for node in (self.self, *self.call.tensors[1:])]
        result = facts[self.last].value
        if any(t is None for t in tensors):
            return "its input is no plain tensor"
        if why := self.call.why_unfit(tensors):
            return why
        if result.dtype != tensors[0].dtype:
            return "its result has another type, as under autocast"
        if self.operator is None:
            return f"FastAct has no such operator {'fused' if self.is_fused else 'in place'}"
        return self._why_unfit_around(tensors[0], result, facts) if self.is_fused else None

    def _why_unfit_around(self, x: torch.Tensor, result: torch.Tensor, facts: Facts) -> str | None:
        around = [facts.tensor(n) for n in (self.residual, self.gate) if n is not None]
        if any(t is None for t in around):
            return "one of its operands is no plain tensor"
        if any(t.dtype != x.dtype or t.device != x.device for t in around):
            return "its tensors have several types or devices"
        is_whole = statically_known_true(sym_eq(result.shape, x.shape))
        if not is_whole or not all(expands(t.shape, x.shape) for t in around):
            return "its activation is computed of a smaller tensor, which broadcasts"
        if self.activation is None and not policy.takes_norm_alone(x.device):
            return "no activation with a fused operator follows it"
        if not policy.is_faster(x.device, self.call.name):
            return f"{self} was not faster on a CPU"
        if self.norm is None and x.device.type == "cpu" and _has_few(x):
            return f"on a CPU it is faster from {policy.FEWEST_ON_CPU} elements on"
        return None


def expands(shape: torch.Size, wanted: torch.Size) -> bool:
    return len(shape) <= len(wanted) and all(
        statically_known_true(a == 1) or statically_known_true(a == b)
        for a, b in zip(reversed(shape), reversed(wanted))
    )


def _has_few(tensor: torch.Tensor) -> bool:
    """For a dynamic shape, as many as in the call that is compiled."""
    hints = (n if isinstance(n, int) else n.node.hint for n in tensor.shape)
    return torch.Size(1 if n is None else int(n) for n in hints).numel() < policy.FEWEST_ON_CPU


def norm(node: object, facts: Facts) -> Norm | None:
    call = facts.call(node)
    if call is None or call.name != "aten::batch_norm" or call.arguments["training"] is not False:
        return None
    given = call.arguments
    tensors = tuple(given[name] for name in _NORM_TENSORS)
    x, known = facts.tensor(given["input"]), [facts.tensor(t) for t in tensors]
    if x is None or len(x.shape) < 2 or any(t is None for t in known[2:]):
        return None
    if any(t is not None and found is None for t, found in zip(tensors, known)):
        return None
    allowed = (x.dtype, torch.float32) if x.dtype in _HALVES else (x.dtype,)
    if any(t is not None and t.dtype not in allowed for t in known):
        return None
    return Norm(node, given["input"], tensors, given["eps"])


def _two_tensors(node: object, name: str, facts: Facts) -> list[tuple[fx.Node, fx.Node]]:
    """Returns the operands of a sum or product of two tensors, in the orders that may be computed:
    an operation in place writes to its first operand."""
    call = facts.call(node)
    if call is None or call.name not in (f"aten::{name}", f"aten::{name}_"):
        return []
    both = call.arguments["self"], call.arguments["other"]
    is_plain = call.arguments.get("alpha", 1) == 1 and both[0] is not both[1]
    if not is_plain or any(facts.tensor(x) is None for x in both):
        return []
    return [both] if call.is_in_place else [both, both[::-1]]


def _only(match: Match, root: fx.Node, facts: Facts) -> tuple[fx.Node, ...] | None:
    """A match's nodes in the graph's order, if only the match reads its intermediate results."""
    if any(n is not root and not match.nodes.issuperset(n.users) for n in match.nodes):
        return None
    return tuple(sorted(match.nodes, key=lambda n: facts[n].index))


def activations(node: fx.Node, facts: Facts) -> Iterator[Site]:
    """Yields what may compute a node as an activation alone: first of several operations."""
    for name, every in patterns.ACTIVATIONS.items():
        for match in (m for pattern in every for m in matches(pattern, node, facts)):
            nodes = _only(match, node, facts)
            if nodes and operator(name) is not None:
                yield Site(Call(name, (match.values["x"],)), nodes, operator(name))
    call = facts.call(node) if isinstance(facts[node].value, torch.Tensor) else None
    found = _aten.stand_in(call.op, (), call.arguments) if call is not None else None
    if found is None or found.name not in (*ACTIVATIONS, "prelu", "_prelu"):
        return
    if all(isinstance(x, fx.Node) for x in found.tensors):
        name = f"{found.name}_" if call.is_in_place else found.name
        yield Site(found, (node,), operator(name))


def _around(act: Site, facts: Facts, gate: tuple = ()) -> Iterator[Site]:
    """Yields an activation with the operations before it, the largest first. `gate`: the product
    that follows and its other operand."""
    if len(act.call.tensors) > 1 or act.call.name not in ACTIVATIONS:
        return
    source = act.call.tensors[0]
    fused = replace(act, operator=operator(f"fused_{act.call.name}"), activation=act.last)
    if gate:
        fused = replace(fused, nodes=(*act.nodes, gate[0]), gate=gate[1])
    both = _two_tensors(source, "add", facts)
    for x, residual in both:
        if (normed := norm(x, facts)) is not None:
            nodes = (x, source, *fused.nodes)
            yield replace(fused, nodes=nodes, norm=normed, residual=residual)
    for x, residual in both:
        if expands(facts.tensor(source).shape, facts.tensor(x).shape):  # residual may be smaller
            call = replace(act.call, tensors=(x,))
            yield replace(fused, call=call, nodes=(source, *fused.nodes), residual=residual)
            break
    if (normed := norm(source, facts)) is not None:
        yield replace(fused, nodes=(source, *fused.nodes), norm=normed)
    if gate:
        yield fused


def _clamped_swiglu(node: fx.Node, facts: Facts) -> Iterator[Site]:
    for match in matches(patterns.CLAMPED_SWIGLU, node, facts):
        limit, alpha = match.values["=limit"], match.values["=alpha"]
        nodes = _only(match, node, facts)
        if nodes and match.values["=low"] == -limit < 0:
            tensors = (match.values["gate"], match.values["linear"])
            call = Call("_clamped_swiglu", tensors, (limit, alpha))
            yield Site(call, nodes, call.overload, node)


def _alpha_dropout(node: fx.Node, facts: Facts) -> Iterator[Site]:
    call = facts.call(node)
    if call is None or call.name != "aten::alpha_dropout" or call.arguments["train"] is not True:
        return
    for act in activations(call.arguments["input"], facts):
        if act.call.name == "selu":
            dropped = Call("selu_alpha_dropout", act.call.tensors, (call.arguments["p"],), True)
            yield Site(dropped, (*act.nodes, node), dropped.overload, act.last)


def candidates(node: fx.Node, facts: Facts, fuses: bool) -> Iterator[Site]:
    """Yields the sites that end at a node, the best first."""
    if fuses:
        yield from _clamped_swiglu(node, facts)
        yield from _alpha_dropout(node, facts)
    for act in activations(node, facts):
        if fuses:
            yield from _around(act, facts)
        yield act
    for source, gate in _two_tensors(node, "mul", facts) if fuses else ():
        for act in activations(source, facts):
            yield from _around(act, facts, (node, gate))
    if fuses and (normed := norm(node, facts)) is not None:
        # As leaky_relu with the slope 1, which returns its input.
        call = Call("leaky_relu", (normed.input,), (1.0,))
        yield Site(call, (node,), operator("fused_leaky_relu"), norm=normed)

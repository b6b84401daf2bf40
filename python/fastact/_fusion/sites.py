"""Finds the operations around an activation that one fused operator can compute."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fastact._fusion import policy
from fastact._fusion.activations import Activation, are_only_for, fused_operator, operator
from fastact._fusion.patterns import CLAMPED_SWIGLU, matches
from fastact._fusion.replay import Facts, TensorFacts

#: The parts beside the activation, in the order in which the operator computes them.
PARTS = NORM, RESIDUAL, GATE = "batch norm", "residual", "gate"
NORM_TENSORS = ("weight", "bias", "running_mean", "running_var")
_HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Norm:
    """Batch norm by its running statistics."""

    node: fx.Node
    input: fx.Node
    tensors: tuple[fx.Node | None, ...]
    epsilon: float


@dataclass
class Site:
    """The nodes that one operator replaces."""

    name: str
    parameters: dict[str, float | fx.Node]
    #: In the graph's order; the last one gives the result.
    nodes: tuple[fx.Node, ...]
    self: fx.Node
    norm: Norm | None = None
    residual: fx.Node | None = None
    gate: fx.Node | None = None
    #: True if the operator is faster on a CPU only from policy.FEWEST_ON_CPU elements on.
    needs_many: ClassVar[bool] = True

    @property
    def last(self) -> fx.Node:
        return self.nodes[-1]

    @property
    def operands(self) -> list[fx.Node]:
        """Tensors that the operator reads beside self."""
        found = (*(self.norm.tensors if self.norm else ()), self.residual, self.gate)
        return [node for node in found if node is not None]

    @property
    def operator(self) -> torch._ops.OpOverload | None:
        return fused_operator(self.name)

    def __str__(self) -> str:
        parts = ((NORM, self.norm), (RESIDUAL, self.residual), (GATE, self.gate))
        found = ", ".join(title for title, part in parts if part is not None)
        return f"fused_{self.name} ({found})"

    def why_unfit(self, facts: Facts) -> str | None:
        """Why the operator does not compute this, or does not compute it faster."""
        if self.operator is None:
            return f"{self.name} has no fused operator"
        x, result = facts.tensor(self.self), facts.tensor(self.last)
        if x is None or not x.is_plain:
            return "its input is no plain tensor"
        if result is None or result.dtype != x.dtype or not _is_same(result.shape, x.shape):
            return "its activation is computed of a smaller tensor, which broadcasts"
        for node in filter(None, (self.residual, self.gate)):
            other = facts.tensor(node)
            if other is None or not other.is_plain:
                return "one of its operands is no plain tensor"
            if other.dtype != x.dtype or other.device != x.device:
                return "its tensors have several types or devices"
            if not _expands_to(other.shape, x.shape):
                return "its activation is computed of a smaller tensor, which broadcasts"
        if self.name == "softplus" and x.device.type in facts[self.last].autocast:
            return "autocast computes softplus in float32"
        if not policy.is_faster(x.device, self.name):
            return f"{self} was not faster on a CPU"
        if self.norm is None and self.needs_many and x.device.type == "cpu" and _has_few(x):
            return f"on a CPU it is faster from {policy.FEWEST_ON_CPU} elements on"
        return None


class _OwnSite(Site):
    """A site with an operator of its own, which replaces so many calls that it is faster for few
    elements, too."""

    needs_many = False
    name_of_operator: ClassVar[str]

    @property
    def operator(self) -> torch._ops.OpOverload | None:
        return operator(self.name_of_operator)

    def __str__(self) -> str:
        return self.name_of_operator.removeprefix("_")


class SwigluSite(_OwnSite):
    """gpt-oss's gated unit. Its linear part is `residual`."""

    name_of_operator = "_clamped_swiglu"


class DropoutSite(_OwnSite):
    """SELU with alpha dropout."""

    name_of_operator = "selu_alpha_dropout"


def _is_same(a: torch.Size, b: torch.Size) -> bool:
    return len(a) == len(b) and all(statically_known_true(m == n) for m, n in zip(a, b))


def _expands_to(shape: torch.Size, wanted: torch.Size) -> bool:
    return len(shape) <= len(wanted) and all(
        statically_known_true(a == 1) or statically_known_true(a == b)
        for a, b in zip(reversed(shape), reversed(wanted))
    )


def is_smaller(a: TensorFacts, b: TensorFacts) -> bool:
    """Whether `a` has another shape than `b`, to which it expands."""
    return not _is_same(a.shape, b.shape)


def _has_few(tensor: TensorFacts) -> bool:
    """For a dynamic shape, as many as in the call that is compiled."""
    count = 1
    for size in tensor.shape:
        hint = size if isinstance(size, int) else size.node.hint
        count *= 1 if hint is None else int(hint)
    return count < policy.FEWEST_ON_CPU


def norm(node: object, facts: Facts) -> Norm | None:
    call = facts.call(node)
    if call is None or call.name != "aten::batch_norm" or call.arguments["training"] is not False:
        return None
    given = call.arguments
    tensors = tuple(given[name] for name in NORM_TENSORS)
    x, known = facts.tensor(given["input"]), [facts.tensor(t) for t in tensors]
    if not all(isinstance(t, fx.Node) or t is None for t in tensors):
        return None
    if x is None or not x.is_plain or len(x.shape) < 2 or None in (tensors[2], tensors[3]):
        return None
    allowed = (x.dtype, torch.float32) if x.dtype in _HALVES else (x.dtype,)
    if any(t is not None and not (t.is_plain and t.dtype in allowed) for t in known):
        return None
    if any(len({t.dtype for t in pair if t is not None}) > 1 for pair in (known[:2], known[2:])):
        return None
    return Norm(node, given["input"], tensors, given["eps"])


def _two_tensors(node: object, name: str, facts: Facts) -> tuple[fx.Node, fx.Node] | None:
    """Returns the operands of a sum or product of two tensors."""
    call = facts.call(node)
    if call is None or call.name not in (f"aten::{name}", f"aten::{name}_"):
        return None
    both = call.arguments["self"], call.arguments["other"]
    is_plain = call.arguments.get("alpha", 1) == 1 and both[0] is not both[1]
    return both if is_plain and all(isinstance(x, fx.Node) for x in both) else None


def candidates(act: Activation, facts: Facts) -> Iterator[Site]:
    """Yields the sites around an activation, the largest first."""
    before = [*_before(act.input, facts), ((), act.input, None, None)]
    after: list[tuple] = []
    for user in act.last.users:
        both = _two_tensors(user, "mul", facts)
        if both is None or act.last not in both:
            continue
        if both[0] is act.last or not facts.call(user).is_in_place:
            after.append(((user,), both[1] if both[0] is act.last else both[0]))
    after.append(((), None))
    for (nodes, x, normed, residual), (more, gate) in itertools.product(before, after):
        if normed is not None or residual is not None or gate is not None:
            every = (*nodes, *act.nodes, *more)
            yield Site(act.name, act.parameters, every, x, normed, residual, gate)


def _before(source: fx.Node, facts: Facts) -> Iterator[tuple]:
    """Yields nodes, self, norm and residual of each way to compute an activation's input."""
    both = _two_tensors(source, "add", facts)
    if both:
        is_in_place = facts.call(source).is_in_place
        for x, residual in (both,) if is_in_place else (both, both[::-1]):
            normed = norm(x, facts)
            if normed is not None:
                yield (x, source), normed.input, normed, residual
        x, residual = both
        if not is_in_place and is_smaller(facts.tensor(x), facts.tensor(source)):
            x, residual = residual, x
        yield (source,), x, None, residual
    normed = norm(source, facts)
    if normed is not None:
        yield (source,), normed.input, normed, None


def norm_alone(normed: Norm) -> Site:
    """As leaky_relu with the slope 1, which returns its input."""
    return Site("leaky_relu", {"negative_slope": 1.0}, (normed.node,), normed.input, normed)


def clamped_swiglu(node: fx.Node, facts: Facts) -> Site | None:
    for match in matches(CLAMPED_SWIGLU, node, facts):
        limit, alpha = match.numbers["limit"], match.numbers["alpha"]
        if (
            match.numbers["low"] == -limit < 0
            and 0.5 <= alpha <= 1024
            and are_only_for(match, node)
        ):
            nodes = tuple(sorted(match.nodes, key=lambda n: facts[n].index))
            x, linear = match.tensors["gate"], match.tensors["linear"]
            parameters = {"limit": limit, "alpha": alpha}
            return SwigluSite("clamped_swiglu", parameters, nodes, x, residual=linear)
    return None


def selu_alpha_dropout(act: Activation, facts: Facts) -> Site | None:
    for user in act.last.users:
        call = facts.call(user)
        if act.name != "selu" or call is None or call.name != "aten::alpha_dropout":
            continue
        if call.arguments["train"] is True:
            parameters, nodes = {"p": call.arguments["p"]}, (*act.nodes, user)
            return DropoutSite("selu_alpha_dropout", parameters, nodes, act.input)
    return None

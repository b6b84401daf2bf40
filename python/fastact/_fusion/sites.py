"""Finds the sites of a graph: nodes that one FastAct operator can replace."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import fx
from torch._prims_common import suggest_memory_format
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

from fastact import _aten
from fastact._aten import Call, operator
from fastact._build import ACTIVATIONS
from fastact._fusion import patterns
from fastact._fusion.patterns import matches
from fastact._fusion.replay import Facts

# Activations that are not fused on a CPU: the list of registration/jit/not_faster.h.
_NOT_FASTER_ON_CPU = frozenset(torch.ops.fastact.not_faster_on_cpu())
#: On a CPU, fusing is faster from this number of elements on, because FastAct's one call from
#: Python takes longer than PyTorch's two. With a batch norm, whose own call takes longer, it always
#: is.
FEWEST_ON_CPU = 1 << 16
#: The parts besides the activation, in the order in which the operator computes them.
PARTS = NORM, RESIDUAL, GATE = "batch norm", "residual", "gate"
#: ATen's activations that are not replaced, with the reason.
LEFT = {
    "glu": "FastAct's gradient can be slower",
    "rrelu": "FastAct's random slopes would be different ones",
    "rrelu_with_noise": "FastAct's random slopes would be different ones",
} | dict.fromkeys(
    ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell",
     "rnn_relu_cell", "_transformer_encoder_layer_fwd"),
    "its activations are inside ATen's operator",
)  # fmt: skip


@dataclass(frozen=True)
class Site:
    """The nodes that one operator replaces."""

    #: The call of the activation's operator, without the operations around it.
    call: Call
    #: In the graph's order; the last one returns the result.
    nodes: tuple[fx.Node, ...]
    operator: torch._ops.OpOverload | None
    #: The last node of the activation, if it is fused with the operations around it.
    activation: fx.Node | None = None
    #: A batch norm that uses its running statistics.
    norm: fx.Node | None = None
    residual: fx.Node | None = None
    gate: fx.Node | None = None

    @property
    def last(self) -> fx.Node:
        return self.nodes[-1]

    @property
    def tensors(self) -> list[fx.Node]:
        """The operator's tensors except scale and bias."""
        return [*self.call.tensors, *filter(None, (self.residual, self.gate))]

    @property
    def is_renaming(self) -> bool:
        """True for an activation that is not fused."""
        return self.activation is None and self.norm is None

    def may_save_operands(self, facts: Facts) -> bool:
        """Returns true if the operator's backward pass may need operands that the backward pass of
        the nodes does not need. With a residual, it needs z instead."""
        if self.residual and not self.norm:
            return not has_shape(facts.tensor(self.residual), facts.tensor(self.tensors[0]))
        return len(self.nodes) > 1 or self.call.name == "tanhshrink"

    @property
    def is_fused(self) -> bool:
        """True if the operator computes act(self * scale + bias + residual) * gate."""
        return any((self.norm, self.residual, self.gate))

    def __str__(self) -> str:
        name = self.call.name.removeprefix("_")
        parts = zip(PARTS, (self.norm, self.residual, self.gate))
        found = ", ".join(title for title, part in parts if part)
        return f"fused_{name} ({found})" if found else name

    def why_unfit(self, facts: Facts) -> str | None:
        """Returns why the operator cannot compute the site, or is not faster, or None."""
        tensors = [facts.tensor(node) for node in self.tensors]
        if any(t is None for t in tensors):
            return "one of its operands is not a plain tensor"
        x, result = tensors[0], facts[self.last].value
        if why := self.call.why_unfit(tensors):
            return why
        if result.dtype != (self.call.dtype or x.dtype):
            return "its result has a different type, as under autocast"
        if self.operator is None:
            return f"FastAct has no {'fused' if self.is_fused else 'in-place'} form of it"
        if not self.is_fused:
            return None
        if not has_shape(result, x) or not all(expands(t.shape, x.shape) for t in tensors):
            return "its activation applies to a smaller tensor, which broadcasts"
        if self.activation is None and not takes_norm_alone(x.device):
            return "no activation with a fused operator follows it"
        if not is_faster(x.device, self.call.name):
            return f"{self} was not faster on a CPU"
        if self.norm is None and x.device.type == "cpu" and _has_few(x):
            return f"on a CPU it is faster only from {FEWEST_ON_CPU} elements on"
        if not self._has_strides_of(result, x, facts):
            return "its result would have other strides"
        return None

    def arguments(self, vectors: tuple | None, facts: Facts) -> tuple[tuple, dict]:
        """Returns the arguments of the operator. `vectors` are scale and bias of the batch norm."""
        given = self.call.arguments()
        if not self.is_fused:
            return tuple(given.values()), {}
        _, *parameters = given.items()
        given = {"output_scale" if name == "scale" else name: x for name, x in parameters}
        x, scale, bias, residual = self.tensors[0], None, None, self.residual
        if self.norm:
            (scale, bias), given["dim"] = vectors, 1
        elif residual and not has_shape(facts.tensor(residual), facts.tensor(x)):
            bias, residual = residual, None
        return (x, scale, bias, residual, self.gate), given

    def _has_strides_of(self, result: torch.Tensor, x: torch.Tensor, facts: Facts) -> bool:
        """Returns true if the fused operator's result has the same strides as the result that it
        replaces. Otherwise a view of it could be another one."""
        # A fake batch norm keeps the strides of its input. A real one keeps a memory format.
        if self.norm and not x.is_contiguous(memory_format=suggest_memory_format(x)):
            return False
        vectors = (x.new_empty(x.shape[1]),) * 2 if self.norm else None
        args, options = self.arguments(vectors, facts)
        args = [facts[a].value if isinstance(a, fx.Node) else a for a in args]
        # Strides do not depend on parameters, which may be known only at run time.
        options = {k: 1.0 if isinstance(v, fx.Node) else v for k, v in options.items()}
        with torch._C._AutoDispatchBelowAutograd(), facts.mode:
            ours = self.operator(*args, **options)
        return all(
            statically_known_true(n == 1) or statically_known_true(a == b)
            for n, a, b in zip(result.shape, ours.stride(), result.stride(), strict=True)
        )


def is_faster(device: torch.device, name: str) -> bool:
    return device.type != "cpu" or name not in _NOT_FASTER_ON_CPU


def takes_norm_alone(device: torch.device) -> bool:
    """Returns true if a batch norm without a following activation is replaced. This is faster on a
    GPU, where small kernels wait for Python and the call of batch norm takes longest."""
    return device.type == "cuda"


def has_shape(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return statically_known_true(sym_eq(tensor.shape, other.shape))


def expands(shape: torch.Size, wanted: torch.Size) -> bool:
    return len(shape) <= len(wanted) and all(
        statically_known_true(a == 1) or statically_known_true(a == b)
        for a, b in zip(reversed(shape), reversed(wanted))
    )


def _has_few(tensor: torch.Tensor) -> bool:
    """Returns true if fusing is not faster on a CPU. A dynamic shape counts as the shape in the
    call that is compiled."""
    hints = (n if isinstance(n, int) else n.node.hint for n in tensor.shape)
    return torch.Size(1 if n is None else int(n) for n in hints).numel() < FEWEST_ON_CPU


def norm_tensors(node: fx.Node, facts: Facts) -> list[fx.Node | None]:
    """Returns weight, bias, mean and variance of a batch norm. The first two may be None."""
    given = facts.call(node).arguments
    return [given[name] for name in ("weight", "bias", "running_mean", "running_var")]


def _input_of_norm(node: object, facts: Facts) -> fx.Node | None:
    """Returns the input of a batch norm that uses its running statistics, or None if a fused
    operator cannot compute the batch norm."""
    call = facts.call(node)
    if call is None or call.name != "aten::batch_norm" or call.arguments["training"] is not False:
        return None
    tensors = [call.arguments["input"], *norm_tensors(node, facts)]
    known = [facts.tensor(each) for each in tensors if each is not None]
    if None in tensors[3:] or any(t is None for t in known) or known[0].dim() < 2:
        return None
    dtype = known[0].dtype
    dtypes = (dtype, torch.float32) if dtype.itemsize == 2 else (dtype,)
    return tensors[0] if all(t.dtype in dtypes for t in known) else None


def _two_tensors(node: object, name: str, facts: Facts) -> list[tuple[fx.Node, fx.Node]]:
    """Returns the operands of a sum or product of two tensors, in the orders that may be computed:
    an operation in place writes to its first operand."""
    call = facts.call(node)
    if call is None or call.name.removesuffix("_") != f"aten::{name}":
        return []
    both = call.arguments["self"], call.arguments["other"]
    is_plain = call.arguments.get("alpha", 1) == 1 and both[0] is not both[1]
    if not is_plain or any(facts.tensor(x) is None for x in both):
        return []
    return [both] if call.is_in_place else [both, both[::-1]]


def _written_out(
    pattern: tuple, root: fx.Node, facts: Facts
) -> Iterator[tuple[tuple[fx.Node, ...], dict]]:
    """Yields the nodes of each match of a pattern, in the graph's order, and the values that the
    pattern names. No node outside a match reads its intermediate results."""
    for nodes, values in matches(pattern, root, facts):
        if all(n is root or nodes.issuperset(n.users) for n in nodes):
            yield tuple(sorted(nodes, key=lambda n: facts[n].index)), values


def activations(node: fx.Node, facts: Facts) -> Iterator[Site]:
    """Yields the sites that compute a node as an unfused activation. Activations that are written
    out as several operations come first."""
    for name, pattern in patterns.ACTIVATIONS:
        if operator(name) is not None:
            for nodes, values in _written_out(pattern, node, facts):
                yield Site(Call(name, (values["x"],)), nodes, operator(name))
    call = facts.call(node) if isinstance(facts[node].value, torch.Tensor) else None
    found = _aten.stand_in(call.op, (), call.arguments) if call is not None else None
    if found is None or found.name not in (*ACTIVATIONS, *_aten.ROWS, "prelu", "_prelu"):
        return
    if all(isinstance(x, fx.Node) for x in found.tensors):
        name = f"{found.name}_" if call.is_in_place else found.name
        yield Site(found, (node,), operator(name))


def _around(act: Site, facts: Facts, gate: tuple = ()) -> Iterator[Site]:
    """Yields sites with an activation and the operations before it, the largest first. `gate`
    contains the product that follows and its other operand."""
    if len(act.call.tensors) > 1 or act.call.name not in ACTIVATIONS:
        return
    source = act.call.tensors[0]
    fused = replace(act, operator=operator(f"fused_{act.call.name}"), activation=act.last)
    if gate:
        fused = replace(fused, nodes=(*act.nodes, gate[0]), gate=gate[1])

    def with_before(x: fx.Node, *nodes: fx.Node, **parts: fx.Node) -> Site:
        call = replace(act.call, tensors=(x,))
        return replace(fused, call=call, nodes=(*nodes, *fused.nodes), **parts)

    both = _two_tensors(source, "add", facts)
    for normed, residual in both:
        if x := _input_of_norm(normed, facts):
            yield with_before(x, normed, source, norm=normed, residual=residual)
    for x, residual in both:
        if expands(facts.tensor(source).shape, facts.tensor(x).shape):  # residual may be smaller
            yield with_before(x, source, residual=residual)
            break
    if x := _input_of_norm(source, facts):
        yield with_before(x, source, norm=source)
    if gate:
        yield fused


def _clamped_swiglu(node: fx.Node, facts: Facts) -> Iterator[Site]:
    for nodes, values in _written_out(patterns.CLAMPED_SWIGLU, node, facts):
        limit = values["=limit"]
        if values["=low"] == -limit < 0:
            tensors = (values["gate"], values["linear"])
            call = Call("_clamped_swiglu", tensors, (limit, values["=alpha"]))
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
    if not fuses:
        return
    for source, gate in _two_tensors(node, "mul", facts):
        for act in activations(source, facts):
            yield from _around(act, facts, (node, gate))
    if x := _input_of_norm(node, facts):
        # leaky_relu with the slope 1 returns its input.
        call = Call("leaky_relu", (x,), (1.0,))
        yield Site(call, (node,), operator("fused_leaky_relu"), norm=node)

"""Finds the activation that a node computes."""

import functools
from dataclasses import dataclass

import torch
from torch import fx

from fastact._errors import first_line
from fastact._fusion.patterns import ACTIVATIONS, Match, is_number, matches
from fastact._fusion.replay import Call, Facts

_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
# The schemas' names of the input.
_INPUTS = ("self", "input")

#: Activations of ATen's without an operator of FastAct's.
WITHOUT_OPERATOR = {
    "glu": "gated by the sigmoid of a half",
    "rrelu": "its slope is random",
    "rrelu_with_noise": "its slope is random",
    "lstm": "its activations are inside ATen's operator",
    "gru": "its activations are inside ATen's operator",
    "rnn_tanh": "its activations are inside ATen's operator",
    "rnn_relu": "its activations are inside ATen's operator",
    "lstm_cell": "its activations are inside ATen's operator",
    "gru_cell": "its activations are inside ATen's operator",
    "rnn_tanh_cell": "its activations are inside ATen's operator",
    "rnn_relu_cell": "its activations are inside ATen's operator",
    "_transformer_encoder_layer_fwd": "its activations are inside ATen's operator",
}


@dataclass
class Activation:
    """An activation in a graph."""

    name: str
    input: fx.Node
    #: By the operator's names. A number that may change from call to call is a node.
    parameters: dict[str, float | fx.Node]
    #: In the graph's order; the last one gives the result.
    nodes: tuple[fx.Node, ...]
    weight: fx.Node | None = None  # prelu's
    is_in_place: bool = False

    @property
    def last(self) -> fx.Node:
        return self.nodes[-1]


def operator(name: str) -> torch._ops.OpOverload | None:
    """FastAct's operator in this build, which may contain some of them only."""
    packet = getattr(torch.ops.fastact, name, None)
    return packet and packet.default


@functools.cache
def fused_operator(name: str) -> torch._ops.OpOverload | None:
    return operator(f"fused_{name}")


def _name(call: Call) -> str | None:
    namespace, _, name = call.name.partition("::")
    if namespace not in ("aten", "fastact") or call.op._overloadname != "default":
        return None
    name = name.removesuffix("_")
    if name == "gelu" and call.arguments.get("approximate", "none") == "tanh":
        name = "gelu_tanh"
    is_activation = name == "prelu" or operator(f"{name}_backward") or fused_operator(name)
    return name if is_activation and operator(name) is not None else None


def _of_one_node(node: fx.Node, facts: Facts) -> Activation | str | None:
    call = facts.call(node)
    name = call and _name(call)
    if not name:
        return None
    given = {k: v for k, v in call.arguments.items() if k != "approximate"}
    x = next(given.pop(k) for k in _INPUTS if k in given)
    weight = given.pop("weight", None)
    if not isinstance(x, fx.Node) or (weight is not None and not isinstance(weight, fx.Node)):
        return "its input is no tensor of the graph"
    if not all(is_number(value) or isinstance(value, fx.Node) for value in given.values()):
        return "one of its parameters is no number of the graph"
    parameters = {k: float(v) if is_number(v) else v for k, v in given.items()}
    return Activation(name, x, parameters, (node,), weight, call.is_in_place)


def _of_several_nodes(node: fx.Node, facts: Facts) -> Activation | None:
    for name, pattern in ACTIVATIONS:
        if operator(name) is None:
            continue
        for match in matches(pattern, node, facts):
            if are_only_for(match, node):
                ordered = sorted(match.nodes, key=lambda n: facts[n].index)
                return Activation(name, match.tensors["x"], {}, tuple(ordered))
    return None


def are_only_for(match: Match, root: fx.Node) -> bool:
    """True if only the match itself reads its intermediate results."""
    return all(n is root or match.nodes.issuperset(n.users) for n in match.nodes)


# Python functions that call several operators.
_COMPOSED = {torch.nn.functional.softsign: "softsign", torch.nn.functional.tanhshrink: "tanhshrink"}


def _of_function(node: fx.Node) -> Activation | None:
    name = _COMPOSED.get(node.target) if node.op == "call_function" else None
    if name is None or operator(name) is None or len(node.all_input_nodes) != 1:
        return None
    return Activation(name, node.all_input_nodes[0], {}, (node,))


def activation(node: fx.Node, facts: Facts) -> Activation | str | None:
    """Returns the activation that a node computes, or the reason why PyTorch keeps it, or None."""
    found = _of_function(node) or _of_one_node(node, facts) or _of_several_nodes(node, facts)
    if found is None:
        call = facts.call(node)
        name = call.name.removeprefix("aten::") if call else ""
        return WITHOUT_OPERATOR.get(name)
    if isinstance(found, Activation) and (why := _why_unfit(found, facts)):
        return why
    return found


def _why_unfit(act: Activation, facts: Facts) -> str | None:
    for operand in filter(None, (act.input, act.weight)):
        tensor = facts.tensor(operand)
        if tensor is None or not tensor.is_plain:
            return "its input is no plain tensor"
        if tensor.dtype not in _TYPES:
            return f"its input is {str(tensor.dtype).removeprefix('torch.')}"
        if tensor.device.type not in ("cpu", "cuda"):
            return f"its input is on {tensor.device.type}"
    if facts.tensor(act.last).dtype != facts.tensor(act.input).dtype:
        return "its result has another type, as under autocast"
    if all(map(is_number, act.parameters.values())) and (why := _why_refused(act)):
        return why
    if act.is_in_place and operator(f"{act.name}_") is None:
        return "FastAct has no such operator in place"
    return None


def _why_refused(act: Activation) -> str | None:
    """Returns the operator's error for the parameters, on meta tensors, or None."""
    tensors = [torch.empty(1, device="meta")] * (1 if act.weight is None else 2)
    try:
        operator(act.name)(*tensors, **act.parameters)
    except (RuntimeError, ValueError) as error:
        return first_line(error)
    return None

"""Runs a graph on fake tensors to find what each node computes, reads and writes.

Nodes may be calls of Python functions, methods, operators or ATen's overloads. Their names do not
matter: the schemas of the operators that a node calls say what it writes (`alias_info`), and the
storages of fake tensors say which tensors share memory.
"""

import contextlib
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, zip_longest

import torch
from torch import Tensor, fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.nn import functional as F
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fastact._aten import arguments, operator

#: The storage of all inputs of a graph, because two inputs may share memory in some call.
INPUTS = -1

CHECKPOINT = torch.ops.higher_order.tag_activation_checkpoint
#: Higher-order operators that call their first argument, a graph, in the context of the call.
_CALLING = (CHECKPOINT, torch.ops.higher_order.wrap)
# Functions that change no state, although their arguments may contain no tensor. torchvision's
# models call the first one.
_PURE = (torch._C._log_api_usage_once,)
_PURE_MODULES = ("_operator", "builtins", "math", "torch.fx.experimental.sym_node")
# Activations that call several ATen operators, and the FastAct operator that replaces them.
_COMPOSED = {F.softsign: "softsign", F.tanhshrink: "tanhshrink"}
# Batch norms write to their running statistics, but their schemas do not say so.
_UNDECLARED = ["running_mean", "running_var"]
_DROPOUTS = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")


@dataclass(frozen=True)
class Call:
    """A call of the operator that a node names, or of the only operator that it calls."""

    op: torch._ops.OpOverload
    #: By the schema's names, with defaults. An argument that the graph computes is its node.
    arguments: dict[str, object]

    @property
    def name(self) -> str:
        """The name without the overload, such as "aten::add_"."""
        return self.op._schema.name

    @property
    def is_in_place(self) -> bool:
        return self.op._schema.is_mutable and self.name.endswith("_")


@dataclass
class NodeFacts:
    index: int
    #: All nodes of a region run in the same state of gradients, autocast and inference mode.
    region: int
    value: object
    call: Call | None
    storages: frozenset[int]
    written: frozenset[int]
    #: The same, but inputs of the graph are distinct.
    own_storages: frozenset[int]
    own_written: frozenset[int]


@dataclass
class Facts:
    """The result of replay()."""

    module: fx.GraphModule
    mode: FakeTensorMode
    nodes: dict[fx.Node, NodeFacts] = field(default_factory=dict)
    #: Graphs that nodes of this one call, such as the body of a checkpoint.
    bodies: list["Facts"] = field(default_factory=list)

    def __getitem__(self, node: fx.Node) -> NodeFacts:
        return self.nodes[node]

    def call(self, node: object) -> Call | None:
        return self.nodes[node].call if isinstance(node, fx.Node) else None

    def tensor(self, node: object) -> Tensor | None:
        """Returns a node's tensor, or None if FastAct's operators do not support it: if it is not
        dense, or a subclass of Tensor."""
        value = self.nodes[node].value if isinstance(node, fx.Node) else None
        return value if type(value) is FakeTensor and _is_plain(value) else None


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_quantized


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


class _Recorder(TorchDispatchMode):
    """Records the operators that are called, and the tensors to which they write."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[torch._ops.OpOverload, dict]] = []
        self.written: list[Tensor] = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.Tag.inplace_view in op.tags and op is not torch.ops.aten.detach_.default:
            raise NotImplementedError(f"{op} changes the shape of a tensor in place")
        if op.namespace != "prim":  # such as a query of a tensor's device
            given = arguments(op, args, kwargs)
            self.calls.append((op, given))
            infos = {a.name: a.alias_info for a in op._schema.arguments}
            names = [name for name, info in infos.items() if info is not None and info.is_write]
            if given.get("training", given.get("use_input_stats", True)) is not False:
                names += _UNDECLARED
            self.written += _tensors([given.get(name) for name in names])
        return op(*args, **kwargs)


def _split_softmin(graph: fx.Graph) -> None:
    """Rewrites F.softmin(x) as F.softmax(-x)."""
    for node in graph.find_nodes(op="call_function", target=F.softmin):
        x = node.args[0] if node.args else node.kwargs["input"]
        with graph.inserting_before(node):
            negative = graph.call_function(torch.neg, (x,))
        negative.meta = {k: v for k, v in node.meta.items() if k not in ("example_value", "val")}
        node.target, node.args = F.softmax, (negative, *node.args[1:])
        node.kwargs = {name: value for name, value in node.kwargs.items() if name != "input"}


class _Replay(fx.Interpreter):
    def __init__(self, facts: Facts, regions: Iterator[int], is_body=False, keeps_output=False):
        _split_softmin(facts.module.graph)
        super().__init__(facts.module, garbage_collect_values=False)
        self.facts, self.regions = facts, regions
        self.is_body, self.keeps_output = is_body, keeps_output
        self.region = next(regions)
        self.inputs: set[int] = set()  # storages
        self.written: list[Tensor] = []
        self.autocasts: list[torch.autocast] = []  # active ones
        # By a tensor's id, the last node that wrote to it in place and returned it.
        self.latest: dict[int, fx.Node] = {}

    def run(self, *args: object) -> object:
        try:
            return super().run(*args)
        finally:
            for autocast in reversed(self.autocasts):
                _exit_autocast(autocast)

    def run_node(self, node: fx.Node) -> object:
        if node.op != "output" or not self.keeps_output:
            for old in node.all_input_nodes:
                if (new := self.latest.get(id(self.env[old]), old)) is not old:
                    node.replace_input_with(old, new)
        recorder, region, known = _Recorder(), self.region, _known_value(node)
        if node.op == "placeholder" or node.op == "get_attr":
            value = self._input(super().run_node(node))
            self.inputs |= {_storage(t) for t in _tensors(value)}
        elif node.target in _CALLING:
            value = self._run_body(node, recorder)
        elif self._is_boundary(node):
            self._cross(node)
            value = known
        elif isinstance(known, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            value = known  # a number that a fake tensor does not have
        else:
            with torch._C._AutoDispatchBelowAutograd(), self.facts.mode, recorder:
                value = super().run_node(node)
        call = self._call(node, recorder)
        if call is not None and self._removes_identity(node, call):
            return value
        if call is not None and call.is_in_place and isinstance(value, Tensor):
            self.latest[id(value)] = node
        self.written += recorder.written
        own = [frozenset(map(_storage, t)) for t in (_tensors(value), recorder.written)]
        shared = (frozenset(INPUTS if s in self.inputs else s for s in each) for each in own)
        index = len(self.facts.nodes)
        self.facts.nodes[node] = NodeFacts(index, region, value, call, *shared, *own)
        return value

    def _removes_identity(self, node: fx.Node, call: Call) -> bool:
        """Removes a dropout at inference, which returns its input, unless its result is a result of
        the graph: an ExportedProgram names that. Returns true if the node was removed."""
        name = call.name.removeprefix("aten::").removesuffix("_")
        x = call.arguments.get("input", call.arguments.get("self"))
        if name not in _DROPOUTS or call.arguments["train"] is not False or type(x) is not fx.Node:
            return False
        if any(user.op == "output" for user in node.users):
            return False
        node.replace_all_uses_with(x)
        self.facts.module.graph.erase_node(node)
        return True

    def _is_boundary(self, node: fx.Node) -> bool:
        """Returns true for a call without tensors that may change state, such as
        torch._C._set_grad_enabled."""
        if node.op != "call_function":
            return False
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise NotImplementedError(f"it calls {node.target}")
        is_pure = getattr(node.target, "__module__", None) in _PURE_MODULES or node.target in _PURE
        inputs = [self.env[n] for n in node.all_input_nodes]
        return not is_pure and not _tensors([inputs, _known_value(node)])

    def _cross(self, node: fx.Node) -> None:
        """Begins a new region. Begins or ends autocast, which determines types of results."""
        self.region = next(self.regions)
        if node.target is _enter_autocast:
            self.autocasts.append(_enter_autocast(*node.args))
        elif node.target is _exit_autocast:
            _exit_autocast(self.autocasts.pop())

    def _input(self, value: object) -> object:
        """Returns a new fake tensor, which the graph may write to."""
        if not isinstance(value, Tensor) or self.is_body:
            return value
        if type(value) not in (Tensor, torch.nn.Parameter, FakeTensor) or not _is_plain(value):
            raise NotImplementedError("one of its inputs is not a plain tensor")
        with torch._C._AutoDispatchBelowAutograd(), self.facts.mode as mode:
            if not isinstance(value, FakeTensor):
                value = mode.from_tensor(value, static_shapes=True)
            size, stride = value.shape, value.stride()
            return torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)

    def _run_body(self, node: fx.Node, recorder: _Recorder) -> object:
        body, *args = (self.env[n] if isinstance(n, fx.Node) else n for n in node.args)
        replay = _Replay(Facts(body, self.facts.mode), self.regions, is_body=True)
        value = replay.run(*args)
        self.facts.bodies.append(replay.facts)
        recorder.written += replay.written
        return value

    def _call(self, node: fx.Node, recorder: _Recorder) -> Call | None:
        if node.target in _COMPOSED and (op := operator(_COMPOSED[node.target])) is not None:
            return Call(op, arguments(op, (*node.args, *node.kwargs.values()), {}))
        if isinstance(node.target, torch._ops.OpOverload):  # it may call other operators
            return Call(node.target, arguments(node.target, node.args, node.kwargs))
        if len(recorder.calls) != 1 or not _is_of_torch(node):
            return None
        op, given = recorder.calls[0]
        nodes = {_identity(self.env[n]): n for n in node.all_input_nodes}
        return Call(op, _pytree.tree_map(lambda a: nodes.get(_identity(a), a), given))


def _is_of_torch(node: fx.Node) -> bool:
    """Returns true for a call of a function of torch or a method of a tensor. A function that its
    author put into the graph (torch.compiler.allow_in_graph) may do more than call operators: its
    gradient, for example, may be its own. TorchDynamo wraps an autograd.Function in one of its own
    functions."""
    if node.op == "call_method" or isinstance(node.target, torch._ops.OpOverloadPacket):
        return True
    module = getattr(node.target, "__module__", None) or "torch"  # torch.relu has no module
    if inspect.ismethod(node.target) or module.startswith("torch._dynamo"):
        return False
    return module.partition(".")[0] in ("torch", "_operator")


def _identity(value: object) -> int:
    """Returns the identity of a value. An operator receives a symbolic number as another object."""
    return id(value.node if isinstance(value, (torch.SymInt, torch.SymFloat)) else value)


def _known_value(node: fx.Node, default: object = None) -> object:
    return node.meta.get("example_value", node.meta.get("val", default))


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def replay(
    module: fx.GraphModule, inputs: Iterable[object] = (), keeps_output: bool = False
) -> Facts:
    """Runs a graph on fake tensors and returns what its nodes do. Removes dropouts at inference. If
    a node writes to a tensor in place, later nodes read the result of that node instead.

    `inputs` contains a tensor or another value for each placeholder. If a placeholder has a value,
    which contains the graph's dynamic sizes, that value is used. If `keeps_output` is true, the
    nodes that return the results stay the same, because an ExportedProgram names them. Raises the
    errors of nodes, and NotImplementedError for a graph that cannot be analysed.
    """
    placeholders = module.graph.find_nodes(op="placeholder")
    inputs = [
        value if isinstance(value, FakeTensor) else _known_value(node, value)
        for node, value in zip_longest(placeholders, inputs)
    ]
    mode = detect_fake_mode(inputs) or FakeTensorMode(allow_non_fake_inputs=True)
    env, facts = mode.shape_env, Facts(module, mode)
    with env.ignore_fresh_unbacked_symbols() if env else contextlib.nullcontext():
        _Replay(facts, count(), keeps_output=keeps_output).run(*inputs)
    return facts

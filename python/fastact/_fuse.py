"""Fused operators in a model that was made without them: batch norm, additions, gates."""

import collections
import contextlib
import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx
from torch.nn.modules import dropout
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import _has_any_global_hook
from torch.utils import _pytree

from fastact import functional, nn
from fastact._replace import (
    _FUNCTIONS,
    _OTHERS,
    _OWN_CLASS,
    _WATCHED,
    Report,
    _base_in_torch,
    _become,
    _Proxy,
    _traced,
    _Tracer,
    _Untraceable,
)

# ---- What is fused where

# The parts beside the activation, in the order in which the operator computes them.
PARTS = NORM, RESIDUAL, GATE = "batch norm", "residual", "gate"
_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# What stays PyTorch's on a CPU: the library's list, registration/jit/not_faster.h.
_NOT_FASTER_ON_CPU = frozenset(torch.ops.fastact.not_faster_on_cpu())
# A call from Python takes longer than PyTorch's two: with fewer elements they stay on a CPU. Batch
# norm's own call takes longer than both.
FEWEST_ON_CPU = 1 << 16


def _is_faster(device: torch.device, name: str) -> bool:
    return device.type != "cpu" or name not in _NOT_FASTER_ON_CPU


def _takes_norm_alone(device: torch.device) -> bool:
    """Whether to fuse a batch norm that no activation follows: on a GPU, as its small kernels wait
    for Python, where batch norm's call takes the longest."""
    return device.type == "cuda" and "leaky_relu" in OPERATORS


# ---- What a fused graph calls


def _current(norms):
    """Each batch norm's tensors, from where modules keep them: asking a module for one takes as
    long as an operator's call."""
    found = []
    for parts in norms:
        tensors: list[Tensor | None] = []
        for part in parts:
            if part is None:
                tensors.append(None)
                continue
            module, name = part
            tensor = module._parameters.get(name)
            if tensor is None:
                tensor = module._buffers.get(name)
            # Elsewhere it is, as of a parametrization, an attribute.
            tensors.append(getattr(module, name) if tensor is None else tensor)
        found.append(tensors)
    return found


def batch_norm_vectors(norms, epsilons):
    """scale and bias of each batch norm, from its weight, bias, mean and variance as they are now.

    Computed at each call, in float32 for 16 bits: whatever has written to the buffers since,
    a state_dict, an optimizer or a copy to another device, takes effect.
    """
    found = [None] * len(norms)
    kinds: dict[tuple, list[int]] = {}
    for i, (_, _, mean, _) in enumerate(norms):
        kinds.setdefault((mean.device, mean.dtype), []).append(i)
    for places in kinds.values():
        sizes = [norms[i][2].numel() for i in places]
        # All in one, as a call for each would take longer than the arithmetic.
        weight, bias, mean, variance = (
            torch.cat([_vector(norms[i], part) if norms[i][part] is None else norms[i][part]
                       for i in places])
            for part in range(4)
        )  # fmt: skip
        if mean.dtype in (torch.bfloat16, torch.float16):
            weight, bias, mean, variance = (t.float() for t in (weight, bias, mean, variance))
        epsilon = epsilons[places[0]]
        if any(epsilons[i] != epsilon for i in places):
            every = [variance.new_full((n,), epsilons[i]) for i, n in zip(places, sizes)]
            epsilon = torch.cat(every)
        scale = weight * torch.rsqrt(variance + epsilon)
        shift = torch.addcmul(bias, mean, scale, value=-1)
        both = zip(*(torch.split_with_sizes(vector, sizes) for vector in (scale, shift)))
        for i, vectors in zip(places, both):
            found[i] = vectors
    return found


def _vector(norm, part: int) -> Tensor:
    """A batch norm without weight or bias has ones and zeros."""
    return torch.zeros_like(norm[2]) if part else torch.ones_like(norm[2])


# The sites that did not fuse, and why, while a sample runs.
_unfused: ContextVar[dict[str, str] | None] = ContextVar("unfused", default=None)


def fused(
    site, name, parameters, self, norm=None, vectors=None, residual=None, gate=None,
    adds_in_place=False, multiplies_in_place=False,
):  # fmt: skip
    """One fused operator, or PyTorch's operations where the operator does not take the tensors."""
    both = norm is None and isinstance(self, Tensor) and isinstance(residual, Tensor)
    if both and not adds_in_place and residual.numel() > self.numel():
        self, residual = residual, self
    why = _unfit(name, self, norm, residual, gate)
    if why is None:
        scale, bias = vectors or (None, None)
        if norm is None and residual is not None and residual.numel() < self.numel():
            bias, residual = residual, None  # one for each channel, or broadcast otherwise
            if bias.dim() == 1 and self.dim() > 1:
                bias = bias.unsqueeze(0)
        dim = 1 if norm is not None else -1
        return OPERATORS[name](self, scale, bias, residual, gate, **parameters, dim=dim)
    notes = _unfused.get()
    if notes is not None:
        notes[site] = why
    if norm is not None:
        (weight, shift, mean, variance), epsilon, ranks = norm
        if ranks and self.dim() not in ranks:  # as the module's own forward
            wanted = " or ".join(f"{rank}D" for rank in ranks)
            raise ValueError(f"expected {wanted} input (got {self.dim()}D input)")
        self = torch.nn.functional.batch_norm(
            self, mean, variance, weight, shift, False, 0.0, epsilon
        )
    if residual is not None:
        self = self.add_(residual) if adds_in_place else self + residual
    self = _ALONE[name](self, **parameters)
    if gate is None:
        return self
    return self.mul_(gate) if multiplies_in_place else self * gate


def _unfit(name, self, norm, residual, gate) -> str | None:
    if not isinstance(self, Tensor) or self.dtype not in _TYPES or self.layout != torch.strided:
        return "the operators take no such tensor"
    if norm is not None and (self.dim() < 2 or norm[-1] and self.dim() not in norm[-1]):
        return "batch norm does not take this number of dimensions"
    for other in (residual, gate):
        if other is None:
            continue
        if not isinstance(other, Tensor):
            return "it adds or multiplies by a number"
        if other.dtype != self.dtype or other.device != self.device:
            return "its tensors have several types or devices"
        if other.shape != self.shape and not _expands_to(other.shape, self.shape):
            return "its activation is computed of a smaller tensor, which broadcasts"
    if norm is None and self.device.type == "cpu" and self.numel() < FEWEST_ON_CPU:
        return f"on a CPU it is faster from {FEWEST_ON_CPU} elements on"
    if name == "softplus" and torch.is_autocast_enabled(self.device.type):
        return "autocast computes softplus in float32"
    return None


def _expands_to(shape: torch.Size, wanted: torch.Size) -> bool:
    return len(shape) <= len(wanted) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(wanted))
    )


def _operators() -> tuple[dict[str, Callable], dict[str, Callable]]:
    """The fused operators of this build by the activation's name, and the activations alone."""
    both: tuple[dict, dict] = ({}, {})
    for name in map(_operator_name, functional.__all__):
        if hasattr(torch.ops.fastact, f"fused_{name}"):
            both[0][name] = getattr(torch.ops.fastact, f"fused_{name}").default
            both[1][name] = getattr(torch.ops.fastact, name).default
    return both


def _operator_name(function: str) -> str:
    """The operator of a function of fastact.functional, with its defaults."""
    return {"logsigmoid": "log_sigmoid"}.get(function, function)


OPERATORS, _ALONE = _operators()


def _call(module, *args, **kwargs):
    return module(*args, **kwargs)


def _convolution(function: Callable) -> Callable:
    def convolution(module, input):
        found = module._parameters
        if module.padding_mode != "zeros" or not ("weight" in found and "bias" in found):
            return module.forward(input)
        return function(
            input, found["weight"], found["bias"],
            module.stride, module.padding, module.dilation, module.groups,
        )  # fmt: skip

    return convolution


def _linear(module, input):
    found = module._parameters
    if not ("weight" in found and "bias" in found):
        return module.forward(input)
    return torch.nn.functional.linear(input, found["weight"], found["bias"])


_CALL = torch.nn.Module.__call__
_NORM_TENSORS = ("weight", "bias", "running_mean", "running_var")
_RANKS = {"BatchNorm1d": (2, 3), "BatchNorm2d": (4,), "BatchNorm3d": (5,)}


def _batch_norm(ranks: tuple[int, ...]) -> Callable:
    of_norm = operator.itemgetter(*_NORM_TENSORS)
    names = set(_NORM_TENSORS)

    def batch_norm(module, input):
        found = module._parameters | module._buffers
        if module.training or input.dim() not in ranks or not names <= found.keys():
            return module.forward(input)
        weight, bias, mean, variance = of_norm(found)
        if mean is None:
            return module.forward(input)
        return torch.nn.functional.batch_norm(input, mean, variance, weight, bias, eps=module.eps)

    return batch_norm


# What the forward of torch.nn's own module computes, without its calls from Python: in a model of
# small tensors they take longer than the operator.
_DIRECT = {
    torch.nn.Conv1d: _convolution(torch.conv1d),
    torch.nn.Conv2d: _convolution(torch.conv2d),
    torch.nn.Conv3d: _convolution(torch.conv3d),
    torch.nn.Linear: _linear,
    **{getattr(torch.nn, name): _batch_norm(ranks) for name, ranks in _RANKS.items()},
}

# ---- The trace


def _in_place(name: str) -> Callable:
    """An operator such as +=, which writes to a tensor and gives a new number. In the code that fx
    makes of operator.iadd itself, += would also change a number that somebody else uses."""
    function = getattr(operator, name)

    def call(a, b):
        return function(a, b)

    call.__name__ = call.__qualname__ = name
    return call


_IN_PLACE_OPERATORS = {
    name: _in_place(name)
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul",
                 "iand", "ior", "ixor", "ilshift", "irshift")
}  # fmt: skip


class _WritingProxy(_Proxy):
    """fx has x = x + y for x += y, which does not write to x."""


for _name, _function in _IN_PLACE_OPERATORS.items():
    setattr(
        _WritingProxy,
        f"__{_name}__",
        lambda self, other, function=_function: self.tracer.create_proxy(
            "call_function", function, (self, other), {}
        ),
    )


def _why_altered(module: torch.nn.Module) -> str | None:
    """Why a call of it is not its class's forward."""
    hooks = (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )
    if hooks:
        return "it has hooks"
    return "its forward is set on the object" if "forward" in vars(module) else None


@dataclass
class _Watched:
    """What a fused forward looks at in each call: these modules are the model's own."""

    # Modules, the model first, the modules in each, and the names of those that may be exchanged.
    owners: list[tuple[torch.nn.Module, dict[str, torch.nn.Module | None], set[str]]]
    # In whose place the graph computes something.
    modules: list[torch.nn.Module]
    # Modules that stay calls, and of each the owner and the name there.
    leaves: list[torch.nn.Module]
    places: list[tuple[torch.nn.Module, str]]
    # Of each tensor of a batch norm, the owner and the name there.
    norms: list[tuple[tuple[torch.nn.Module, str] | None, ...]]


def _has_changed(watched: _Watched) -> bool:
    """Whether a forward that is not the graph's has to run: modules were exchanged, one trains, or
    something was put around or in the place of its forward.

    Asked at each call, of each module: so as fast as Python asks, which is a module's __dict__."""
    if _has_any_global_hook():
        return True
    for owner, children, _ in watched.owners:
        if owner._modules != children:
            return not _take_exchanged(watched)
    for m in watched.modules:
        state = m.__dict__
        if state["training"] or state["_forward_hooks"] or state["_forward_pre_hooks"]:
            return True
        if state["_backward_hooks"] or state["_backward_pre_hooks"] or "forward" in state:
            return True
    return False


def _take_exchanged(watched: _Watched) -> bool:
    """Makes modules that were exchanged the watched ones, if they may be exchanged."""
    for owner, children, names in watched.owners:
        found = owner._modules
        if found.keys() != children.keys():
            return False
        for name, child in found.items():
            if child is not children[name] and (name not in names or child is None):
                return False
    # The leaves first: another thread finds nothing changed once the children are those.
    watched.leaves = [owner._modules[name] for owner, name in watched.places]
    for owner, children, _ in watched.owners:
        children.update(owner._modules)
    return not _has_changed(watched)


def _are_plain(leaves: list[torch.nn.Module], kinds: list[type | None], forwards: dict) -> bool:
    """Whether a call of each is its class's forward, as it was; None says that it is called
    anyway."""
    if torch.nn.Module.__call__ is not _CALL:  # as of a tracer
        return False
    for kind, own in forwards.items():
        if kind.forward is not own:
            return False
    for m, kind in zip(leaves, kinds):
        if kind is None:
            continue
        state = m.__dict__
        if m.__class__ is not kind and state.get(_OWN_CLASS) is not kind:
            return False
        if state["_forward_hooks"] or state["_forward_pre_hooks"] or state["_backward_hooks"]:
            return False
        if state["_backward_pre_hooks"] or "forward" in state or "_compiled_call_impl" in state:
            return False
    return True


class _InliningTracer(_Tracer):
    """Traces through the modules that are called, down to torch.nn's and to activations."""

    def __init__(self, calls: Iterable[str]):
        super().__init__()
        self.calls = set(calls)  # modules that stay calls, by name
        self.inside: list[str] = []  # where an exception came from
        self.inlined: dict[str, torch.nn.Module] = {}

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _WritingProxy(node, self)

    def is_leaf_module(self, module: torch.nn.Module, name: str) -> bool:
        return (
            name in self.calls
            or module.training
            or _why_altered(module) is not None
            or _why_opaque(module) is not None
            or _activation_name(module) is not None
        )

    def call_module(self, m, forward, args, kwargs):
        name = self.path_of_module(m)
        if self.is_leaf_module(m, name):
            return super().call_module(m, forward, args, kwargs)
        self.inside.append(name)
        self.inlined[name] = m
        result = super().call_module(m, forward, args, kwargs)
        self.inside.pop()
        return result


def _is_torchs(module: torch.nn.Module) -> bool:
    kind = _own_class(module)
    return kind is not torch.nn.Sequential and kind.__module__.startswith(("torch.", nn.__name__))


def _why_opaque(module: torch.nn.Module) -> str | None:
    """Why a module's forward is not to be traced."""
    if isinstance(module, torch.jit.ScriptModule) or _is_torchs(module):
        return "it is torch's own"
    if "forward" in vars(module):
        return "its forward is set on the object"
    return "it is fused already" if _WATCHED in vars(module) else None


def _own_class(module: torch.nn.Module) -> type:
    return vars(module).get(_OWN_CLASS, type(module))


def _inlined(module: torch.nn.Module, report: Report, prefix: str) -> tuple[fx.Graph, dict]:
    """The forward with those of its modules in it, and these modules; raises _Untraceable."""
    if module.training:
        raise _Untraceable("it is in training mode")
    if (why := _why_opaque(module)) is not None:
        raise _Untraceable(why)
    calls: set[str] = set()
    while True:
        tracer = _InliningTracer(calls)
        try:
            graph = _traced(module, tracer, training=False)
            break
        except _Untraceable as reason:
            if not tracer.inside or tracer.inside[-1] in calls:
                raise
            calls.add(tracer.inside[-1])
            report.left[_join(prefix, tracer.inside[-1])] = str(reason)
    return graph, tracer.inlined


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}".strip(".")


_IDENTITIES = {torch.nn.Identity, *(getattr(torch.nn, name) for name in dropout.__all__)}
# Functions with an argument `training`, without which they return their input: by module and name.
_DROPPING = {
    torch.nn.functional.__name__: {
        "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"
    },
    "torchvision.ops.stochastic_depth": {"stochastic_depth"},
}  # fmt: skip


def _without_identities(graph: fx.Graph, module: torch.nn.Module) -> list[torch.nn.Module]:
    """Takes out what returns its input, as dropout at inference; the modules taken out."""
    taken = []
    for node in list(graph.nodes):
        returned = None
        if node.op == "call_module" and len(node.args) == 1 and not node.kwargs:
            called = module.get_submodule(node.target)
            is_plain = not called.training and _why_altered(called) is None
            if type(called) in _IDENTITIES and is_plain:
                returned = node.args[0]
                taken.append(called)
        elif node.op == "call_function":
            returned = _not_dropped(node)
        if returned is not None:
            node.replace_all_uses_with(returned)
            graph.erase_node(node)
    return taken


def _not_dropped(node: fx.Node) -> fx.Node | None:
    """What a function for training returns at inference."""
    names = _DROPPING.get(getattr(node.target, "__module__", None), ())
    if getattr(node.target, "__name__", None) not in names:
        return None
    bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    return bound.arguments["input"] if bound.arguments["training"] is False else None


# ---- What a node is


def _activation_name(module: torch.nn.Module) -> str | None:
    """The function of fastact.functional that a module computes."""
    kind = _own_class(module)
    name = _OTHERS.get(kind.__module__, {}).get(kind.__name__)
    if name is not None:
        return name if name in functional.__all__ else None
    base = kind if kind.__module__ == nn.__name__ else _base_in_torch(kind)
    if base is None or not (kind is base or kind.forward is base.forward):
        return None
    return _BY_CLASS.get(base.__name__.lower())


_BY_CLASS = {name.replace("_", ""): name for name in functional.__all__ if not name.endswith("_")}


@dataclass
class _Activation:
    name: str  # the operator's
    parameters: dict[str, float]
    input: fx.Node
    module: torch.nn.Module | None = None


def _activation(node: fx.Node, module: torch.nn.Module) -> _Activation | None:
    called, tensor = None, node.args[0] if node.args else None
    if node.op == "call_module":
        called = module.get_submodule(node.target)
        function = _activation_name(called)
        if function is None or _why_altered(called) or len(node.args) != 1 or node.kwargs:
            return None
        given = {
            p: getattr(called, p)
            for p in itertools.islice(
                inspect.signature(getattr(functional, function)).parameters, 1, None
            )
            if hasattr(called, p)
        }
    elif node.op in ("call_function", "call_method"):
        bound = _bound(node)
        if bound is None:
            return None
        function, given = bound
        tensor = given.pop("input")
    else:
        return None
    given.pop("inplace", None)
    name = _operator_name(function)
    if name == "gelu" and given.pop("approximate", "none") == "tanh":
        name = "gelu_tanh"
    if name not in OPERATORS or not isinstance(tensor, fx.Node):
        return None
    if not all(isinstance(value, (int, float)) for value in given.values()):
        return None
    return _Activation(name, {k: float(v) for k, v in given.items()}, tensor, called)


def _bound(node: fx.Node) -> tuple[str, dict] | None:
    """The function of fastact.functional that a call is, and its arguments by name."""
    target = node.target
    if isinstance(target, (torch._ops.OpOverloadPacket, torch._ops.OpOverload)):
        schema = getattr(target, "default", target)._schema
        names = [a.name for a in schema.arguments]
        function = _BY_OPERATOR.get(schema.name)
        if function is None or len(node.args) > len(names):
            return None
        given = dict(zip(names, node.args)) | node.kwargs
        return (function, {"input": given.pop("self", None)} | given)
    ours = _FUNCTIONS.get(target)
    if ours is None and getattr(target, "__module__", None) == functional.__name__:
        ours = target
    if ours is None:
        return None
    try:
        given = inspect.signature(ours).bind(*node.args, **node.kwargs).arguments
    except TypeError:
        return None
    return ours.__name__.removesuffix("_"), dict(given)


_BY_OPERATOR = {f"fastact::{_operator_name(function)}": function for function in functional.__all__}


def _writes(node: fx.Node, module: torch.nn.Module) -> bool:
    """Whether a call may write to one of its tensors."""
    if node.op == "call_module":
        called = module.get_submodule(node.target)
        is_known = _is_torchs(called) or _activation_name(called) is not None
        return bool(getattr(called, "inplace", False)) or not is_known
    if node.op not in ("call_function", "call_method"):
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    of_operator = node.target in _IN_PLACE_OPERATORS.values()
    ends = name.endswith("_") and not name.endswith("__")
    if getattr(node.target, "__module__", "") == torch.nn.functional.__name__:
        place = list(inspect.signature(node.target).parameters).index
        with contextlib.suppress(ValueError):
            ends = ends or dict(enumerate(node.args)).get(place("inplace"), False)
    flagged = bool(node.kwargs.get("inplace", False)) or "out" in node.kwargs
    return of_operator or ends or name in ("__setitem__", "setitem") or flagged


_SUMS_IN_PLACE = {_IN_PLACE_OPERATORS["iadd"], "add_"}
_PRODUCTS_IN_PLACE = {_IN_PLACE_OPERATORS["imul"], "mul_"}
_SUMS = {operator.add, torch.add, "add"} | _SUMS_IN_PLACE
_PRODUCTS = {operator.mul, torch.mul, torch.multiply, "mul"} | _PRODUCTS_IN_PLACE


def _both(node: fx.Node, targets: set) -> tuple[fx.Node, fx.Node] | None:
    """The two tensors of a sum or a product."""
    if node.op not in ("call_function", "call_method") or node.target not in targets:
        return None
    if node.kwargs or len(node.args) != 2 or node.args[0] is node.args[1]:
        return None
    return node.args if all(isinstance(a, fx.Node) for a in node.args) else None


@dataclass
class _Norm:
    input: fx.Node
    tensors: tuple[str | None, ...]  # weight, bias, mean, variance: attributes
    epsilon: float
    ranks: tuple[int, ...]  # that the module takes; none: any
    title: str
    module: torch.nn.Module | None = None


def _norm(node: fx.Node, module: torch.nn.Module) -> _Norm | None:
    """Batch norm by its running statistics."""
    if node.op == "call_module" and len(node.args) == 1 and not node.kwargs:
        called = module.get_submodule(node.target)
        kind = type(called)
        if not isinstance(called, _BatchNorm) or _why_no_norm(called) is not None:
            return None
        tensors = tuple(
            None if getattr(called, n) is None else f"{node.target}.{n}" for n in _NORM_TENSORS
        )
        ranks = next((_RANKS[k.__name__] for k in kind.__mro__ if k.__name__ in _RANKS), ())
        return _Norm(node.args[0], tensors, called.eps, ranks, node.target, called)
    if node.op == "call_function" and node.target is torch.nn.functional.batch_norm:
        try:
            bound = _NORM_SIGNATURE.bind(*node.args, **node.kwargs)
        except TypeError:
            return None
        bound.apply_defaults()
        given = bound.arguments
        values = [given[n] for n in _NORM_TENSORS]
        attributes = [isinstance(v, fx.Node) and v.op == "get_attr" for v in values]
        is_known = all(a or v is None for a, v in zip(attributes, values)) and all(attributes[2:])
        if given["training"] is not False or not is_known:
            return None
        tensors = tuple(None if v is None else v.target for v in values)
        title = tensors[2].rpartition(".")[0]
        return _Norm(given["input"], tensors, given["eps"], (), title)
    return None


def _why_no_norm(module: _BatchNorm) -> str | None:
    """Why a batch norm is no multiplication and addition by its running statistics."""
    if type(module).forward not in _NORM_FORWARDS:
        return "its class overrides BatchNorm's forward"
    if module.training or module.running_mean is None:
        return "it computes the statistics of a batch"
    return _why_altered(module)


_NORM_FORWARDS = (_BatchNorm.forward, torch.nn.SyncBatchNorm.forward)
_NORM_SIGNATURE = inspect.signature(torch.nn.functional.batch_norm)

# ---- Patterns


@dataclass
class _Site:
    """What one fused operator takes the place of."""

    activation: _Activation
    nodes: tuple[fx.Node, ...]  # in the graph's order
    self: fx.Node
    norm: _Norm | None = None
    residual: fx.Node | None = None
    gate: fx.Node | None = None
    adds_in_place: bool = False
    multiplies_in_place: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        both = ((NORM, self.norm), (RESIDUAL, self.residual), (GATE, self.gate))
        return tuple(title for title, part in both if part is not None)

    @property
    def key(self) -> str:
        """Tells it from the others of its module."""
        return "+".join(map(str, (self.nodes[-1], self.self, *self.parts)))

    def __str__(self) -> str:
        norm = [self.norm.title or "batch norm"] if self.norm else []
        return f"fused_{self.activation.name} ({', '.join((*norm, *self.parts[len(norm) :]))})"


def _is_only_for(node: fx.Node, user: fx.Node) -> bool:
    return list(node.users) == [user]


def _candidates(node: fx.Node, act: _Activation, module: torch.nn.Module) -> Iterator[_Site]:
    """The most that can be fused with an activation first."""
    before: list[tuple] = []  # nodes, self, norm, residual, whether that is added in place
    source = act.input
    if _is_only_for(source, node):
        both = _both(source, _SUMS)
        in_place = source.target in _SUMS_IN_PLACE
        orders = () if not both else (both,) if in_place else (both, both[::-1])
        for x, residual in orders:
            norm = _norm(x, module) if _is_only_for(x, source) else None
            if norm is not None:
                before.append(((x, source), norm.input, norm, residual, in_place))
        if both:
            before.append(((source,), both[0], None, both[1], in_place))
        norm = _norm(source, module)
        if norm is not None:
            before.append(((source,), norm.input, norm, None, False))
    before.append(((), source, None, None, False))
    after: list[tuple] = []
    user = next(iter(node.users), None)
    both = _both(user, _PRODUCTS) if user is not None and _is_only_for(node, user) else None
    if both and (both[0] is node or user.target not in _PRODUCTS_IN_PLACE):
        after.append(((user,), both[1] if both[0] is node else both[0]))
    after.append(((), None))
    for (nodes, x, norm, residual, in_place), (more, gate) in itertools.product(before, after):
        if norm is not None or residual is not None or gate is not None:
            multiplies = gate is not None and user.target in _PRODUCTS_IN_PLACE
            nodes_of = (*nodes, node, *more)
            yield _Site(act, nodes_of, x, norm, residual, gate, in_place, multiplies)


# What returns memory of its own, to which nobody else has a reference.
_FRESH = (
    torch.nn.modules.conv._ConvNd,
    torch.nn.Linear,
    torch.nn.LayerNorm,
    torch.nn.GroupNorm,
    _BatchNorm,
)


def _hazard(site: _Site, module: torch.nn.Module) -> str | None:
    """Why the order of reads and writes forbids to compute all of it at the last node."""
    for node in site.nodes:
        if not _writes(node, module) or not isinstance(node.args[0], fx.Node):
            continue
        written = node.args[0]
        if written in site.nodes:
            continue
        called = module.get_submodule(written.target) if written.op == "call_module" else None
        if not isinstance(called, _FRESH) or not _is_only_for(written, node):
            return "it writes to a tensor that others may see"
    between = itertools.takewhile(lambda n: n is not site.nodes[-1], _from(site.nodes[0]))
    if any(_writes(n, module) for n in between if n not in site.nodes):
        return "a tensor is written in between"
    return None


def _from(node: fx.Node) -> Iterator[fx.Node]:
    while node.op != "root":
        yield node
        node = node.next


@dataclass
class _Plan:
    """A module's forward with fused operators."""

    module: torch.nn.Module
    name: str
    device: torch.device
    modules: list[torch.nn.Module]  # in whose place the graph computes something
    sites: dict[str, tuple[str, _Site]] = field(default_factory=dict)  # where, and what
    calls: list[str] = field(default_factory=list)  # modules that stay calls
    watched: _Watched | None = None
    kinds: list[type | None] = field(default_factory=list)  # of those that stay calls: _are_plain
    calling: Callable | None = None  # the forward that calls them
    computing: Callable | None = None  # the forward that calls what they would call


def _plan(module: torch.nn.Module, name: str, report: Report, without: set[str]) -> _Plan:
    graph, inlined = _inlined(module, report, name)
    tensors = itertools.chain(module.parameters(), module.buffers())
    device = next((t.device for t in tensors), torch.device("cpu"))
    paths = [*inlined, *(n.target for n in graph.nodes if n.op in ("call_module", "get_attr"))]
    plan = _Plan(module, name, device, [*inlined.values(), *_without_identities(graph, module)])
    taken: set[fx.Node] = set()
    refused: dict[str, str] = {}  # batch norms
    for node in list(graph.nodes):
        act = _activation(node, module)
        if act is None:
            continue
        where = _join(name, _place(node))
        for site in _candidates(node, act, module):
            if taken.intersection(site.nodes):
                continue
            what = f"{where}: {site.key}"
            if what in without:
                continue
            why = _hazard(site, module)
            if why is None and not _is_faster(device, act.name):
                why = f"{site} was not faster on a CPU"
            if why is None:
                plan.sites[what] = (where, site)
                taken.update(site.nodes)
                report.left.pop(where, None)
                break
            report.left.setdefault(where, why)
            if site.norm is not None:
                refused[site.norm.title] = why
    for node in graph.nodes:
        norm = _norm(node, module)
        if norm is None or node in taken:
            continue
        where = _join(name, norm.title)
        identity = _Activation("leaky_relu", {"negative_slope": 1.0}, node)
        site = _Site(identity, (node,), norm.input, norm)
        what = f"{where}: {site.key}"
        if _takes_norm_alone(device) and what not in without:
            plan.sites[what] = (where, site)
        else:
            why = refused.get(norm.title, "no activation with a fused operator follows it")
            report.left.setdefault(where, why)
    norms = _rewrite(graph, plan)
    plan.calls = list(dict.fromkeys(n.target for n in graph.nodes if n.op == "call_module"))
    if plan.sites:
        plan.watched = _Watched(
            _owners(module, paths, inlined, plan.calls),
            list(dict.fromkeys(plan.modules)),
            [module.get_submodule(call) for call in plan.calls],
            [_owner(module, call) for call in plan.calls],
            [tuple(t and _owner(module, t) for t in norm.tensors) for norm in norms],
        )
        _make_forwards(graph, plan)
    return plan


def _owners(
    module: torch.nn.Module, paths: Iterable[str], inlined: Iterable[str], calls: Iterable[str]
) -> list[tuple]:
    """The modules on the way to what a graph uses: with another one in them the graph would be
    another one. Only a module that stays a call may be exchanged, if it has one name."""
    names = {"": None} | dict.fromkeys(inlined)
    for path in paths:
        while path:
            path = path.rpartition(".")[0]
            names[path] = None
    owners = {name: module.get_submodule(name) for name in names}
    places = collections.Counter(
        id(m) for owner in owners.values() for m in owner._modules.values()
    )
    return [
        (
            owner,
            dict(owner._modules),
            {
                n
                for n, m in owner._modules.items()
                if _join(name, n) in calls and places[id(m)] == 1
            },
        )
        for name, owner in owners.items()
    ]


def _place(node: fx.Node) -> str:
    """The module that a node is, or in whose forward it stands."""
    if node.op == "call_module":
        return node.target
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return stack[-1][0] if stack else ""


def _rewrite(graph: fx.Graph, plan: _Plan) -> list[_Norm]:
    """Puts the operators into the graph; their batch norms."""
    norms = [site.norm for _, site in plan.sites.values() if site.norm is not None]
    first = next(iter(graph.nodes))
    with graph.inserting_before(first):
        _, given = (graph.placeholder(name) for name in _GIVEN)
    read = every = None
    if norms:
        first = next(n for n in graph.nodes if n.op != "placeholder")
        with graph.inserting_before(first):
            read = graph.call_function(_current, (given,))
            epsilons = tuple(norm.epsilon for norm in norms)
            every = graph.call_function(batch_norm_vectors, (read, epsilons))
    index = 0
    results: dict[fx.Node | None, fx.Node] = {}  # in whose place a fused operator is
    for what, (_, site) in plan.sites.items():
        last = site.nodes[-1]
        norm = vectors = None
        with graph.inserting_before(last):
            if site.norm is not None:
                tensors, vectors = (
                    graph.call_function(operator.getitem, (each, index)) for each in (read, every)
                )
                norm = (tensors, site.norm.epsilon, site.norm.ranks)
                index += 1
            act = site.activation
            x, residual, gate = (results.get(n, n) for n in (site.self, site.residual, site.gate))
            arguments = (what, act.name, act.parameters, x, norm, vectors, residual, gate)
            flags = ("adds_in_place", "multiplies_in_place")
            in_place = {flag: True for flag in flags if getattr(site, flag)}
            results[last] = graph.call_function(fused, arguments, in_place)
        last.replace_all_uses_with(results[last])
        for node in reversed(site.nodes):
            graph.erase_node(node)
        plan.modules += [m for m in (act.module, site.norm and site.norm.module) if m is not None]
    for node in list(graph.nodes):
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
    return norms


# What a forward with fused operators takes first: its modules that stay calls, and _Watched.norms.
_GIVEN = ("_fastact_leaves", "_fastact_norms")


def _make_forwards(graph: fx.Graph, plan: _Plan) -> None:
    """The two of the plan: they have the modules that they call as they are in a call."""
    leaves = next(iter(graph.nodes))
    called: list[tuple[fx.Node, type | None]] = []
    plan.kinds = [_plain_kind(plan.module.get_submodule(call)) for call in plan.calls]
    for node in list(graph.nodes):
        if node.op != "call_module":
            continue
        index = plan.calls.index(node.target)
        with graph.inserting_before(node):
            leaf = graph.call_function(operator.getitem, (leaves, index))
        node.op, node.target, node.args = "call_function", _call, (leaf, *node.args)
        called.append((node, plan.kinds[index]))
    plan.calling = _forward(graph, plan.module)
    for node, kind in called:
        is_plain = len(node.args) == 2 and not node.kwargs
        if is_plain and kind in _DIRECT:
            node.target = _DIRECT[kind]
        elif kind is not None:
            node.op, node.target = "call_method", "forward"
    plan.computing = _forward(graph, plan.module)


def _forward(graph: fx.Graph, module: torch.nn.Module) -> Callable:
    graph.lint()
    return type(fx.GraphModule(module, graph)).forward


def _plain_kind(module: torch.nn.Module) -> type | None:
    """The class of which a call is a call of its forward, where the class is torch's."""
    is_plain = _is_torchs(module) and type(module).__call__ is _CALL
    return _own_class(module) if is_plain and _why_altered(module) is None else None


def _owner(module: torch.nn.Module, attribute: str) -> tuple[torch.nn.Module, str]:
    path, _, name = attribute.rpartition(".")
    return module.get_submodule(path), name


def _apply(plan: _Plan) -> None:
    own, kinds = type(plan.module).forward, plan.kinds
    forwards = {kind: kind.forward for kind in kinds if kind is not None}
    calling, computing = plan.calling, plan.computing

    @functools.wraps(own)
    def forward(self, *args, **kwargs):
        watched = self._fastact_watched
        # What a copy watches, as DataParallel's replica, is its original's.
        if self.training or watched.owners[0][0] is not self or _has_changed(watched):
            return own(self, *args, **kwargs)
        leaves = watched.leaves
        # Compilers and tracers look for calls of modules.
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            ours = calling
        else:
            ours = computing if _are_plain(leaves, kinds, forwards) else calling
        return ours(self, leaves, watched.norms, *args, **kwargs)

    _become(plan.module, forward)
    vars(plan.module)[_WATCHED] = plan.watched


# ---- The whole model


def _fuse(model: torch.nn.Module, without: set[str]) -> tuple[list[_Plan], Report]:
    report, plans = Report(), []
    seen: set[int] = set()

    def visit(name: str, module: torch.nn.Module) -> None:
        if id(module) in seen:
            return
        seen.add(id(module))
        if isinstance(module, torch.jit.ScriptModule):
            report.left[name] = "it is a graph already"
            return
        below: Iterable[str] = (n for n, _ in module.named_children())
        try:
            plan = _plan(module, name, report, without)
            if plan.sites:
                _apply(plan)
                plans.append(plan)
            below = plan.calls
        except _Untraceable as reason:
            if isinstance(module, _BatchNorm) and (why := _why_no_norm(module)) is not None:
                report.left[name] = why
            elif not _is_torchs(module) and _activation_name(module) is None:
                report.left[name] = str(reason)
        for child in below:
            visit(_join(name, child), module.get_submodule(child))

    visit("", model)
    for plan in plans:
        for where, site in plan.sites.values():
            before = report.replaced.get(where)
            report.replaced[where] = f"{before}, {site}" if before else str(site)
            report.left.pop(where, None)
    return plans, report


@contextlib.contextmanager
def _noting() -> Iterator[dict[str, str]]:
    notes: dict[str, str] = {}
    token = _unfused.set(notes)
    try:
        yield notes
    finally:
        _unfused.reset(token)


def _results(model: torch.nn.Module, sample) -> list[Tensor]:
    """The tensors that a model returns for a copy of a sample."""
    args, kwargs = (sample if isinstance(sample, tuple) else (sample,)), {}
    if isinstance(sample, dict):
        args, kwargs = (), sample
    copied = _pytree.tree_map_only(Tensor, torch.clone, (args, kwargs))
    with torch.no_grad():
        found = model(*copied[0], **copied[1])
    return [t for t in _pytree.tree_leaves(found) if isinstance(t, Tensor)]


def _bound_of(expected: Tensor, operations: int) -> float:
    """How far results may be apart: four standard deviations of as many independent roundings as
    there were operations, each of an epsilon of the largest number."""
    finite = expected[expected.isfinite()]
    largest = finite.abs().max().item() if finite.numel() else 0.0
    return 4 * operations**0.5 * torch.finfo(expected.dtype).eps * largest


def _check(expected: list[Tensor], found: list[Tensor], operations: int) -> None:
    if len(expected) != len(found):
        raise RuntimeError(
            f"fastact.fuse_: expected {len(expected)} tensors, but got {len(found)}; "
            "the model is as it was"
        )
    for theirs, ours in zip(expected, found):
        bound = _bound_of(theirs, operations) if theirs.is_floating_point() else 0.0
        try:
            torch.testing.assert_close(ours, theirs, rtol=0, atol=bound, equal_nan=True)
        except AssertionError as error:
            difference = " ".join(str(error).split())
            raise RuntimeError(
                f"fastact.fuse_: expected the sample's result to differ by at most {bound:.3g} "
                f"from the model's own, but got: {difference} The model is as it was"
            ) from None


def fuse_(model: torch.nn.Module, sample=None) -> Report:
    """Puts fused operators in the place of a model's batch norms, additions, activations and gates.

    act(batch_norm(x) + residual) * gate becomes one call of torch.ops.fastact.fused_<act>, which is
    one pass over memory; each part beside the activation may be absent. For inference: what is in
    training mode is left, and a model that is put into training mode later runs its own forward
    until eval() is called. docs/fused.md says what is left, and why.

    torch.fx traces the model, else the modules in it. The model is changed in place; its
    parameters, buffers and state_dict stay, and what is loaded or written later is used.
    `fastact.restore_` undoes it.

    With a `sample`, a tensor, a tuple of arguments or a dict of keyword arguments, the model runs
    before and after. What could not be fused with these tensors is left, and the two results must
    agree: the largest difference may be 4 sqrt(n) eps times the largest number, where n operations
    were replaced and eps is torch.finfo(dtype).eps.

    Returns, for each module by its name in the model, what replaces its operations, or why they
    were left.

    Raises TypeError for what is no module, and RuntimeError if the results do not agree. The model
    is then as it was.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"fastact.fuse_: expected a torch.nn.Module, but got {type(model)}")
    before = [(m, m.__class__, dict(vars(m))) for m in model.modules()]

    def put_back() -> None:
        for module, kind, attributes in before:
            module.__class__ = kind
            for name in (_OWN_CLASS, _WATCHED):
                vars(module).pop(name, None)
                if name in attributes:
                    vars(module)[name] = attributes[name]

    expected = None if sample is None else _results(model, sample)
    try:
        plans, report = _fuse(model, set())
        if expected is None:
            return report
        without: dict[str, str] = {}
        while True:
            with _noting() as notes:
                found = _results(model, sample)
            if not notes:
                break
            without |= notes
            put_back()
            plans, report = _fuse(model, set(without))
        for what, why in without.items():
            where = what.partition(": ")[0]
            if where not in report.replaced:
                report.left[where] = why
        _check(expected, found, sum(len(s.nodes) for p in plans for _, s in p.sites.values()))
    except BaseException:
        put_back()
        raise
    return report

"""FastAct's operators in a model by their names, in place of PyTorch's activations."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import fx

from fastact import functional, nn

# What other libraries call their activations: the name of the function that computes each.
_OTHERS: dict[str, dict[str, str]] = {
    "timm.layers.activations": {
        "Swish": "silu",
        "Mish": "mish",
        "Sigmoid": "sigmoid",
        "Tanh": "tanh",
        "HardSwish": "hardswish",
        "HardSigmoid": "hardsigmoid",
        "GELU": "gelu",
        "GELUTanh": "gelu_tanh",
        "QuickGELU": "quick_gelu",
    },
    "transformers.activations": {
        "GELUActivation": "gelu",
        "NewGELUActivation": "gelu_tanh",
        "GELUTanh": "gelu_tanh",
        "PytorchGELUTanh": "gelu_tanh",
        "AccurateGELUActivation": "gelu_tanh",
        "FastGELUActivation": "gelu_tanh",
        "QuickGELUActivation": "quick_gelu",
        "SiLUActivation": "silu",
        "MishActivation": "mish",
        "ReLUSquaredActivation": "squared_relu",
    },
}


def _functions() -> dict[object, Callable]:
    """PyTorch's functions, and the names of a tensor's methods."""
    found: dict[object, Callable] = {}
    for name in functional.__all__:
        ours = getattr(functional, name)
        for theirs in (getattr(torch.nn.functional, name, None), getattr(torch, name, None)):
            if theirs is not None:
                found[theirs] = ours
        if hasattr(torch.Tensor, name):
            found[name] = ours
    return found


_FUNCTIONS = _functions()
# Where a replaced module keeps its class; no part of the state_dict.
_OWN_CLASS = "_fastact_own_class"
# Where a fused module keeps the modules on which its forward depends.
_WATCHED = "_fastact_watched"


@dataclass
class Report:
    """What was done to each module, by its name in the model; "" is the model itself."""

    #: What computes its activations now.
    replaced: dict[str, str] = field(default_factory=dict)
    #: Why it was left as it was.
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{name or '(model)'}: {what}" for name, what in self.replaced.items()]
        lines += [f"{name or '(model)'}: left, {why}" for name, why in self.left.items()]
        return "\n".join(lines)


class _Untraceable(Exception):
    """Why a forward cannot be traced, in a few words."""


class _Proxy(fx.Proxy):
    """Refuses questions whose answer a trace would keep for every later call."""

    @property
    def __class__(self):  # noqa: PYI034  (what isinstance() asks)
        if sys._getframe(1).f_globals.get("__name__", "").startswith("torch."):
            return _Proxy
        raise _Untraceable("it asks for the type of a value")


class _Tracer(fx.Tracer):
    """Traces one forward: every module that it calls stays a call."""

    def is_leaf_module(self, module: torch.nn.Module, name: str) -> bool:
        return True

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def get_fresh_qualname(self, prefix: str) -> str:
        if prefix == "_tensor_constant":
            raise _Untraceable("its forward makes tensors")
        return super().get_fresh_qualname(prefix)


def _traced(module: torch.nn.Module, tracer: fx.Tracer, training: bool) -> fx.Graph:
    """The forward as a graph, in one of the two modes; raises _Untraceable."""
    parameters = inspect.signature(type(module).forward).parameters.values()
    if any(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
           for p in parameters):  # fmt: skip
        raise _Untraceable("its forward has optional arguments")
    before, attributes = module.training, set(vars(module))
    module.training = training
    try:
        return tracer.trace(module)
    except _Untraceable:
        raise
    except Exception as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise _Untraceable(f"it cannot be traced ({first_line})") from error
    finally:
        module.training = before
        for name in set(vars(module)) - attributes:  # constants of the trace
            delattr(module, name)


def _graph(module: torch.nn.Module) -> fx.Graph:
    """The forward as a graph that holds for training and for inference."""
    graphs = [_traced(module, _Tracer(), training) for training in (True, False)]
    if str(graphs[0]) != str(graphs[1]):
        raise _Untraceable("its forward depends on module.training")
    return graphs[0]


def _replace_calls(graph: fx.Graph) -> list[str]:
    """FastAct's functions in the graph's calls; their names."""
    names = []
    for node in graph.nodes:
        ours = _FUNCTIONS.get(node.target) if node.op in ("call_function", "call_method") else None
        if ours is not None and "out" not in node.kwargs:
            node.op, node.target = "call_function", ours
            names.append(ours.__name__)
    graph.lint()
    return names


def _mentions_a_function(module: torch.nn.Module) -> bool:
    """Whether its forward, or a method of its class, may call one of PyTorch's activations."""
    names = {getattr(function, "__name__", function) for function in _FUNCTIONS}
    code = [f.__code__ for f in vars(type(module)).values() if inspect.isfunction(f)]
    return any(names.intersection(c.co_names) for c in code)


def _become(module: torch.nn.Module, forward: Callable) -> None:
    """A subclass of its own class with another forward; settings and weights stay."""
    own = type(module)
    _become_class(module, type(own.__name__, (own,), {"forward": forward}))


def _become_class(module: torch.nn.Module, kind: type) -> None:
    module.__dict__.setdefault(_OWN_CLASS, type(module))
    module.__class__ = kind


def _is_replaced(module: torch.nn.Module) -> bool:
    return _OWN_CLASS in module.__dict__ or type(module).__module__ == nn.__name__


def _forward_of(function: Callable) -> Callable:
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return function(input)

    return forward


def _base_in_torch(kind: type) -> type | None:
    """torch.nn's activation of which it is a subclass, if FastAct has it."""
    for base in kind.__mro__:
        if base.__module__.startswith("torch.nn.") and base.__name__ in nn.__all__:
            return base
    return None


def _replace_module(module: torch.nn.Module) -> str | None:
    """How an activation is replaced, None for another module; raises _Untraceable."""
    kind = type(module)
    if _is_replaced(module):
        return None
    name = _OTHERS.get(kind.__module__, {}).get(kind.__name__)
    if name in functional.__all__:  # a build may have some of the activations alone
        _become(module, _forward_of(getattr(functional, name)))
        return f"fastact.functional.{name}"
    base = _base_in_torch(kind)
    if base is None:
        return None
    ours = getattr(nn, base.__name__)
    if kind is base:
        _become_class(module, ours)
    elif kind.forward is base.forward:
        _become(module, ours.forward)
    else:
        raise _Untraceable(f"its class overrides {base.__name__}'s forward")
    return f"fastact.nn.{base.__name__}"


def replace_(model: torch.nn.Module) -> Report:
    """Puts FastAct's operators in the place of a model's activations; returns what it replaced.

    Modules: torch.nn's activations, their subclasses that keep its forward, and those of timm and
    transformers. Calls of functions and methods, such as torch.nn.functional.gelu(x) or x.relu():
    in each module whose forward torch.fx can trace, without optional arguments, and to one graph
    for training and inference. What was left, and why, stands in the report.

    The model is changed in place: its modules get other classes, its parameters, buffers, hooks
    and state_dict stay. An archive or a package that is made of it calls torch.ops.fastact.* and
    needs FastAct where it runs. A replaced module other than torch.nn's cannot be pickled.

    Raises TypeError for what is no module.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"fastact.replace_: expected a torch.nn.Module, but got {type(model)}")
    report = Report()
    for name, module in model.named_modules():
        try:
            what = _replace_module(module)
            if what is None and _may_call(module):
                graph = _graph(module)
                functions = _replace_calls(graph)
                if functions:
                    forward = type(fx.GraphModule(module, graph)).forward
                    _become(module, forward)
                    what = ", ".join(f"fastact.functional.{f}" for f in functions)
            if what is not None:
                report.replaced[name] = what
        except _Untraceable as reason:
            report.left[name] = str(reason)
    return report


def _may_call(module: torch.nn.Module) -> bool:
    kind = type(module)
    if _is_replaced(module):
        return False
    if isinstance(module, (torch.jit.ScriptModule, fx.GraphModule)):
        raise _Untraceable("it is a graph already")
    if kind.__module__.startswith("torch."):
        if callable(getattr(module, "activation", None)):
            raise _Untraceable("torch.nn's own module calls its activation itself")
        return False
    return _mentions_a_function(module)


def restore_(model: torch.nn.Module) -> int:
    """Undoes `replace_` and `fuse_`: the number of modules that have their own forward again."""
    replaced = [module for module in model.modules() if _OWN_CLASS in module.__dict__]
    for module in replaced:
        module.__class__ = module.__dict__.pop(_OWN_CLASS)
        module.__dict__.pop(_WATCHED, None)
    return len(replaced)

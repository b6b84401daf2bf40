"""Replaces a model's activation modules with FastAct's."""

import functools

import torch
from torch.nn.utils import parametrize

from fastact import functional, nn
from fastact._report import Report

# Modules that replace_() leaves: the norms, the loss, and RReLU, which would draw other random
# slopes.
_LEFT = (
    *("LayerNorm", "RMSNorm", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"),
    *("RReLU", "CrossEntropyLoss"),
)
# The attribute in which a replaced module keeps its class. It is not in the state_dict.
_OWN_CLASS = "_fastact_own_class"
# Activation modules of other libraries, with FastAct's function for each.
_OTHERS: dict[str, dict[str, str]] = {
    "timm.layers.activations": {
        "Swish": "silu", "Mish": "mish", "Sigmoid": "sigmoid", "Tanh": "tanh",
        "HardSwish": "hardswish", "HardSigmoid": "hardsigmoid", "GELU": "gelu",
        "GELUTanh": "gelu_tanh", "QuickGELU": "quick_gelu",
    },
    "transformers.activations": {
        "GELUActivation": "gelu", "NewGELUActivation": "gelu_tanh", "GELUTanh": "gelu_tanh",
        "PytorchGELUTanh": "gelu_tanh", "AccurateGELUActivation": "gelu_tanh",
        "FastGELUActivation": "gelu_tanh", "QuickGELUActivation": "quick_gelu",
        "SiLUActivation": "silu", "MishActivation": "mish",
        "ReLUSquaredActivation": "squared_relu",
    },
}  # fmt: skip


def replace_(model: torch.nn.Module) -> Report:
    """Replaces a model's activation modules with FastAct's, and returns a report.

    A module whose class is exactly one of the known classes of torch.nn, timm and transformers gets
    FastAct's class. Its parameters, buffers, hooks and state_dict do not change. A module whose
    `forward` is set on the object keeps its class. The model does not run. Functional calls such as
    torch.nn.functional.gelu(x) do not change: `fuse_` and torch.compile(backend="fastact") replace
    them.

    `restore_` undoes the replacement. The report lists the replaced modules, and why each other
    activation module was left unchanged.

    Raises TypeError if `model` is not a module.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"fastact.replace_: expected a torch.nn.Module, but got {type(model)}")
    report = Report()
    for name, module in model.named_modules():
        kind = parametrize.type_before_parametrizations(module)
        if _OWN_CLASS in vars(module) or kind.__module__ == nn.__name__:
            continue
        ours = _replacement(kind)
        if ours is None:
            base = next((b for b in kind.__mro__[1:] if _replacement(b) is not None), None)
            if base is not None:
                report.leave(name, f"its class is a subclass of {base.__name__}")
        elif "forward" in vars(module):
            report.leave(name, "its forward is set on the object")
        else:
            vars(module)[_OWN_CLASS] = kind
            _set_class(module, ours)
            is_fastacts = ours.__module__ == nn.__name__
            report.replaced[name] = f"fastact.nn.{ours.__name__}" if is_fastacts else ours.__name__
    return report


def restore_classes(model: torch.nn.Module) -> int:
    """Undoes `replace_`, and returns the number of modules whose class it restored."""
    replaced = [module for module in model.modules() if _OWN_CLASS in vars(module)]
    for module in replaced:
        _set_class(module, vars(module).pop(_OWN_CLASS))
    return len(replaced)


def _set_class(module: torch.nn.Module, kind: type) -> None:
    """Sets a module's class. A parametrized module has a class of its own, whose base class is set
    instead: parametrized attributes are properties of the module's own class."""
    if parametrize.is_parametrized(module):
        front = type(module)
        members = {k: v for k, v in vars(front).items() if k not in ("__dict__", "__weakref__")}
        kind = type(front.__name__, (kind,), members)
    module.__class__ = kind


@functools.cache
def _replacement(kind: type) -> type | None:
    """Returns FastAct's class for a known class, or None."""
    if kind.__module__.startswith("torch.nn."):
        name = kind.__name__
        is_ours = name in nn.__all__ and name not in _LEFT
        return getattr(nn, name) if is_ours and getattr(torch.nn, name) is kind else None
    name = _OTHERS.get(kind.__module__, {}).get(kind.__name__)
    if name not in functional.__all__:  # a build may contain only some activations
        return None
    function = getattr(functional, name)
    in_place = getattr(functional, f"{name}_", None)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if in_place is not None and getattr(self, "inplace", False):
            return in_place(input)
        return function(input)

    members = {"forward": forward, "__reduce__": _reduce, "__module__": kind.__module__}
    return type(kind.__name__, (kind,), members)


def _reduce(module: torch.nn.Module) -> tuple:
    return _unpickled, (type(module).__bases__[0],), module.__getstate__()


def _unpickled(kind: type) -> torch.nn.Module:
    replaced = _replacement(kind)
    return replaced.__new__(replaced)

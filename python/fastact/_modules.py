"""Classes of activation modules, and FastAct's classes that compute the same."""

import functools

import torch
from torch.nn.utils import parametrize

from fastact import functional, nn

# What other libraries call their activations: the name of the function that computes each.
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


def known_class(module: torch.nn.Module) -> type:
    """A module's class, without the one that parametrizations put in front of it."""
    kind = type(module)
    return kind.__bases__[0] if parametrize.is_parametrized(module) else kind


def set_known_class(module: torch.nn.Module, kind: type) -> None:
    """Sets what known_class() returns. Parametrized attributes stay: they are properties of
    the class in front, which each module has of its own."""
    if parametrize.is_parametrized(module):
        front = type(module)
        members = {k: v for k, v in vars(front).items() if k not in ("__dict__", "__weakref__")}
        kind = type(front.__name__, (kind,), members)
    module.__class__ = kind


@functools.cache
def replacement(kind: type) -> type | None:
    """FastAct's class for one of the known classes."""
    if kind.__module__.startswith("torch.nn."):
        name = kind.__name__
        return getattr(nn, name) if name in nn.__all__ and getattr(torch.nn, name) is kind else None
    name = _OTHERS.get(kind.__module__, {}).get(kind.__name__)
    if name not in functional.__all__:  # a build may have some of the activations alone
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
    replaced = replacement(kind)
    return replaced.__new__(replaced)

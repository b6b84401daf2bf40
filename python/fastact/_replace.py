"""Replaces a model's activation modules with FastAct's."""

import torch

from fastact import nn
from fastact._modules import known_class, replacement, set_known_class
from fastact._report import Report

# Where a replaced module keeps its class; no part of the state_dict.
_OWN_CLASS = "_fastact_own_class"


def replace_(model: torch.nn.Module) -> Report:
    """Replaces a model's activation modules with FastAct's, and returns a report.

    A module whose class is exactly one of the known classes of torch.nn, timm and transformers gets
    FastAct's class. Its parameters, buffers, hooks and state_dict do not change. A module whose
    `forward` is set on the object keeps its class. No forward runs. Functional calls such as
    torch.nn.functional.gelu(x) do not change either: `fuse_` and torch.compile(backend="fastact")
    replace them.

    `restore_` undoes the replacement. The report lists the replaced modules, and for each other
    activation module the reason why it was left.

    Raises TypeError for anything but a module.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"fastact.replace_: expected a torch.nn.Module, but got {type(model)}")
    report = Report()
    for name, module in model.named_modules():
        kind = known_class(module)
        if _OWN_CLASS in vars(module) or kind.__module__ == nn.__name__:
            continue
        ours = replacement(kind)
        if ours is None:
            base = next((b for b in kind.__mro__[1:] if replacement(b) is not None), None)
            if base is not None:
                report.leave(name, f"its class is a subclass of {base.__name__}")
        elif "forward" in vars(module):
            report.leave(name, "its forward is set on the object")
        else:
            vars(module)[_OWN_CLASS] = kind
            set_known_class(module, ours)
            is_fastacts = ours.__module__ == nn.__name__
            report.replaced[name] = f"fastact.nn.{ours.__name__}" if is_fastacts else ours.__name__
    return report


def restore_classes(model: torch.nn.Module) -> int:
    """Undoes `replace_`, and returns the number of modules that got their own class back."""
    replaced = [module for module in model.modules() if _OWN_CLASS in vars(module)]
    for module in replaced:
        set_known_class(module, vars(module).pop(_OWN_CLASS))
    return len(replaced)

"""Replaces a model's activation modules by FastAct's."""

import torch

from fastact import nn
from fastact._modules import known_class, replacement, set_known_class
from fastact._report import Report

# Where a replaced module keeps its class; no part of the state_dict.
_OWN_CLASS = "_fastact_own_class"


def replace_(model: torch.nn.Module) -> Report:
    """Exchanges a model's activation modules for FastAct's; returns what it replaced.

    A module of exactly one of the known classes of torch.nn, timm and transformers gets another
    class. Its parameters, buffers, hooks and state_dict stay. A module whose `forward` is set on
    the object is left. No forward is run. Calls of functions such as torch.nn.functional.gelu(x)
    stay, too: `fuse_` and torch.compile(backend="fastact") replace these.

    `restore_` undoes it. The report lists the replaced modules, and the others with the reason.

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
    """Undoes `replace_`: the number of modules that have their own class again."""
    replaced = [module for module in model.modules() if _OWN_CLASS in vars(module)]
    for module in replaced:
        set_known_class(module, vars(module).pop(_OWN_CLASS))
    return len(replaced)

"""The report of what FastAct replaced in a program, and of what it left unchanged."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import fx

_NOT_USERS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


@dataclass
class Report:
    """Lists places of a program: a module's name in the model ("" is the model itself), or a module
    and a line of the program, such as "layer1.0 (resnet.py:93)"."""

    #: The operators or modules that now compute each place.
    replaced: dict[str, str] = field(default_factory=dict)
    #: Why PyTorch still computes each of these places.
    left: dict[str, str] = field(default_factory=dict)
    #: The number of replaced operations. An operation that is captured twice counts twice.
    count: int = 0

    def __str__(self) -> str:
        lines = [f"{name or '(model)'}: {what}" for name, what in self.replaced.items()]
        lines += [f"{name or '(model)'}: left, {why}" for name, why in self.left.items()]
        return "\n".join(lines)

    def replace(self, where: str, what: str, operations: int = 1) -> None:
        self.count += operations
        _add(self.replaced, where, what)

    def leave(self, where: str, why: str) -> None:
        _add(self.left, where, why)


def _add(texts: dict[str, str], where: str, text: str) -> None:
    """Adds the text for a place, which several graphs may contain, such as one for each shape."""
    both = [*filter(None, texts.get(where, "").split("; ")), text]
    texts[where] = "; ".join(dict.fromkeys(both))


# ---- Places


def _line(node: fx.Node) -> str:
    """Returns the innermost line of the stack that is outside torch and FastAct."""
    frames = re.findall(r'^ *File "(.*)", line (\d+)', node.meta.get("stack_trace") or "", re.M)
    own = [frame for frame in frames if not frame[0].startswith(_NOT_USERS)]
    return f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else ""


def _module(node: fx.Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return ""
    path = re.sub(r"^L\['\w+'\]|_modules|\['|'\]", ".", stack[-1][0])
    return ".".join(part for part in path.split(".") if part not in ("", "__self__"))


def place(node: fx.Node) -> str:
    module, line = _module(node), _line(node)
    return f"{module} ({line})" if module and line else module or line or node.name

"""The report of what FastAct replaced in a program, and of what it left."""

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

    #: The operators or modules that compute each place now.
    replaced: dict[str, str] = field(default_factory=dict)
    #: Why PyTorch still computes each of these places.
    left: dict[str, str] = field(default_factory=dict)
    #: The number of replaced operations. One that is captured twice counts twice.
    count: int = 0

    def __str__(self) -> str:
        lines = [f"{name or '(model)'}: {what}" for name, what in self.replaced.items()]
        lines += [f"{name or '(model)'}: left, {why}" for name, why in self.left.items()]
        return "\n".join(lines)

    def add(self, notes: "Notes") -> None:
        """Adds the notes of a graph. Several graphs may contain one place, one for each shape."""
        self.count += notes.count
        for mine, new in ((self.replaced, notes.replaced), (self.left, notes.left)):
            for where, texts in new.items():
                both = [*filter(None, mine.get(where, "").split("; ")), *texts]
                mine[where] = "; ".join(dict.fromkeys(both))


@dataclass
class Notes:
    """Collects a Report of one graph."""

    replaced: dict[str, list[str]] = field(default_factory=dict)
    left: dict[str, list[str]] = field(default_factory=dict)
    count: int = 0

    def replace(self, node: fx.Node, what: str, operations: int) -> None:
        self.count += operations
        self.replaced.setdefault(place(node), []).append(what)

    def leave(self, node: fx.Node, what: str, why: str) -> None:
        self.left.setdefault(place(node), []).append(f"{what}: {why}")


def _line(node: fx.Node) -> str:
    """Returns the last line of the stack that is outside torch and FastAct."""
    frames = [
        line.split('"')
        for line in (node.meta.get("stack_trace") or "").splitlines()
        if line.strip().startswith('File "')
    ]
    own = [frame for frame in frames if not frame[1].startswith(_NOT_USERS)]
    if not own:
        return ""
    name, rest = own[-1][1], own[-1][2]
    number = rest.partition("line ")[2].partition(",")[0]
    return f"{Path(name).name}:{number}"


def _module(node: fx.Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return ""
    path = re.sub(r"^L\['\w+'\]|_modules|\['|'\]", ".", stack[-1][0])
    return ".".join(part for part in path.split(".") if part not in ("", "__self__"))


def place(node: fx.Node) -> str:
    module, line = _module(node), _line(node)
    return f"{module} ({line})" if module and line else module or line or node.name

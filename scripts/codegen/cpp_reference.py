"""The C++ reference: the declarations of the public headers, and their comments."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from cxxheaderparser.simple import ClassScope, NamespaceScope, parse_string
from cxxheaderparser.types import Function

WIDTH = 100
INTRODUCTION = """\
# C++

`find_package(FastAct REQUIRED)` defines the targets `FastAct::fastact` (operators) and
`FastAct::aten` (the override); the [guide](../guides/cpp.md) shows a program. `make report` writes
this page from the headers.
"""
# The activation whose functions the page shows, instead of those of all activations.
SHOWN_ACTIVATION = "selu"


@dataclass(frozen=True)
class Declaration:
    name: str
    text: str
    comment: str


def parsed(header: str) -> NamespaceScope:
    """Returns the namespace fastact of a header, with its comments as documentation."""
    documented = re.sub(r"^(\s*)// ?", r"\1/// ", header, flags=re.MULTILINE)
    return parse_string(documented.replace("FASTACT_API ", "")).namespace.namespaces["fastact"]


def prose(comment: str | None) -> str:
    """Returns a comment's paragraphs, wrapped."""
    lines = [line.strip().removeprefix("///").strip() for line in (comment or "").splitlines()]
    paragraphs = "\n".join(lines).split("\n\n")
    return "\n\n".join(wrapped(" ".join(paragraph.split())) for paragraph in paragraphs)


def wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def declaration(function: Function, indent: str = "") -> Declaration:
    name = function.name.format()
    result = f"{function.return_type.format()} " if function.return_type else ""
    parameters = [parameter.format() for parameter in function.parameters]
    line = f"{indent}{result}{name}({', '.join(parameters)});"
    if len(line) > WIDTH:
        space = ",\n" + " " * (len(indent) + 4)
        line = f"{indent}{result}{name}({space[1:]}{space.join(parameters)});"
    return Declaration(name, line, prose(function.doxygen))


def functions(header: str) -> list[Declaration]:
    return [declaration(function) for function in parsed(header).functions]


def class_text(scope: ClassScope) -> str:
    lines = [f"{scope.class_decl.typename.format()} {{"]
    for field in scope.fields:
        value = f" = {field.value.format()}" if field.value else ""
        lines.append(f"  {field.type.format()} {field.name}{value};")
    for method in scope.methods:
        if method.access == "public" and not method.deleted:
            lines.append(declaration(method, "  ").text)
    return "\n".join([*lines, "};"])


def of_activation(name: str) -> re.Pattern:
    return re.compile(rf"(fused_)?{name}(_and_mul|_backward)?(_out|_)?")


def entry(title: str, code: str, comment: str) -> list[str]:
    return [f"### `{title}`", "", f"```cpp\n{code}\n```", "", *([comment, ""] if comment else [])]


def page(headers: list[Path], activations: list[str]) -> str:
    """Returns the page of the headers."""
    lines = [INTRODUCTION]
    for header in headers:
        text = header.read_text()
        top = [line.removeprefix("//").removeprefix(" ") for line in text.splitlines()]
        opening = top[: top.index("#pragma once")]
        lines += [f"## fastact/{header.name}", "", *described(opening), ""]
        scope = parsed(text)
        for found in scope.classes:
            name = found.class_decl.typename.segments[-1].format()
            lines += entry(name, class_text(found), prose(found.class_decl.doxygen))
        every = functions(text)
        families = {
            a: [d for d in every if of_activation(a).fullmatch(d.name)] for a in activations
        }
        of_family = {d.name for family in families.values() for d in family}
        for found in every:
            if found.name not in of_family:
                lines += entry(found.name, found.text, found.comment)
        if of_family:
            lines += family_text(families[SHOWN_ACTIVATION])
    return "\n".join(lines).rstrip("\n") + "\n"


def described(opening: list[str]) -> list[str]:
    """Returns a header's first comment: prose, and its indented lines as code."""
    lines, inside = [], False
    for line in opening:
        if line.startswith("  ") != inside:
            lines += ["```text"] if not inside else ["```"]
            inside = not inside
        lines.append(line.rstrip())
    return [*lines, *(["```"] if inside else [])]


def family_text(family: list[Declaration]) -> list[str]:
    code = "\n".join(f"// {' '.join(found.comment.split())}\n{found.text}" for found in family)
    return [
        "### Activations",
        "",
        wrapped(
            f"The functions of `{SHOWN_ACTIVATION}`. Every other activation has the same ones, "
            "with its parameters: its [page](operators.md) lists them."
        ),
        "",
        f"```cpp\n{code}\n```",
        "",
    ]

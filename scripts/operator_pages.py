"""Writes docs/operators/: a page and a plot of f and f' for each activation of the catalogue. And
in docs/operators.md how names and arguments differ from ATen's.

    python scripts/operator_pages.py [FOLDER]

What a page says is the comment of the formula's header, and the schema; the plot is the library's
float64 result. Needs the library (FASTACT_LIBRARY, or build/lib/libfastact.so).
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "python_tests"))  # the table of activations

import torch  # noqa: E402

from op_table import OPERATORS, Activation  # noqa: E402
from pages import put_between_markers  # noqa: E402
from python_package import paragraphs  # noqa: E402
from support import library_path  # noqa: E402

PAGES = ROOT / "docs" / "operators"
OPERATORS_PAGE = ROOT / "docs" / "operators.md"
COMMAND = "make operator-pages"
LABELS = {"Range": "Special values", "Source": "Source"}
REACH = 6.0  # the plots show -REACH..REACH


def accuracy_table(paragraph: str) -> list[str]:
    rows = [line.split() for line in paragraph.splitlines()[1:]]
    lines = [["ULP", "f", "f'", "f''", "f'''"], ["---"] + 4 * ["---:"], *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def schema(act: Activation) -> str:
    return str(act.packet().default._schema)


def page(act: Activation) -> str:
    first, *rest = paragraphs(act.name)
    lines = [
        f"<!-- Written by `{COMMAND}` from ops/formulas/{act.name}.h -->",
        f"# `{act.name}`",
        "",
        escaped(first),
        "",
        f"`{schema(act)}`",
        "",
        f"![f and f']({act.name}.svg)",
        "",
    ]
    for part in rest:
        if part.startswith("Accuracy (ULP)"):
            lines += ["## Accuracy", "", "The largest error, 0.5 for correctly rounded.", ""]
            lines += [*accuracy_table(part), ""]
            continue
        if part.startswith("Terms cancel (float64)"):
            continue  # for the tests; the next paragraph says it in words
        label, colon, text = part.partition(": ")
        if colon and label in LABELS:
            lines += [f"## {LABELS[label]}", "", escaped(text[0].upper() + text[1:]), ""]
        else:
            lines += [escaped(part), ""]
    lines += [
        f"Code: [`ops/formulas/{act.name}.h`](../../ops/formulas/{act.name}.h). "
        "[All operators](../operators.md), [speed](../performance.md), [proof](../accuracy.md).",
        "",
    ]
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Prose of a comment as Markdown: powers and products stay as they are written."""
    return re.sub(r"([*<>|])", r"\\\1", " ".join(text.split()))


def draw(act: Activation, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fastact"  # the same file from the same numbers
    from matplotlib import pyplot

    x = torch.linspace(-REACH, REACH, 481, dtype=torch.float64, requires_grad=True)
    y = act.op(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    x, y = x.detach(), y.detach()
    figure, axis = pyplot.subplots(figsize=(4.2, 2.8), layout="constrained")
    axis.plot(x, y, label="f")
    axis.plot(x, slope, "--", label="f'")
    axis.axhline(0, color="gray", linewidth=0.5)
    axis.axvline(0, color="gray", linewidth=0.5)
    axis.set_ylim(max(-2.5, float(y.min()) - 0.5), 2.5)
    axis.set_title(act.name, fontsize=9)
    axis.legend(fontsize=7, frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


# The forms that ATen has, too, by suffix and overload.
FORMS = (("", "default"), ("_", "default"), ("", "out"), ("_backward", "default"),
         ("_backward", "grad_input"))  # fmt: skip


def arguments(schema, derivative: bool) -> list[str]:
    """Names, defaults and the star before keywords; without what all derivative operators add."""
    words = []
    for argument in schema.arguments:
        if argument.kwarg_only and "*" not in words:
            words.append("*")
        value = argument.default_value
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        has_default = value is not None and not (derivative and is_number)
        default = f"={value:g}" if is_number else f"={value}"
        words.append(argument.name + (default if has_default else ""))
    return words


def beside_aten() -> str:
    """The differences from ATen's schemas: what ATen lacks, and a row for other arguments."""
    lacking, rows = [], []
    for act in OPERATORS:
        absent = []
        for suffix, overload in FORMS:
            theirs = getattr(torch.ops.aten, act.name + suffix, None)
            name = act.name + suffix + ("" if overload == "default" else f".{overload}")
            if theirs is None or overload not in theirs.overloads():
                absent.append(f"`{name}`")
                continue
            both = (getattr(packet, overload)._schema for packet in (theirs, act.packet(suffix)))
            aten, ours = (", ".join(arguments(s, suffix == "_backward")) for s in both)
            if aten != ours:
                rows.append(f"| `{name}` | `{aten}` | `{ours}` |")
        lacking += [f"`{act.name}` and its derivatives"] if len(absent) == len(FORMS) else absent
    return "\n".join(
        [
            "| | ATen's arguments | FastAct's |",
            "|---|---|---|",
            *rows,
            "",
            f"ATen has no {', '.join(lacking)}; nor any double and triple backward operators.",
            "",
        ]
    )


def main(command_line: list[str]) -> int:
    folder = Path(command_line[0]) if command_line else PAGES
    torch.ops.load_library(str(library_path()))
    folder.mkdir(parents=True, exist_ok=True)
    for act in OPERATORS:
        (folder / f"{act.name}.md").write_text(page(act))
        draw(act, folder / f"{act.name}.svg")
    if not command_line:
        put_between_markers("aten", COMMAND, beside_aten(), OPERATORS_PAGE)
    print(f"written: {len(OPERATORS)} pages to {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Writes the generated pages of docs/reference/: a page and a plot of f and f' for each activation
of the catalogue and for prelu; the differences from ATen's names and arguments in operators.md; the
pages on C++ and the command line; and the catalogue, for the site.

    python scripts/codegen/operator_pages.py [FOLDER]   with a folder, only the activations' pages

The text of a page comes from the comment of the formula's header, the schema, and the library
itself: the range of its results, the errors that it raises, the curves of the plot. Needs the
library (FASTACT_LIBRARY, or build/lib/libfastact.so). python_tests/test_operator_pages.py runs the
calls on the pages, and cpp_tests/registration/api_test.cpp those in C++.
"""

import argparse
import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "python_tests"))  # the table of activations

import torch  # noqa: E402

import cpp_reference  # noqa: E402
import figures  # noqa: E402
import python_package  # noqa: E402
from op_table import ACTIVATIONS, OPERATORS, Activation  # noqa: E402
from pages import put_between_markers  # noqa: E402
from python_package import paragraphs  # noqa: E402
from support import library_path  # noqa: E402

PAGES = ROOT / "docs" / "reference" / "operators"
OPERATORS_PAGE = PAGES.with_name("operators.md")
CPP_PAGE = PAGES.with_name("cpp.md")
COMMAND_LINE_PAGE = PAGES.with_name("command-line.md")
CATALOGUE = PAGES.with_name("catalogue.json")
ERRORS = ROOT / "docs" / "accuracy"  # a figure for each activation
COMMAND = "make report"
REACH = 6.0  # the plots show -REACH..REACH
PRELU_WEIGHT = 0.25  # the default of torch.nn.PReLU

# PyTorch's operators that compose an activation for which it has no function or module.
COMPOSED = {
    "gelu_tanh": (
        'torch.nn.functional.gelu(x, approximate="tanh")',
        'torch.nn.GELU(approximate="tanh")(x)',
    ),
    "quick_gelu": ("x * torch.sigmoid(1.702 * x)",),
    "squared_relu": ("torch.relu(x).square()",),
}

# The ends of ranges that depend on the parameters, and the parameters for which they hold.
ENDS = {
    "leaky_relu": ("-inf", "inf", "negative_slope > 0"),
    "hardtanh": ("min_val", "max_val", ""),
    "threshold": ("min(threshold, value)", "inf", ""),
    "elu": ("-scale * alpha", "inf", "alpha > 0 and scale > 0 and input_scale > 0"),
    "celu": ("-alpha", "inf", "alpha > 0"),
    "softplus": ("0", "inf", "beta > 0"),
}

TYPES = (
    "Shapes: any, with any strides; the result has the strides of PyTorch's elementwise operators.",
    "The dtypes are float32, float64, bfloat16 and float16. Any other dtype raises a "
    "`NotImplementedError`. [Other limits](../operators.md#what-is-not-possible).",
)


@dataclass(frozen=True)
class Operator:
    """The contents of a page and of its plot."""

    name: str
    schema: str
    call: Callable  # f
    at: str  # the parameters of the plot, the calls and the range, or ""
    python: list[str]
    cpp: list[str]
    pytorch: list[str]  # lines of Python with the same result
    in_pytorch: str  # the sentence before these lines
    other_range: str  # the sentence about other parameters, or ""
    limits: list[str]


# ---- Calls


def named(numbers: dict) -> list[str]:
    return [f"{name}={float(value)}" for name, value in numbers.items()]


def assigned(expressions) -> list[str]:
    return [f"y = {expression}" for expression in expressions]


def python_calls(act: Activation) -> list[str]:
    package = packaged(act.name)
    numbers = named({k: v for k, v in act.parameters.items() if k in package.passed})
    every = ", ".join(["x", *named(act.parameters)])
    return [
        "import fastact",
        "import torch",
        "",
        "x = torch.randn(4, 3)",
        *assigned(
            [
                f"torch.ops.fastact.{act.name}({every})",
                f"fastact.functional.{package.function}({', '.join(['x', *numbers])})",
                f"fastact.nn.{package.module}({', '.join(numbers)})(x)",
            ]
        ),
        f"torch.ops.fastact.{act.name}_({every})  # in place",
    ]


def cpp_calls(act: Activation) -> list[str]:
    numbers = [f"/*{name}=*/{float(value)}" for name, value in act.parameters.items()]
    arguments = ", ".join(["x", *numbers])
    return [
        "#include <fastact/fastact.h>",
        "",
        f"at::Tensor y = fastact::{act.name}({arguments});",
        f"fastact::{act.name}_({arguments});  // in place",
    ]


def pytorch_calls(act: Activation) -> tuple[str, list[str]]:
    """Returns a sentence, and PyTorch lines with the same result."""
    package = packaged(act.name)
    if not package.pytorch:
        if act.name not in COMPOSED:
            return "PyTorch has no equivalent.", []
        expressions = COMPOSED[act.name]
        by_argument = len(expressions) > 1
        sentence = "PyTorch has it under another name:" if by_argument else (
            "PyTorch has no function and no module of this name. Composed of its operators:"
        )  # fmt: skip
        return sentence, assigned(expressions)
    numbers = named({k: v for k, v in act.parameters.items() if k in package.passed})
    sentence = "The same in PyTorch:"
    if lacking := [f"`{name}`" for name in act.parameters if name not in package.passed]:
        sentence = f"The same in PyTorch, whose forms do not take {joined(lacking)}:"
    return sentence, assigned(
        [
            f"torch.nn.functional.{package.function}({', '.join(['x', *numbers])})",
            f"torch.nn.{package.module}({', '.join(numbers)})(x)",
        ]
    )


def packaged(name: str) -> python_package.Activation:
    """Returns the activation's names in fastact.functional and fastact.nn."""
    catalogue = python_package.catalogue(library_path().parents[1] / "catalogue.json")
    return next(act for act in catalogue if act.name == name)


def joined(words: list[str]) -> str:
    return " and ".join(words) if len(words) < 3 else ", ".join(words[:-1]) + " and " + words[-1]


# ---- Range and limits


def inputs() -> torch.Tensor:
    """Returns all bfloat16 numbers, including infinities, and a fine grid around zero."""
    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    numbers = patterns.view(torch.bfloat16).to(torch.float64)
    return torch.cat([numbers[~numbers.isnan()], torch.linspace(-10, 10, 200001).double()])


def number(value: float) -> str:
    """Returns five digits, without the sign of a zero."""
    return f"{value + 0.0:.5g}"


def ends(call: Callable) -> str:
    """Returns the range of the library's results in float64, such as "-1.7581 to inf"."""
    y = call(inputs())
    return f"{number(float(y.min()))} to {number(float(y.max()))}"


def other_range(act: Activation) -> str:
    if act.name not in ENDS:
        return ""
    low, high, condition = ENDS[act.name]
    where = f" for `{condition}`" if condition else ""
    return f"With other parameters they are from `{low}` to `{high}`{where}."


def refusals(name: str) -> list[str]:
    """Returns the library's error message for each parameter that the activation rejects."""
    found = {}
    for act in ACTIVATIONS:
        for parameters, error, _ in act.forbidden if act.name == name else ():
            call = f"{name}(x, {', '.join(named(parameters))})"
            text = error_of(lambda: act.packet()(torch.ones(1), **parameters), error)
            found[call] = f"`{call}` is a `{error.__name__}`: `{text}`"
    return list(found.values())


def error_of(call: Callable, error: type) -> str:
    try:
        call()
    except error as raised:
        return str(raised).splitlines()[0]
    raise AssertionError(f"expected a {error.__name__}, but got none")


def in_place(act: Activation) -> str:
    if act.takes_output:
        return (
            "The gradient comes from the result, in place or not. Where the result has been "
            "rounded to an end of the range, the gradient is 0."
        )
    if act.saves == "result" or act.in_place_saves_result:
        return "In place the gradient comes from the result, which determines it exactly."
    return (
        "FastAct computes the gradient from the input, not from the result: under autograd the "
        "in-place form keeps a copy of its input."
    )


def limits(act: Activation) -> list[str]:
    lines = [*TYPES]
    if act.parameters:
        names = joined([f"`{name}`" for name in act.parameters])
        one = len(act.parameters) == 1
        what = "is a number, not a tensor: it has" if one else "are numbers, not tensors: they have"
        lines.append(f"{names} {what} no gradient.")
        lines += refusals(act.name) or ["Any number is accepted as a parameter, NaN included."]
    if not act.has_is_result:  # otherwise the header states it
        lines.append(in_place(act))
    return lines


# ---- Operators


def operator(act: Activation) -> Operator:
    sentence, lines = pytorch_calls(act)
    return Operator(
        name=act.name,
        schema=str(act.packet().default._schema),
        call=act.op,
        at=", ".join(f"{name}={value:g}" for name, value in act.parameters.items()),
        python=python_calls(act),
        cpp=cpp_calls(act),
        pytorch=lines,
        in_pytorch=sentence,
        other_range=other_range(act),
        limits=limits(act),
    )


def prelu() -> Operator:
    packet = torch.ops.fastact.prelu
    weight = f"weight = torch.tensor([{PRELU_WEIGHT}])"
    wrong = {
        "a weight for 4 of 3 channels": torch.ones(4),
        "a weight of 2 dimensions": torch.ones(3, 1),
        "a weight of another dtype": torch.ones(3, dtype=torch.float64),
    }
    refused = []
    for what, value in wrong.items():
        text = error_of(lambda value=value: packet(torch.ones(2, 3), value), RuntimeError)
        refused.append(f"{what[0].upper()}{what[1:]} is a `RuntimeError`: `{text}`")
    return Operator(
        name="prelu",
        schema=str(packet.default._schema),
        call=lambda x: packet(x, torch.tensor([PRELU_WEIGHT], dtype=x.dtype)),
        at=f"weight={PRELU_WEIGHT}",
        python=[
            "import fastact",
            "import torch",
            "",
            "x = torch.randn(4, 3)",
            weight,
            *assigned(
                [
                    "torch.ops.fastact.prelu(x, weight)",
                    "fastact.functional.prelu(x, weight)",
                    f"fastact.nn.PReLU(init={PRELU_WEIGHT})(x)",
                ]
            ),
        ],
        cpp=[
            "#include <ATen/ATen.h>",
            "#include <fastact/fastact.h>",
            "",
            f"at::Tensor weight = at::full({{1}}, {PRELU_WEIGHT}, x.options());",
            "at::Tensor y = fastact::prelu(x, weight);",
        ],
        pytorch=assigned(
            [
                "torch.nn.functional.prelu(x, weight)",
                f"torch.nn.PReLU(init={PRELU_WEIGHT})(x)",
            ]
        ),
        in_pytorch="The same in PyTorch:",
        other_range="With a negative weight they are from `0` to `inf`.",
        limits=[
            *TYPES,
            "There is no in-place form and no `out=`, as in PyTorch.",
            "The weight contains one element, or one for each channel (`x.size(1)`; 1 where `x` "
            "has one dimension). It has the dtype and the device of `x`.",
            *refused,
            "PyTorch sums the weight's gradient over all elements that share a weight; the "
            "rounding of that sum is PyTorch's.",
        ],
    )


def operators() -> list[Operator]:
    return [*map(operator, OPERATORS), prelu()]


# ---- Pages


def accuracy_table(paragraph: str) -> list[str]:
    rows = [line.split() for line in paragraph.splitlines()[1:]]
    lines = [["ULP", "f", "f'", "f''", "f'''"], ["---"] + 4 * ["---:"], *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def escaped(text: str) -> str:
    """Returns a comment's prose as Markdown, with powers and products as they are written."""
    return re.sub(r"([*<>|])", r"\\\1", " ".join(text.split()))


def sentence(text: str) -> str:
    """Capitalises the text, unless it starts with a name such as torch.nn.Softshrink."""
    return text if re.match(r"\w+\.\w", text) else text[0].upper() + text[1:]


@dataclass
class Comment:
    """The comment of a formula's header, by the sections of a page."""

    definition: str
    takes: str
    special_values: str
    derivatives: list[str]
    accuracy: list[str]
    limits: list[str]
    source: str


def linked(text: str) -> str:
    """Returns the text escaped, with links to the headers that it mentions."""
    headers = {path.name: path.relative_to(ROOT) for path in (ROOT / "ops").rglob("*.h")}

    def link(match: re.Match) -> str:
        return f"[`{match[0]}`](../../../{headers[match[0]]})"

    return re.sub(r"\b[a-z_]+\.h\b", link, escaped(text))


def comment(name: str) -> Comment:
    definition, *rest = paragraphs(name)
    found = Comment(linked(definition), "", "", [], [], [], "")
    for part in rest:
        label, _, text = part.partition(": ")
        if part.startswith("Accuracy (ULP)"):
            found.accuracy += ["Error bounds with unit gradients. 0.5 means correctly rounded.", ""]
            found.accuracy += [*accuracy_table(part), ""]
        elif part.startswith("Terms cancel (float64)"):
            continue  # for the tests; the next paragraph contains it in words
        elif label == "Range":
            takes, _, special = linked(text).partition(". ")
            found.takes, found.special_values = takes.rstrip("."), special
        elif label.startswith("Source"):
            found.source = linked(sentence(text))
        elif re.match(r"(f'|df/d)", part):
            found.derivatives += [linked(part), ""]
        elif part.startswith("From the result"):
            found.limits.append(linked(part))
        else:
            found.accuracy += [linked(part), ""]
    return found


# The operators of an activation, by prefix and suffix of its name.
AROUND = (
    ("", ""), ("", "_"), ("", "_backward"), ("", "_double_backward"), ("", "_triple_backward"),
    ("fused_", ""), ("fused_", "_"), ("", "_and_mul"),
)  # fmt: skip


@cache
def declarations() -> list[cpp_reference.Declaration]:
    """Returns the functions of the library's fastact/fastact.h."""
    return cpp_reference.functions(headers()[0].read_text())


def headers() -> list[Path]:
    sources = ROOT / "registration" / "include" / "fastact"
    generated = library_path().parents[1] / "include" / "fastact" / "fastact.h"
    return [generated, sources / "optimize.h", sources / "override.h"]


def signatures(name: str) -> list[str]:
    """Returns the schemas of an activation's operators, the functions of the package, and those of
    C++."""
    schemas = []
    for before, after in AROUND:
        packet = getattr(torch.ops.fastact, f"{before}{name}{after}", None)
        schemas += [str(getattr(packet, o)._schema) for o in packet.overloads()] if packet else []
    python = python_signatures(name)
    pattern = cpp_reference.of_activation(name)
    cpp = [found.text for found in declarations() if pattern.fullmatch(found.name)]
    return [
        *("The operators, as `torch.ops.fastact.NAME`:", "", "```text", *schemas, "```", ""),
        *("In Python:", "", "```py", *python, "```", ""),
        *("In C++, in the namespace `fastact`:", "", "```cpp", *cpp, "```", ""),
    ]


def python_signatures(name: str) -> list[str]:
    """Returns the definitions of the package's function and of its module's constructor."""
    folder = library_path().parents[1] / "python" / "fastact"
    package = packaged(name) if name != "prelu" else None
    function, module = (package.function, package.module) if package else ("prelu", "PReLU")
    text = (folder / "functional.py").read_text()
    found = re.findall(rf"^def {function}_?\(.*?\) -> .*?(?=:$)", text, re.MULTILINE | re.DOTALL)
    lines = ["fastact.functional." + " ".join(line.removeprefix("def ").split()) for line in found]
    defined = re.search(rf"^class {module}\((.*?)\):", (folder / "nn.py").read_text(), re.MULTILINE)
    return [*lines, f"fastact.nn.{module}  # a subclass of {defined[1]}"]


def error_figure(name: str) -> list[str]:
    """Returns the figure of the error against x, if there is one."""
    found = [act for act in OPERATORS if act.name == name and (ERRORS / f"{act.id}.svg").exists()]
    return [
        line
        for act in found
        for line in (f"![{name}: the error of f and f' in ULP against x, FastAct and PyTorch]"
                     f"(../../accuracy/{act.id}.svg)", "")
    ]  # fmt: skip


def page(op: Operator) -> str:
    text = comment(op.name)
    header = python_package.header(op.name).relative_to(ROOT)
    at = f" with {joined([f'`{p}`' for p in op.at.split(', ')])}" if op.at else ""
    lines = [
        f"<!-- Written by `{COMMAND}` from {header} -->",
        f"# `{op.name}`",
        "",
        text.definition,
        "",
        f"`{op.schema}`",
        "",
        f"![{op.name}{at.replace('`', '')}: f and f' for x from {-REACH:g} to {REACH:g}; results "
        f"from {ends(op.call)}]({op.name}.svg)",
        "",
        "## Call",
        "",
        *("```python", *op.python, "```", ""),
        *("```cpp", *op.cpp, "```", ""),
        *(op.in_pytorch, ""),
    ]
    if op.pytorch:
        lines += ["```python", *op.pytorch, "```", ""]
    lines += ["## Signatures", "", *signatures(op.name)]
    results = f"Results{at} are from {ends(op.call)}."
    lines += ["## Range", "", " ".join(filter(None, (f"It takes {text.takes}.", results))), ""]
    if op.other_range:
        lines += [op.other_range, ""]
    if text.special_values:
        lines += ["## Special values", "", text.special_values, ""]
    if text.derivatives:
        lines += ["## Derivatives", "", *text.derivatives]
    lines += ["## Accuracy", "", *text.accuracy, *error_figure(op.name)]
    lines += ["## Limits", "", *(f"- {limit}" for limit in [*op.limits, *text.limits]), ""]
    if text.source:
        lines += ["## Source", "", text.source, ""]
    lines += [
        f"Code: [`{header}`](../../../{header}). "
        "[All operators](../operators.md), [speed](../../performance.md), "
        "[proof](../../accuracy.md).",
        "",
    ]
    return "\n".join(lines)


# ---- Plots

VALUE, SLOPE = figures.BLUE[0], figures.ORANGE[0]


def draw(op: Operator, path: Path) -> None:
    x = torch.linspace(-REACH, REACH, 481, dtype=torch.float64, requires_grad=True)
    y = op.call(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    x, y = x.detach(), y.detach()
    with figures.drawing() as pyplot:
        figure, axis = pyplot.subplots(figsize=(4.6, 3.2), layout="constrained")
        axis.axhline(0, color=figures.GREY[0], linewidth=0.8)
        axis.axvline(0, color=figures.GREY[0], linewidth=0.8)
        axis.plot(x, y, color=VALUE, label="f(x)")
        axis.plot(x, slope, "--", color=SLOPE, label="f'(x)")
        axis.set_ylim(max(-2.5, float(y.min()) - 0.5), 2.5)
        axis.set(xlabel="x", ylabel="f(x), f'(x)")
        at = f"({op.at})" if op.at else ""
        axis.set_title(f"{op.name}{at}\nresults from {ends(op.call)}")
        axis.legend(loc="upper left")
        figures.save(figure, path)


# The forms that ATen also has, by suffix and overload.
FORMS = (("", "default"), ("_", "default"), ("", "out"), ("_backward", "default"),
         ("_backward", "grad_input"))  # fmt: skip


def arguments(schema, derivative: bool) -> list[str]:
    """Returns names, defaults and the star before keywords, without arguments common to all
    derivatives."""
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
    """Returns the differences from ATen's schemas: missing operators, and a row for different
    arguments."""
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


# ---- Other pages


def cpp_page() -> str:
    return cpp_reference.page(headers(), [act.name for act in OPERATORS])


def command_line_page() -> str:
    """Returns the page of `python -m fastact`, from its parser."""
    parser = package_module("__main__").command_line()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    about, *_, codes = parser.description.strip().split("\n\n")
    lines = [f"<!-- Written by `{COMMAND}` -->", "# Command line", "", about, ""]
    for choice in commands._choices_actions:
        sub = commands.choices[choice.dest]
        options = [a for a in sub._actions if not isinstance(a, argparse._HelpAction)]
        lines += [f"## python -m fastact {choice.dest}", "", sentence(choice.help) + ".", ""]
        if options:
            rows = [
                f"| `{option_text(a)}` | {a.help % vars(a) if a.help else ''} |" for a in options
            ]
            lines += ["| option | meaning |", "|---|---|", *rows, ""]
    return "\n".join([*lines, "## Exit codes", "", codes.replace("Exit codes: ", ""), ""])


def option_text(action: argparse.Action) -> str:
    choices = "{" + ",".join(action.choices) + "}" if action.choices else ""
    value = action.metavar or choices or (action.dest.upper() if action.option_strings else "")
    return " ".join(filter(None, [*action.option_strings, value]))


def package_module(name: str):
    folder = str(library_path().parents[1] / "python")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(f"fastact.{name}")


def main(command_line: list[str]) -> int:
    folder = Path(command_line[0]) if command_line else PAGES
    torch.ops.load_library(str(library_path()))
    folder.mkdir(parents=True, exist_ok=True)
    every = operators()
    for op in every:
        (folder / f"{op.name}.md").write_text(page(op))
        draw(op, folder / f"{op.name}.svg")
    if not command_line:
        put_between_markers("aten", COMMAND, beside_aten(), OPERATORS_PAGE)
        CPP_PAGE.write_text(cpp_page())
        COMMAND_LINE_PAGE.write_text(command_line_page())
        CATALOGUE.write_text((library_path().parents[1] / "catalogue.json").read_text())
    print(f"written: {len(every)} pages to {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

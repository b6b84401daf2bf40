"""Writes the Python package: python/fastact/, and the modules generated from the catalogue.

    python scripts/codegen/python_package.py FOLDER --version 0.1.0 --catalogue build/catalogue.json

functional.py and nn.py contain the counterparts of torch.nn.functional and torch.nn, according to
the table PYTORCH. An activation that PyTorch lacks needs no row. The definition, special values and
accuracy in the docstrings come from the formula's header. Needs only Python. CMake calls this
script.
"""

import argparse
import json
import re
import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path

import python_glu_rrelu
from python_rows import FUNCTIONS, MODULES, row_functions, row_modules

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "python" / "fastact"
OPS = ROOT / "ops"
DIGESTS = ROOT / "prove" / "digests.json"
WIDTH = 100


@dataclass(frozen=True)
class Pytorch:
    """PyTorch's names of an activation, where they do not follow from FastAct's name."""

    module: str  # in torch.nn
    function: str = ""  # in torch.nn.functional, if its name differs from the operator's
    takes_inplace: bool = True
    parameters: tuple[str, ...] | None = None  # if the function has fewer than the operator


PYTORCH = {
    "relu": Pytorch("ReLU"),
    "selu": Pytorch("SELU"),
    "leaky_relu": Pytorch("LeakyReLU"),
    "relu6": Pytorch("ReLU6"),
    "hardtanh": Pytorch("Hardtanh"),
    "threshold": Pytorch("Threshold"),
    "hardswish": Pytorch("Hardswish"),
    "hardsigmoid": Pytorch("Hardsigmoid"),
    "softsign": Pytorch("Softsign", takes_inplace=False),
    "softshrink": Pytorch("Softshrink", takes_inplace=False),
    "hardshrink": Pytorch("Hardshrink", takes_inplace=False),
    "elu": Pytorch("ELU", parameters=("alpha",)),
    "celu": Pytorch("CELU"),
    "sigmoid": Pytorch("Sigmoid", takes_inplace=False),
    "tanh": Pytorch("Tanh", takes_inplace=False),
    "silu": Pytorch("SiLU"),
    "gelu": Pytorch("GELU", takes_inplace=False),
    "mish": Pytorch("Mish"),
    "softplus": Pytorch("Softplus", takes_inplace=False),
    "log_sigmoid": Pytorch("LogSigmoid", function="logsigmoid", takes_inplace=False),
    "tanhshrink": Pytorch("Tanhshrink", takes_inplace=False),
}
# The spelling of an operator's words in the name of its module.
WORDS = {"relu": "ReLU", "gelu": "GELU", "elu": "ELU", "selu": "SELU", "silu": "SiLU"}

ERRORS = """\
NotImplementedError: the tensor is not dense, or not float32, float64, bfloat16 or float16.
RuntimeError: as in PyTorch, such as for an in-place call on a leaf that requires a gradient."""
PARAMETER_ERRORS = """
RuntimeError, ValueError: a parameter is invalid; PyTorch raises the same class."""


@dataclass(frozen=True)
class Parameter:
    name: str
    default: float | None

    @property
    def declaration(self) -> str:
        return f"{self.name}: float" + (f" = {self.default}" if self.default is not None else "")


class Activation:
    """An operator of the catalogue, with its Python names."""

    def __init__(self, name: str, parameters: list[Parameter]):
        self.name = name
        self.pytorch = PYTORCH.get(name)
        self.function = (self.pytorch and self.pytorch.function) or name
        words = name.split("_")
        own_name = "".join(WORDS.get(word, word.capitalize()) for word in words)
        self.module = self.pytorch.module if self.pytorch else own_name
        self.takes_inplace = self.pytorch is None or self.pytorch.takes_inplace
        shown = self.pytorch and self.pytorch.parameters
        self.parameters = [p for p in parameters if shown is None or p.name in shown]

    @property
    def passed(self) -> list[str]:
        return [p.name for p in self.parameters]

    @property
    def declarations(self) -> list[str]:
        return [p.declaration for p in self.parameters]


def catalogue(file: Path) -> list[Activation]:
    """Returns the activations of a build, from its catalogue.json."""
    return [
        Activation(entry["name"], [Parameter(**parameter) for parameter in entry["parameters"]])
        for entry in json.loads(file.read_text())["activations"]
    ]


# ---- Docstrings


def header(name: str) -> Path:
    """Returns the header that defines an activation or a form of several tensors."""
    paths = (OPS / folder / f"{name}.h" for folder in ("activations", "forms"))
    return next(path for path in paths if path.exists())


def paragraphs(name: str) -> list[str]:
    """Returns the paragraphs of the comment at the top of a formula's header."""
    comment = header(name).read_text().split("#pragma once")[0]
    text = "\n".join(line.removeprefix("//").removeprefix(" ") for line in comment.splitlines())
    return [part.strip("\n") for part in text.split("\n\n") if part.strip()]


def accuracy(paragraph: str) -> str:
    """Returns one sentence with the bounds of f, and one with the bounds of f'."""
    rows = [line.split() for line in paragraph.splitlines()[1:]]
    value = ", ".join(f"{dtype} {bounds[0]}" for dtype, *bounds in rows)
    slope = ", ".join(f"{dtype} {bounds[1]}" for dtype, *bounds in rows)
    return f"{value}. Of the derivative: {slope}. 0.5 is correctly rounded."


def docstring(name: str, like: str, errors: str, has_defaults: bool = False) -> str:
    definition, *rest = paragraphs(name)
    labelled = {
        "Shape": "any, with any strides; the result's strides are those of elementwise operators.",
        "Types": "float32, float64, bfloat16, float16; CPU and CUDA; differentiable to any order.",
    }
    bounds = ""
    for part in rest:
        if part.startswith("Accuracy (ULP)"):
            bounds = accuracy(part)
        elif part.startswith("Range: "):
            labelled["Special values"] = part.removeprefix("Range: ")
        elif part.startswith("Correctly rounded"):
            bounds = part
    defaults = ", with the default parameters" if has_defaults else ""
    labelled[f"Largest error in ULP{defaults}"] = bounds
    lines = [wrapped('"""' + definition), "", wrapped(like), ""]
    for label, text in labelled.items():
        lines += [f"{label}:", wrapped(text, "    ")]
    lines += ["Raises:", *(wrapped(error, "    ", "        ") for error in errors.splitlines())]
    return textwrap.indent("\n".join([*lines, '"""']), "    ")


def wrapped(text: str, first: str = "", others: str | None = None) -> str:
    """Returns a wrapped paragraph of a docstring."""
    return textwrap.fill(
        " ".join(text.split()),
        WIDTH - 4,
        initial_indent=first,
        subsequent_indent=first if others is None else others,
        break_on_hyphens=False,
    )


def docstring_of(act: Activation, like: str) -> str:
    errors = ERRORS + (PARAMETER_ERRORS if act.parameters else "")
    return docstring(act.name, like, errors, any(p.default is not None for p in act.parameters))


# ---- functional.py


def define(name: str, *parameters: str, result: str = "Tensor", indent: str = "") -> str:
    """Returns a definition, on one line or on three."""
    declared = ", ".join(parameters)
    line = f"{indent}def {name}({declared}) -> {result}:"
    if len(line) <= WIDTH:
        return line
    return f"{indent}def {name}(\n{indent}    {declared}\n{indent}) -> {result}:"


def function(act: Activation, every: list[str]) -> str:
    torch_name = f"torch.nn.functional.{act.function}"
    like = f"Like {torch_name}." if act.pytorch else "PyTorch has no function of this name."
    text = docstring_of(act, like)
    call = ", ".join(["input", *act.passed])
    declared = ["input: Tensor", *act.declarations]
    lines = [f"_{act.name} = torch.ops.fastact.{act.name}"]
    if act.name == "gelu" and "gelu_tanh" in every:  # not in a build of only some activations
        return "\n".join([*lines, "", "", GELU.replace("DOCSTRING", text), ""])
    if not act.takes_inplace:
        lines += ["", "", define(act.function, *declared), text]
        return "\n".join([*lines, f"    return _{act.name}({call})", ""])
    lines += [
        f"_{act.name}_ = torch.ops.fastact.{act.name}_",
        "",
        "",
        define(act.function, *declared, "inplace: bool = False"),
        text,
        "    if inplace:",
        f"        return _{act.name}_({call})",
        f"    return _{act.name}({call})",
        "",
        "",
        define(f"{act.function}_", *declared),
        f'    """{act.function}() in place: writes the result to `input` and returns `input`."""',
        f"    return _{act.name}_({call})",
        "",
    ]
    return "\n".join(lines)


# PyTorch's parameter is keyword-only. TorchScript does not support that with a default.
GELU = """\
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
DOCSTRING
    if approximate == "none":
        return _gelu(input)
    if approximate == "tanh":
        return _gelu_tanh(input)
    raise RuntimeError(
        f"fastact::gelu: expected approximate to be 'none' or 'tanh', but got '{approximate}'"
    )"""

PRELU_ERRORS = (
    ERRORS + "\nRuntimeError: weight has another type or device, or not 1 element or 1 per channel."
)


def prelu_function() -> str:
    text = docstring("prelu", "Like torch.nn.functional.prelu.", PRELU_ERRORS)
    return f"""_prelu = torch.ops.fastact.prelu


def prelu(input: Tensor, weight: Tensor) -> Tensor:
{text}
    return _prelu(input, weight)
"""


HEADER = '"""{0}"""\n\n# Written by scripts/codegen/python_package.py from the catalogue.\n'


def functional(acts: list[Activation], has_rows: bool) -> str:
    names = [act.name for act in acts]
    other_names, other_texts = python_glu_rrelu.functions(names)
    every = [act.function for act in acts] + ["prelu", *other_names]
    every += FUNCTIONS if has_rows else []
    every += [f"{act.function}_" for act in acts if act.takes_inplace]
    parts = [
        HEADER.format("The activations as functions, with torch.nn.functional's signatures."),
        "import torch\nfrom torch import Tensor\n"
        "from torch.nn import _reduction as _Reduction\n"
        "from torch.nn.functional import _get_softmax_dim, _verify_batch_size, "
        "_verify_spatial_size\n",
        "__all__ = [\n" + "".join(f'    "{name}",\n' for name in sorted(every)) + "]\n",
        *(function(act, names) + "\n" for act in acts),
        prelu_function() + "\n",
        "\n\n".join([*(row_functions() if has_rows else []), *other_texts]),
    ]
    return "\n".join(parts)


# ---- nn.py


def own_members(act: Activation) -> list[str]:
    """Returns the members of a module of torch.nn besides forward(): constructor, constants,
    extra_repr()."""
    declared = ["self", *act.declarations, "inplace: bool = False"]
    shown = [f"{name}={{self.{name}}}" for name in act.passed]
    separator = ", " if shown else ""
    return [
        f"    __constants__ = {json.dumps([*act.passed, 'inplace'])}",
        *(f"    {name}: float" for name in act.passed),
        "    inplace: bool",
        "",
        define("__init__", *declared, result="None", indent="    "),
        "        super().__init__()",
        *(f"        self.{name} = {name}" for name in [*act.passed, "inplace"]),
        "",
        "    def extra_repr(self) -> str:",
        f'        inplace = "{separator}inplace=True" if self.inplace else ""',
        f'        return f"{", ".join(shown)}{{inplace}}"' if shown else "        return inplace",
        "",
    ]


def module(act: Activation) -> str:
    if act.pytorch:
        base, like = f"torch.nn.{act.module}", f"Replaces torch.nn.{act.module}."
    else:
        base, like = "torch.nn.Module", "PyTorch has no module of this name."
    # TorchScript does not convert an integer, as in Softplus(1), to a float.
    arguments = ["input", *(f"float(self.{name})" for name in act.passed)]
    if act.takes_inplace:
        arguments.append("self.inplace")
    if act.name == "gelu":
        arguments.append("approximate=self.approximate")
    return "\n".join(
        [
            f"class {act.module}({base}):",
            docstring_of(act, like),
            "",
            *([] if act.pytorch else own_members(act)),
            "    def forward(self, input: Tensor) -> Tensor:",
            f"        return functional.{act.function}({', '.join(arguments)})",
            "",
        ]
    )


def prelu_module() -> str:
    return f"""class PReLU(torch.nn.PReLU):
{docstring("prelu", "Replaces torch.nn.PReLU.", PRELU_ERRORS)}

    def forward(self, input: Tensor) -> Tensor:
        return functional.prelu(input, self.weight)
"""


NN = """The activations as modules, which replace those of torch.nn.

If PyTorch has the module, FastAct's is a subclass of it: constructor, repr, parameters and
state_dict are the same, and isinstance(module, torch.nn.SELU) is true."""


def nn(acts: list[Activation], has_rows: bool) -> str:
    other_names, other_texts = python_glu_rrelu.modules([act.name for act in acts])
    if has_rows:
        other_names, other_texts = [*MODULES, *other_names], [*row_modules(), *other_texts]
    parts = [
        HEADER.format(NN + "\n"),
        "import torch\nfrom torch import Tensor\n\nfrom fastact import functional\n",
        "__all__ = [\n"
        + "".join(
            f'    "{name}",\n'
            for name in sorted([*(a.module for a in acts), "PReLU", *other_names])
        )
        + "]\n\n",
        *(module(act) + "\n" for act in acts),
        prelu_module() + "\n",
        "\n\n".join(other_texts),
    ]
    return "\n".join(parts)


# ---- The whole package


def build(version: str, revision: str, cuda: str | None, acts: list[Activation]) -> str:
    return (
        '"""The build of the library."""\n\n# Written by scripts/codegen/python_package.py.\n'
        f'\nVERSION = "{version}"\nREVISION = "{revision}"\n'
        "#: The operators' names.\nACTIVATIONS = (\n"
        + "".join(f'    "{act.name}",\n' for act in acts)
        + f")\nCUDA: str | None = {json.dumps(cuda) if cuda else None}\n"
    )


def recorded_digests(names: list[str]) -> str:
    """Returns the digests of prove/digests.json that `python -m fastact verify` compares: a part of
    every space, for fixed parameters. Random parameters would need the oracle table."""
    rows = []
    for id, dtypes in json.loads(DIGESTS.read_text()).items():
        name = id.split("-")[0]
        is_of_rows = "-length=" in id
        if id.endswith("-drawn") or not (is_of_rows or name in [*names, "prelu"]):
            continue
        parameters = re.findall(r"-([a-z_]+)=(.+?)(?=-[a-z_]+=|$)", id)
        digests = {
            dtype: {form: entry["part"] for form, entry in forms.items()}
            for dtype, forms in dtypes.items()
        }
        numbers = {parameter: float(value) for parameter, value in parameters}
        rows.append({"id": id, "name": name, "parameters": numbers, "digests": digests})
    return json.dumps(rows, separators=(",", ":"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--revision", default="unknown")
    parser.add_argument("--cuda", help="the CUDA version that the kernels were compiled with")
    parser.add_argument("--catalogue", type=Path, required=True, help="catalogue.json of the build")
    options = parser.parse_args()
    acts = catalogue(options.catalogue)
    has_rows = json.loads(options.catalogue.read_text())["has_rows"]
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCES, options.folder, dirs_exist_ok=True, ignore=ignored)
    written = {
        "functional.py": functional(acts, has_rows),
        "nn.py": nn(acts, has_rows),
        "_build.py": build(options.version, options.revision, options.cuda, acts),
        "_digests/recorded.json": recorded_digests([act.name for act in acts]),
    }
    for name, text in written.items():
        (options.folder / name).write_text(text)


if __name__ == "__main__":
    main()

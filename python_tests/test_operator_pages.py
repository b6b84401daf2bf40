"""docs/reference/: the calls on the pages run, stated ranges and limits are right, and generated
pages are current."""

import ast
import math
import re
import sys
from xml.etree import ElementTree

import pytest
import torch

import figures
from op_table import ACTIVATIONS, FORMULAS, OPERATORS
from oracle import LongDouble, wide
from support import REPOSITORY, assert_same_bits, library_path

pytestmark = pytest.mark.kernels

sys.path.append(str(REPOSITORY / "scripts" / "codegen"))

import cpp_reference  # noqa: E402
import operator_pages  # noqa: E402

import fastact  # noqa: E402  isort: skip

# test_contributing.py tests that every activation has a page.
NAMES = sorted(path.stem for path in operator_pages.PAGES.glob("*.md"))
names = pytest.mark.parametrize("name", NAMES)
by_operator = pytest.mark.parametrize(
    "act", [act for act in OPERATORS if act.name in NAMES], ids=lambda act: act.name
)
SVG = "{http://www.w3.org/2000/svg}"


def text_of(name):
    return (operator_pages.PAGES / f"{name}.md").read_text()


def blocks(name, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(name), re.DOTALL | re.MULTILINE)


def results(block, variables):
    """Runs a block, and returns the values that it assigns to y."""
    found = []
    for statement in ast.parse(block).body:
        exec(compile(ast.Module([statement], []), "page", "exec"), variables)
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "y":
            found.append(variables["y"])
    return found


@names
def test_python_calls_run_and_agree(name):
    ours, *pytorch = blocks(name, "python")
    lines, in_place = ours.splitlines(), f"torch.ops.fastact.{name}_("
    assert (in_place in lines[-1]) == (name != "prelu")
    variables = {}
    first, *others = results("\n".join(lines if name == "prelu" else lines[:-1]), variables)
    assert len(others) == 2
    for other in others:
        assert_same_bits(other, first)
    assert bool(pytorch) == (name in operator_pages.COMPOSED or "same in PyTorch" in text_of(name))
    for block in pytorch:
        for theirs in results(block, variables):
            torch.testing.assert_close(theirs, first)
    if name != "prelu":
        exec(lines[-1], variables)
        assert_same_bits(variables["x"], first)


@names
def test_cpp_calls_are_there(name):
    """cpp_tests/registration/api_test.cpp compiles and runs the calls."""
    calls, declared = blocks(name, "cpp")
    assert f"at::Tensor y = fastact::{name}(x" in calls
    assert f"at::Tensor {name}(" in " ".join(declared.split())


@names
def test_signatures_are_those_of_the_library(name):
    (schemas, *_) = blocks(name, "text")
    assert str(getattr(torch.ops.fastact, name).default._schema) in schemas
    for line in schemas.splitlines():
        operator, _, overload = line.removeprefix("fastact::").partition("(")[0].partition(".")
        packet = getattr(torch.ops.fastact, operator)
        assert line == str(getattr(packet, overload or "default")._schema)
    assert ("_backward" in schemas) == (name != "prelu")
    (python,) = blocks(name, "py")
    function, module = re.findall(r"fastact\.functional\.(\w+)\(", python), "fastact.nn."
    assert function and module in python
    assert all(hasattr(fastact.functional, found) for found in function)


# ---- The other generated pages


def test_the_cpp_page_is_current():
    assert operator_pages.CPP_PAGE.read_text() == operator_pages.cpp_page()


def test_a_declaration_has_its_comment():
    header = """
        namespace fastact {
        // Returns one.
        FASTACT_API int one(double x = 1.0);
        // A pair.
        //
        // Of numbers.
        struct Pair { int first = 1; };
        }
    """
    scope = cpp_reference.parsed(header)
    assert cpp_reference.functions(header) == [
        cpp_reference.Declaration("one", "int one(double x = 1.0);", "Returns one.")
    ]
    assert cpp_reference.class_text(scope.classes[0]) == "struct Pair {\n  int first = 1;\n};"
    assert cpp_reference.prose(scope.classes[0].class_decl.doxygen) == "A pair.\n\nOf numbers."


def test_the_page_of_the_command_line_is_current():
    text = operator_pages.COMMAND_LINE_PAGE.read_text()
    assert text == operator_pages.command_line_page()
    assert "| `--seconds SECONDS` | total time (default: 60) |" in text


def test_the_catalogue_of_the_site_is_current():
    built = library_path().parents[1] / "catalogue.json"
    assert operator_pages.CATALOGUE.read_text() == built.read_text()


def sources(*patterns):
    return "".join(
        path.read_text()
        for pattern in patterns
        for path in REPOSITORY.glob(pattern)
        if "build" not in path.relative_to(REPOSITORY).parts
    )


def listed(page):
    """Returns the names in the first column of the page's tables."""
    text = operator_pages.PAGES.with_name(page).read_text()
    return set(re.findall(r"^\| `(FASTACT_\w+)`", text, re.MULTILINE))


def test_every_environment_variable_is_listed():
    code = sources("ops/**/*.cpp", "registration/**/*.cpp", "python_tests/support.py")
    read = set(re.findall(r'getenv\("(FASTACT_\w+)"\)|environ\.get\("(FASTACT_LIBRARY)"', code))
    assert {name for pair in read for name in pair if name} == listed("environment.md")


def test_every_build_option_is_listed():
    code = sources("CMakeLists.txt", "cmake/*.cmake", "ops/CMakeLists.txt")
    kinds = "BOOL|STRING|PATH|FILEPATH"
    found = re.findall(rf"option\((FASTACT_\w+)|set\((FASTACT_\w+)[^)]*?CACHE (?:{kinds})\b", code)
    declared = {name for pair in found for name in pair if name}
    # FASTACT_ONLY is not declared: CMake reads it if it is set.
    assert declared | {"FASTACT_ONLY"} == listed("build-options.md")


def exact_ends(derivative):
    """Returns the minimum and the maximum, according to the oracle."""
    y = derivative(LongDouble, wide(operator_pages.inputs()), 0)
    return float(y.min()), float(y.max())


def said_of(ends):
    return " to ".join(map(operator_pages.number, ends))


@by_operator
def test_the_range_is_the_oracles(act):
    (said,) = re.findall(r"^It takes .* (?:are|is) from (.*)\.$", text_of(act.name), re.MULTILINE)
    assert said == said_of(exact_ends(act.derivative))


@pytest.mark.parametrize(
    "act", [act for act in ACTIVATIONS if act.name in NAMES and act.parameters], ids=lambda a: a.id
)
def test_the_range_with_other_parameters(act):
    if act.name not in operator_pages.ENDS:
        assert f"are from {said_of(exact_ends(act.derivative))}." in text_of(act.name)
        return
    low, high, condition = operator_pages.ENDS[act.name]
    known = {**act.parameters, "inf": math.inf, "min": min}
    if condition and not eval(condition, known):
        return
    # If no input reaches an end, such as a threshold, inputs next to it come close.
    for end, exact in zip((low, high), exact_ends(act.derivative)):
        assert math.isclose(float(eval(end, known)), exact, abs_tol=2e-4)
    assert operator_pages.other_range(act) in text_of(act.name)


@by_operator
def test_refused_parameters_are_all_listed(act):
    header = (FORMULAS / f"{act.name}.h").read_text()
    expected = re.findall(r'\.expected = "(.*?)"', header)
    accepted = "Any number is accepted as a parameter, NaN included." in text_of(act.name)
    assert accepted == (not expected and bool(act.parameters))
    for requirement in expected:
        assert f" to be {requirement}, but got " in text_of(act.name)
    for name in act.parameters if accepted else ():
        for value in (-math.inf, -1.0, 0.0, math.inf, math.nan):
            x = torch.ones(3, requires_grad=True)
            act.packet()(x, **{**act.parameters, name: value}).sum().backward()


@pytest.mark.parametrize("name", ("sigmoid", "tanh"))
def test_a_result_at_the_end_of_the_range_has_no_gradient(name):
    assert "rounded to an end of the range, the gradient is 0" in text_of(name)
    x = torch.tensor([20.0], requires_grad=True)
    y = getattr(torch.ops.fastact, name)(x)
    assert y.item() == 1 and torch.autograd.grad(y.sum(), x)[0].item() == 0


@names
def test_plots_have_labels_and_colours_for_a_dark_page(name):
    tree = ElementTree.parse(operator_pages.PAGES / f"{name}.svg").getroot()
    words = [element.text for element in tree.iter(f"{SVG}text")]
    (said,) = re.findall(r"^It takes .* (?:are|is) from (.*)\.$", text_of(name), re.MULTILINE)
    assert {"x", "f(x), f'(x)", "f(x)", "f'(x)", f"results from {said}"} <= set(words)
    figures.check_colours(operator_pages.PAGES / f"{name}.svg")

"""The pages show examples and exercises as they are, and their links lead somewhere."""

import re
import sys

import pytest

from op_table import OPERATORS
from support import REPOSITORY

pytestmark = pytest.mark.kernels

sys.path += [str(REPOSITORY / "scripts" / folder) for folder in ("checks", "codegen")]

import exercises  # noqa: E402
import operator_pages  # noqa: E402
import scratch_tree  # noqa: E402

SHOWN = (
    ("docs/guides/cpp.md", "load_cpp/CMakeLists.txt"),
    ("docs/guides/cpp.md", "load_cpp/main.cpp"),
    ("docs/guides/aotinductor.md", "aot_inductor/export.py"),
    ("docs/guides/aotinductor.md", "aot_inductor/main.cpp"),
    ("docs/guides/aotinductor.md", "aot_inductor/CMakeLists.txt"),
    ("docs/guides/torchscript.md", "load_torchscript/save.py"),
    ("docs/guides/torchscript.md", "load_torchscript/main.cpp"),
)
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "docs").rglob("*.md")),
)


def blocks(page):
    """The contents of a page's code blocks."""
    text = (REPOSITORY / page).read_text()
    return re.findall(r"^```\w+\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_every_activation_has_the_page_of_its_header():
    written = {path.stem for path in operator_pages.PAGES.glob("*.md")}
    assert written == {act.name for act in OPERATORS} | {"prelu"}
    for operator in operator_pages.operators():
        path = operator_pages.PAGES / f"{operator.name}.md"
        assert path.read_text() == operator_pages.page(operator), f"run {operator_pages.COMMAND}"
        assert path.with_suffix(".svg").is_file()


@pytest.mark.parametrize("page, file", SHOWN)
def test_a_page_shows_the_example_as_it_is(page, file):
    assert (REPOSITORY / "examples" / file).read_text() in blocks(page)


def test_examples_that_need_the_package_are_marked():
    examples = REPOSITORY / "examples"
    rows = re.findall(
        r"^\| `(\w+)` \|.*\| ([a-z, ]+) \|[^|]*\|$",
        (examples / "README.md").read_text(),
        re.MULTILINE,
    )
    assert sorted(folder for folder, _ in rows) == sorted(
        path.name for path in examples.iterdir() if path.is_dir() and path.name != "__pycache__"
    )
    for folder, needs in rows:
        sources = [path.read_text() for path in (examples / folder).glob("*.py")]
        imports = any(re.search(r"^import fastact$", text, re.MULTILINE) for text in sources)
        assert ("package" in needs.split(", ")) == imports, folder


def test_contributing_shows_parts_of_the_exercises():
    files = [path.read_text() for path in exercises.EXERCISES.rglob("*.*") if path.is_file()]
    shown = re.findall(
        r"^ *```cpp\n(.*?)^ *```$",
        (REPOSITORY / "CONTRIBUTING.md").read_text(),
        re.DOTALL | re.MULTILINE,
    )
    assert len(shown) == 4
    for block in shown:
        # The blocks belong to items of a list, so each line is indented by three more spaces.
        text = "".join(line.removeprefix("   ") for line in block.splitlines(keepends=True))
        assert any(text in file for file in files), text


def test_contributing_is_short():
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    assert text.count("\n") <= 150 and len(text.split()) <= 1500


def test_the_exercises_fit_the_tree(tmp_path):
    """`make exercises` also builds the copy and runs the tests of the additions."""
    tree = scratch_tree.ScratchTree(tmp_path, jobs=1)
    exercises.perform(tree.path, "add_activation", exercises.add_activation)
    exercises.perform(tree.path, "add_form", exercises.add_form)
    catalogue = (tree.path / exercises.CATALOGUE).read_text()
    for line in ("  X(bent_identity, BentIdentity)\n", "  X(activation_sum, ActivationSumForms)\n"):
        assert catalogue.count(f" \\\n{line}") == 1
    table = (tree.path / exercises.TABLE).read_text()
    compile(table, exercises.TABLE, "exec")
    assert table.count('name="bent_identity"') == 1
    with pytest.raises(scratch_tree.Failure, match="exists: choose another example"):
        exercises.add_form(tree.path, "add_form")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    here = (REPOSITORY / page).parent
    code = r"^```\w*\n.*?^```$"  # in which f[i](x) is no link
    text = re.sub(code, "", (REPOSITORY / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        path = here / file if file else REPOSITORY / page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            names = [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings]
            assert anchor in names, target

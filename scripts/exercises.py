"""Does the exercises of CONTRIBUTING.md in a copy of the tree, and runs the tests of the additions.

    python scripts/exercises.py [--work DIR] [--jobs N] [--select EXPRESSION] [--cuda ARCHITECTURES]

The exercises are "Add an activation" and "Add a form". The text of the page's code blocks is added
to the files that the page names, and to no others. The copy is built with this Python's torch, for
the CPU and with --cuda for GPUs, without most of the other activations, as a part of the C++
programs of cpp_tests/consumers: the way of docs/cpp.md, "By FetchContent". The programs run, and
pytest runs every test of the new operator and the tests of the new form.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from scratch_tree import ROOT, Failure, ScratchTree, replaced

# The code blocks under each heading that names a file: {file: [block, ...]}.
Blocks = dict[str, list[str]]

FORM = "activation_sum"
FORM_TESTS = f"python_tests/test_{FORM}.py"
FORM_FILES = [
    f"ops/forms/{FORM}.h",
    "ops/catalogue.h",
    f"registration/operators/{FORM}.cpp",
    FORM_TESTS,
]
# Stops at the first failure, which is enough to know that the page is wrong.
PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-W", "ignore")


def blocks_of(section: str) -> Blocks:
    """Returns the code blocks of the section with this title."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    text = re.search(rf"^## {section}\n((?:(?!^## ).*\n)*)", page, re.MULTILINE)
    if text is None:
        raise Failure(f"expected CONTRIBUTING.md to have a section '{section}', but it has none.")
    found: Blocks = {}
    for heading, body in re.findall(r"^### \d\. (.*)\n((?:(?!^###).*\n)*)", text[1], re.MULTILINE):
        file = re.search(r"`(.+)`", heading)
        if file:
            found[file[1]] = re.findall(r"^```\w+\n(.*?)^```", body, re.DOTALL | re.MULTILINE)
    return found


def escaped(text: str) -> str:
    return text.replace("\\", r"\\")


def add_file(tree: Path, file: str, text: str) -> None:
    if (tree / file).exists():
        raise Failure(f"{file} exists: CONTRIBUTING.md needs another example.")
    (tree / file).write_text(text)


def add_to_list(tree: Path, name: str, line: str) -> None:
    """Adds the page's line to a list of the catalogue. The list is a macro, so its last line gets a
    backslash."""
    replaced(
        tree / "ops/catalogue.h",
        rf"^(#define {name}\(X\)(?:.*\\\n)*.*[^\\\n])$",
        r"\1 \\" + "\n" + escaped(line.rstrip()),
    )


def add_activation(tree: Path, blocks: Blocks) -> None:
    formula = formula_of(blocks)
    expected = [formula, "ops/catalogue.h", "python_tests/op_table.py"]
    if list(blocks) != expected or [len(b) for b in blocks.values()] != [1, 1, 2]:
        raise Failure(
            f"expected blocks for a formula, the catalogue and the table, but got {list(blocks)}."
        )
    add_file(tree, formula, blocks[formula][0])
    add_to_list(tree, "FASTACT_ACTIVATIONS", blocks["ops/catalogue.h"][0])

    mathematics, row = blocks["python_tests/op_table.py"]
    table = tree / "python_tests/op_table.py"
    replaced(table, r"^ACTIVATIONS = \($", escaped(mathematics) + "\n\n" + r"\g<0>")
    replaced(table, r"^(ACTIVATIONS = \((?:\n(?!\)).*)*\n)\)$", r"\1" + escaped(row) + ")")


def formula_of(blocks: Blocks) -> str:
    return next((file for file in blocks if file.startswith("ops/activations/")), "")


def add_form(tree: Path, blocks: Blocks) -> None:
    if list(blocks) != FORM_FILES or any(len(found) != 1 for found in blocks.values()):
        raise Failure(f"expected a block for each of {FORM_FILES}, but got {list(blocks)}.")
    for file, (text,) in blocks.items():
        if file == "ops/catalogue.h":
            add_to_list(tree, "FASTACT_FORMS", text)
        else:
            add_file(tree, file, text)


def contents(tree: Path) -> dict[str, bytes]:
    return {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}


def perform(tree: Path, section: str, add) -> Blocks:
    """Does what the section says by add(tree, blocks), and checks that only the files it names have
    changed."""
    blocks = blocks_of(section)
    before = contents(tree)
    add(tree, blocks)
    after = contents(tree)
    changed = sorted(file for file in after if after[file] != before.get(file))
    if changed != sorted(blocks):
        raise Failure(f"expected {sorted(blocks)} to change, but got {changed}.")
    print(f"== {section}: {', '.join(blocks)}", flush=True)
    return blocks


def check(work: Path, jobs: int, select: str, cuda: str | None) -> None:
    start = time.monotonic()
    tree = ScratchTree(work, jobs)
    name = Path(formula_of(perform(tree.path, "Add an activation", add_activation))).stem
    perform(tree.path, "Add a form", add_form)
    fetched = tree.build_folder / "_deps" / "fastact-build"
    tree.library = fetched / "lib" / "libfastact.so"
    tree.configure(
        "-DCMAKE_BUILD_TYPE=Release",
        "-DFASTACT_WERROR=ON",
        "-DFASTACT_BUILD_PACKAGE=ON",
        f"-DFASTACT_ONLY=relu;selu;{name}",
        f"-DCONSUMER_FETCHES={tree.path}",
        *([f"-DCMAKE_CUDA_ARCHITECTURES={cuda}", "-DFASTACT_WITH_CUDA=ON"] if cuda else []),
        source="cpp_tests/consumers",
    )
    tree.build()
    for program in ("idle", "silent", "calls"):
        tree.step(f"run {program}", tree.build_folder / program)
    header = (fetched / "include/fastact/fastact.h").read_text()
    if f"at::Tensor {name}(const at::Tensor& self" not in header:
        raise Failure(f"expected fastact/fastact.h to declare {name}, but it does not.")
    tree.step(f"test {name}", *PYTEST, "python_tests", "-k", select.format(name=name))
    tree.step(f"test {FORM}", *PYTEST, FORM_TESTS)
    print(f"== {name} and {FORM} pass their tests; {time.monotonic() - start:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, help="an empty folder, kept; else a temporary one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument(
        "--select", default="{name}", help="pytest's -k; {name} stands for the operator's name"
    )
    parser.add_argument(
        "--cuda", metavar="ARCHITECTURES", help="GPU code, too, for these, as CMake names them"
    )
    chosen = parser.parse_args()
    try:
        if chosen.work is not None:
            check(chosen.work.resolve(), chosen.jobs, chosen.select, chosen.cuda)
        else:
            with tempfile.TemporaryDirectory(prefix="fastact-") as folder:
                check(Path(folder), chosen.jobs, chosen.select, chosen.cuda)
    except Failure as failure:
        print(f"exercises: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

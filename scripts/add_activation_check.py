"""Add an activation as CONTRIBUTING.md says, in a copy of the tree, and run its tests.

    python scripts/add_activation_check.py [--work DIR] [--jobs N] [--select EXPRESSION]

The text of the page's code blocks is what is added: to three files, no others. The copy is built
for the CPU with this Python's torch, without most of the other activations, and pytest runs every
test of the new operator.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from scratch_tree import ROOT, Failure, ScratchTree, replaced

# A failed test is enough to know that the page is wrong.
PYTEST = ("-m", "pytest", "python_tests", "-q", "-x", "-p", "no:cacheprovider", "-W", "ignore")


def sections(page: str) -> dict[str, list[str]]:
    """The code blocks under each heading of the page that names a file: {file: [block, ...]}."""
    found: dict[str, list[str]] = {}
    for heading, body in re.findall(r"^### \d\. (.*)\n((?:(?!^##).*\n)*)", page, re.MULTILINE):
        file = re.search(r"`(.+)`", heading)
        if file:
            found[file[1]] = re.findall(r"^```\w+\n(.*?)^```", body, re.DOTALL | re.MULTILINE)
    return found


def escaped(text: str) -> str:
    return text.replace("\\", r"\\")


def add_activation(tree: Path, page: str) -> tuple[str, list[str]]:
    """Does what the page says. Returns the operator's name and the files that it touched."""
    blocks = sections(page)
    formula = next((f for f in blocks if f.startswith("ops/activations/")), None)
    expected = [formula, "ops/catalogue.h", "python_tests/op_table.py"]
    if (
        formula is None
        or list(blocks) != expected
        or [len(b) for b in blocks.values()] != [1, 1, 2]
    ):
        raise Failure(
            f"expected blocks for a formula, the catalogue and the table, but got {list(blocks)}."
        )
    name = Path(formula).stem
    if (tree / formula).exists():
        raise Failure(f"{formula} exists: CONTRIBUTING.md needs another example.")
    (tree / formula).write_text(blocks[formula][0])

    # The list is one macro: its last line gets a backslash, and the new line follows.
    (line,) = blocks["ops/catalogue.h"]
    replaced(
        tree / "ops/catalogue.h",
        r"^(#define FASTACT_ACTIVATIONS\(X\) \\(?:\n.*\\)*\n.*)$",
        r"\1 \\" + "\n" + escaped(line.rstrip()),
    )

    mathematics, row = blocks["python_tests/op_table.py"]
    table = tree / "python_tests/op_table.py"
    replaced(table, r"^ACTIVATIONS = \($", escaped(mathematics) + "\n\n" + r"\g<0>")
    replaced(table, r"^(ACTIVATIONS = \((?:\n(?!\)).*)*\n)\)$", r"\1" + escaped(row) + ")")
    return name, expected


def contents(tree: Path) -> dict[str, bytes]:
    return {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}


def check(work: Path, jobs: int, select: str) -> None:
    start = time.monotonic()
    tree = ScratchTree(work, jobs)
    before = contents(tree.path)
    name, files = add_activation(tree.path, (ROOT / "CONTRIBUTING.md").read_text())
    after = contents(tree.path)
    changed = sorted(file for file in after if after[file] != before.get(file))
    if changed != sorted(files):
        raise Failure(f"expected {files} to change, but got {changed}.")
    print(f"== {name}: {', '.join(files)}", flush=True)

    tree.configure("-DFASTACT_WERROR=ON", f"-DFASTACT_ONLY=relu;selu;{name}")
    tree.build()
    header = (tree.build_folder / "include/fastact/fastact.h").read_text()
    if f"at::Tensor {name}(const at::Tensor& self" not in header:
        raise Failure(f"expected fastact/fastact.h to declare {name}, but it does not.")
    tree.step("test", sys.executable, *PYTEST, "-k", select.format(name=name))
    print(f"== {name} passes its tests; {time.monotonic() - start:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, help="an empty folder, kept; else a temporary one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument(
        "--select", default="{name}", help="pytest's -k; {name} stands for the operator's name"
    )
    options = parser.parse_args()
    try:
        if options.work is not None:
            check(options.work.resolve(), options.jobs, options.select)
        else:
            with tempfile.TemporaryDirectory(prefix="fastact-") as folder:
                check(Path(folder), options.jobs, options.select)
    except Failure as failure:
        print(f"add_activation_check: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

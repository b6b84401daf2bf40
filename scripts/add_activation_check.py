"""Add an activation as CONTRIBUTING.md says, in a copy of the tree, and run its tests.

    python scripts/add_activation_check.py [--work DIR] [--jobs N] [--select EXPRESSION]

The text of the page's code blocks is what is added: to three files, no others. The copy is built
for the CPU with this Python's torch, without most of the other activations, and pytest runs every
test of the new operator.
"""

import sys
import time
from pathlib import Path

from exercise import PYTEST, Blocks, add_file, add_to_list, escaped, parser, perform, run
from scratch_tree import Failure, replaced


def formula_of(blocks: Blocks) -> str:
    return next((file for file in blocks if file.startswith("ops/activations/")), "")


def add_activation(tree: Path, blocks: Blocks) -> None:
    """Does what the page says."""
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


def check(work: Path, jobs: int, select: str) -> None:
    start = time.monotonic()
    names = []

    def add(tree: Path, blocks: Blocks) -> None:
        names.append(Path(formula_of(blocks)).stem)
        add_activation(tree, blocks)

    tree = perform("Add an activation", add, work, jobs)
    (name,) = names
    tree.configure("-DFASTACT_WERROR=ON", f"-DFASTACT_ONLY=relu;selu;{name}")
    tree.build()
    header = (tree.build_folder / "include/fastact/fastact.h").read_text()
    if f"at::Tensor {name}(const at::Tensor& self" not in header:
        raise Failure(f"expected fastact/fastact.h to declare {name}, but it does not.")
    tree.step("test", *PYTEST, "python_tests", "-k", select.format(name=name))
    print(f"== {name} passes its tests; {time.monotonic() - start:.0f} s")


def main() -> int:
    options = parser(__doc__.splitlines()[0])
    options.add_argument(
        "--select", default="{name}", help="pytest's -k; {name} stands for the operator's name"
    )
    chosen = options.parse_args()
    return run(
        "add_activation_check",
        chosen.work,
        lambda work: check(work, chosen.jobs, chosen.select),
    )


if __name__ == "__main__":
    sys.exit(main())

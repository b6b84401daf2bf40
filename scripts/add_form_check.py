"""Add a form as CONTRIBUTING.md says, in a copy of the tree, and run its tests.

    python scripts/add_form_check.py [--work DIR] [--jobs N]

The text of the page's code blocks is what is added: to four files, no others. The copy is built
for the CPU with this Python's torch, without most of the activations, and pytest runs the file of
tests that the page adds.
"""

import sys
import time
from pathlib import Path

from exercise import PYTEST, Blocks, add_file, add_to_list, parser, perform, run
from scratch_tree import Failure

NAME = "activation_sum"
TESTS = f"python_tests/test_{NAME}.py"
FILES = [f"ops/forms/{NAME}.h", "ops/catalogue.h", f"registration/operators/{NAME}.cpp", TESTS]


def add_form(tree: Path, blocks: Blocks) -> None:
    """Does what the page says."""
    if list(blocks) != FILES or any(len(found) != 1 for found in blocks.values()):
        raise Failure(f"expected a block for each of {FILES}, but got {list(blocks)}.")
    for file, (text,) in blocks.items():
        if file == "ops/catalogue.h":
            add_to_list(tree, "FASTACT_FORMS", text)
        else:
            add_file(tree, file, text)


def check(work: Path, jobs: int) -> None:
    start = time.monotonic()
    tree = perform("Add a form", add_form, work, jobs)
    tree.configure("-DFASTACT_WERROR=ON", "-DFASTACT_ONLY=relu;selu")
    tree.build()
    tree.step("test", *PYTEST, TESTS)
    print(f"== {NAME} passes its tests; {time.monotonic() - start:.0f} s")


def main() -> int:
    chosen = parser(__doc__.splitlines()[0]).parse_args()
    return run("add_form_check", chosen.work, lambda work: check(work, chosen.jobs))


if __name__ == "__main__":
    sys.exit(main())

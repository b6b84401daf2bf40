"""Performs the exercises of CONTRIBUTING.md in a copy of the tree, and runs their tests.

    python scripts/checks/exercises.py [--work DIR] [--jobs N] [--select EXPRESSION] [--cuda LIST]

The exercises are "Add an activation" and "Add a form". scripts/checks/exercises/ has a folder for
each. The files in its subfolders are copied to the same paths in the tree. The other files are
inserted into existing files of the tree: a line of the catalogue, a function and a row of the test
table.

The copy is built with this Python's torch, for the CPU. The build contains the new operators and
two activations. It is a part of the build of the C++ programs in cpp_tests/consumers ("As a part of
your build" in docs/guides/cpp.md). Then the programs and the new operators' tests run. With --cuda,
the new operators' GPU kernels are compiled.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from scratch_tree import ROOT, Failure, ScratchTree, replaced

EXERCISES = ROOT / "scripts" / "checks" / "exercises"
ACTIVATION = "bent_identity"
FORM = "activation_sum"
CATALOGUE = "ops/catalogue.h"
TABLE = "python_tests/op_table.py"
# The files that each exercise adds to the tree, and those that it changes.
FILES = {
    "add_activation": [f"ops/activations/{ACTIVATION}.h", CATALOGUE, TABLE],
    "add_form": [
        f"ops/forms/{FORM}.h",
        CATALOGUE,
        f"registration/operators/{FORM}.cpp",
        f"python_tests/test_{FORM}.py",
    ],
}
# Stops at the first failure, which shows that the exercise does not work.
PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-W", "ignore")


def inserted(exercise: str, file: str) -> str:
    """Returns an exercise's text for an existing file, as the template of a regular expression."""
    return (EXERCISES / exercise / file).read_text().replace("\\", r"\\")


def copy_new_files(tree: Path, exercise: str) -> None:
    folder = EXERCISES / exercise
    for source in sorted(folder.glob("*/**/*")):
        if source.is_file() and "__pycache__" not in source.parts:
            target = tree / source.relative_to(folder)
            if target.exists():
                raise Failure(f"{source.relative_to(folder)} exists: choose another example.")
            target.write_bytes(source.read_bytes())


def add_to_list(tree: Path, exercise: str, name: str) -> None:
    """Adds the exercise's line to a list of the catalogue. The list is a macro, so its last line
    gets a backslash."""
    line = inserted(exercise, "catalogue_line.txt").rstrip()
    last = rf"^(#define {name}\(X\)(?:.*\\\n)*.*[^\\\n])$"
    replaced(tree / CATALOGUE, last, r"\1 \\" + "\n" + line)


def add_activation(tree: Path, exercise: str) -> None:
    copy_new_files(tree, exercise)
    add_to_list(tree, exercise, "FASTACT_ACTIVATIONS")
    function = inserted(exercise, "op_table_function.py")
    replaced(tree / TABLE, r"^ACTIVATIONS = \($", function + "\n\n" + r"\g<0>")
    row = inserted(exercise, "op_table_row.txt")
    replaced(tree / TABLE, r"^(ACTIVATIONS = \((?:\n(?!\)).*)*\n)\)$", r"\1" + row + ")")


def add_form(tree: Path, exercise: str) -> None:
    copy_new_files(tree, exercise)
    add_to_list(tree, exercise, "FASTACT_FORMS")


def contents(tree: Path) -> dict[str, bytes]:
    return {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}


def perform(tree: Path, exercise: str, add) -> None:
    """Calls add(tree, exercise), and checks that it changes exactly the files in FILES."""
    before = contents(tree)
    add(tree, exercise)
    after = contents(tree)
    changed = sorted(file for file in after if after[file] != before.get(file))
    if changed != sorted(FILES[exercise]):
        raise Failure(f"expected {sorted(FILES[exercise])} to change, but got {changed}.")
    print(f"== {exercise}: {', '.join(FILES[exercise])}", flush=True)


def compile_gpu_code(tree: ScratchTree, architectures: str) -> None:
    """Compiles the GPU kernels of the new operators."""
    tree.build_folder = tree.build_folder.with_name("cuda")
    tree.configure(
        "-DFASTACT_WITH_CUDA=ON",
        f"-DCMAKE_CUDA_ARCHITECTURES={architectures}",
        "-DFASTACT_WERROR=ON",
        f"-DFASTACT_ONLY={ACTIVATION}",
    )
    folder = "ops/CMakeFiles/fastact_ops.dir/generated"
    tree.build(*(f"{folder}/{name}_cuda.cu.o" for name in (ACTIVATION, FORM)))


def check(work: Path, jobs: int, select: str, cuda: str | None) -> None:
    start = time.monotonic()
    tree = ScratchTree(work, jobs)
    perform(tree.path, "add_activation", add_activation)
    perform(tree.path, "add_form", add_form)
    fetched = tree.build_folder / "_deps" / "fastact-build"
    tree.library = fetched / "lib" / "libfastact.so"
    tree.configure(
        "-DCMAKE_BUILD_TYPE=Release",
        # Optimizing the files that include torch's headers would take a third of the time. The
        # kernels' own options include -O3, which overrides this.
        "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG",
        "-DFASTACT_WERROR=ON",
        "-DFASTACT_BUILD_PACKAGE=ON",
        f"-DFASTACT_ONLY=relu;selu;{ACTIVATION}",
        # The tests call one instruction set's kernels.
        "-DFASTACT_CPU_ISAS=avx2",
        f"-DCONSUMER_FETCHES={tree.path}",
        source="cpp_tests/consumers",
    )
    tree.build()
    for program in ("idle", "silent", "calls"):
        tree.step(f"run {program}", tree.build_folder / program)
    header = (fetched / "include/fastact/fastact.h").read_text()
    if f"at::Tensor {ACTIVATION}(const at::Tensor& self" not in header:
        raise Failure(f"expected fastact/fastact.h to declare {ACTIVATION}, but it does not.")
    selected = select.format(name=ACTIVATION)
    tree.step(f"test {ACTIVATION}", *PYTEST, "python_tests", "-k", selected)
    tree.step(f"test {FORM}", *PYTEST, f"python_tests/test_{FORM}.py")
    if cuda:
        compile_gpu_code(tree, cuda)
    print(f"== {ACTIVATION} and {FORM} pass their tests; {time.monotonic() - start:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--work", type=Path, help="an empty folder, which is kept (default: a temporary folder)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument(
        "--select", default="{name}", help="pytest's -k; {name} is the name of the new activation"
    )
    parser.add_argument(
        "--cuda",
        metavar="ARCHITECTURES",
        help="also compile GPU kernels, for these CMake architectures",
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

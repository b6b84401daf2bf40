#!/usr/bin/env python3
"""Checks that ops/ and registration/ keep the rules on dependencies in docs/dev/architecture.md.

    python scripts/checks/dependencies.py [ROOT]

Searches the text of each file, including comments. Prints each breach as `file:line: what`. Exit
code: 0, or 1 if there is a breach.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ENGINES = ("ops/cpu", "ops/cuda")
CODEGEN = "ops/codegen"

# Folders, and the folders or files that their files must not include.
NOT_INCLUDED = {
    "ops": ("registration", "fastact"),
    "ops/math": ("ops/activations", "ops/forms", "ops/catalogue.h", *ENGINES, CODEGEN),
    "ops/activations": ("ops/forms", "ops/catalogue.h", *ENGINES, CODEGEN),
    "ops/forms": (*ENGINES, CODEGEN),
    **dict.fromkeys(ENGINES, (CODEGEN,)),
    "registration/operators": ("registration/keys", "registration/kernels"),
    "registration/composites": ("registration/keys", "registration/kernels"),
    "registration/kernels": ("registration/keys",),
}

# The folders and files that register operators and kernels of the namespace fastact.
REGISTRATION = re.compile(r"\bTORCH_LIBRARY(?:_IMPL|_FRAGMENT)?\(fastact\b(?:, (\w+))?")
REGISTERING = ("registration/library.cpp", "registration/keys")

# Folders of Torch's headers.
TORCH = ("ATen", "c10", "caffe2", "torch")

WITHOUT_NAMES = (*ENGINES, "registration/keys", "registration/kernels")
WITH_NAMES = {"ops/cuda/tuning.h"}

WITHOUT_TARGETS = ("ops/math", "ops/activations", "ops/forms")
TARGETS = "ops/math/target"
TARGET_HEADER = re.compile(r"(\w*intrin|arm_\w+|cpuid|cuda\w*|device_\w+|math_\w+|mma)(\.h|\.hpp)")
# Names with two leading underscores belong to the compiler. All targets have these.
COMMON = r"__(?:cplusplus|FILE__|LINE__|func__|VA_ARGS__|VA_OPT__|has_include|has_cpp_attribute)\b"
COMMON_BUILTIN = r"__builtin_(?!ia32_|neon_|aarch64_|arm_|nvvm_)"
TARGET_WORD = re.compile(
    rf"\b(?!{COMMON}|{COMMON_BUILTIN})__\w+"  # __device__, __AVX2__, __m256, __fmaf_rn
    r"|\b_mm\d*_\w+"
    r"|\bv[a-z]\w*_[fpsu](?:8|16|32|64)\b|\b(?:float|poly|u?int)(?:8|16|32|64)x\d\w*"  # Arm's
    r"|\basm\b|\b(?:block|thread)(?:Idx|Dim)\b|\bgridDim\b"
    r"|\b_M_(?:X64|IX86|ARM)\w*|\bFASTACT_HAS_\w+"
)

INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')
SOURCES = (".h", ".cpp", ".cu", ".cuh", ".in")


def lies_in(path: str, folder: str) -> bool:
    """Returns true if the path is the folder (or file), or is below it."""
    return path == folder or path.startswith(folder + "/")


def activations(root: Path) -> dict[str, str]:
    """Returns the type of each operator in the catalogue, by name."""
    text = (root / "ops" / "catalogue.h").read_text()
    names = re.search(r"#define FASTACT_ACTIVATIONS\(X\)((?:.*\\\n)*.*)", text)
    found = re.findall(r"\bX\((\w+), (\w+)", names[1]) if names else []
    if not found:
        sys.exit("dependencies: expected FASTACT_ACTIVATIONS in ops/catalogue.h, but found none")
    return dict(found)


def included(root: Path, file: str, name: str) -> str:
    """Returns the path from the root of the header that the file includes by this name."""
    folder = PurePosixPath(file).parent
    beside = os.path.normpath(folder / name)
    if (root / beside).is_file() or name.startswith("."):
        return beside
    return os.path.normpath(name)


def breaches_of_include(file: str, header: str) -> Iterator[str]:
    """Yields the rules that the file breaks by including the header."""
    if lies_in(file, "ops") and header.split("/")[0] in TORCH:
        yield f"ops/ includes no header of Torch, but this is {header}"
    for folder, others in NOT_INCLUDED.items():
        if not lies_in(file, folder):
            continue
        for other in others:
            if lies_in(header, other):
                yield f"{folder}/ does not include {other}, but this is {header}"


def breaches_of_registration(file: str, line: str, keys: dict[str, str]) -> Iterator[str]:
    """Yields the rules on registration that the line breaks. `keys` are the files of the keys."""
    if not (match := REGISTRATION.search(line)):
        return
    if not any(lies_in(file, place) for place in REGISTERING):
        yield f"only {' and '.join(REGISTERING)} register, but this file does"
    elif match[1] and keys.setdefault(match[1], file) != file:
        yield f"each dispatch key has one file, but {match[1]} is in {keys[match[1]]}, too"


def breaches(root: Path) -> Iterator[str]:
    """Yields each breach as `file:line: what`."""
    types = activations(root)
    keys: dict[str, str] = {}
    name = re.compile(rf'\b(?:{"|".join(types.values())})\b|"(?:{"|".join(types)})"')
    for path in sorted([*(root / "ops").rglob("*"), *(root / "registration").rglob("*")]):
        if path.suffix not in SOURCES:
            continue
        file = path.relative_to(root).as_posix()
        is_without_names = any(lies_in(file, f) for f in WITHOUT_NAMES) and file not in WITH_NAMES
        is_without_targets = any(lies_in(file, f) for f in WITHOUT_TARGETS)
        is_without_targets = is_without_targets and not lies_in(file, TARGETS)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = []
            if match := INCLUDE.match(line):
                header = included(root, file, match[1])
                found += breaches_of_include(file, header)
                if is_without_targets and TARGET_HEADER.fullmatch(header):
                    found.append(
                        f"only {TARGETS}/ includes a target's header, but this is {header}"
                    )
            found += breaches_of_registration(file, line, keys)
            if is_without_names:
                for word in name.findall(line):
                    found.append(f"this file names no activation, but this is {word}")
            if is_without_targets:
                for word in TARGET_WORD.findall(line):
                    found.append(f"only {TARGETS}/ uses what one target has, but this is {word}")
            for what in found:
                yield f"{file}:{number}: {what}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    default = Path(__file__).resolve().parents[2]
    parser.add_argument("root", nargs="?", type=Path, default=default, help="of the sources")
    found = list(breaches(parser.parse_args().root))
    for breach in found:
        print(breach)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

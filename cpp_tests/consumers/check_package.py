"""Checks the installed package: files, needed libraries, symbols, and paths.

    python check_package.py --prefix PREFIX [--forbid PATH]...

No installed file may contain a path given by --forbid (the source tree, the build tree, torch's
folder): the package must work on a machine without them.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

EXPECTED = (
    "lib/libfastact.so",
    "lib/libfastact_aten.so",
    "include/fastact/fastact.h",
    "include/fastact/optimize.h",
    "include/fastact/override.h",
    "lib/cmake/FastAct/FastActConfig.cmake",
    "lib/cmake/FastAct/FastActConfigVersion.cmake",
    "lib/cmake/FastAct/FindLibTorch.cmake",
)

# Torch's core (never its Python binding) and the C and C++ runtimes. libdl, librt and libpthread
# are part of libc since glibc 2.34.
NEEDED = re.compile(
    r"lib(torch_cpu|c10|torch_cuda|c10_cuda|stdc\+\+|c\+\+|c\+\+abi|m|gcc_s|c|dl|rt|pthread)\.so(\.\d+)?"
    r"|ld-linux[-\w]*\.so\.\d+"
)

# Weak symbols are inline functions and type information from torch's and the standard headers.
STRONG = "TDBRGS"


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def dynamic_entries(readelf: str, library: Path) -> tuple[list[str], list[str]]:
    """Returns the libraries that `library` needs, and its run-time search paths."""
    text = run(readelf, "-d", str(library))
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", text)
    return needed, [path for entry in paths for path in entry.split(":")]


def strong_symbols(nm: str, library: Path) -> list[str]:
    symbols = []
    for line in run(nm, "-D", "-C", "--defined-only", str(library)).splitlines():
        _, kind, name = line.split(maxsplit=2)
        if kind in STRONG:
            symbols.append(name)
    return symbols


def strong_torch_references(nm: str, library: Path) -> list[str]:
    """Returns the torch symbols without which the library would not load. Weak symbols have the
    kind w."""
    references = []
    for line in run(nm, "-D", "--undefined-only", str(library)).splitlines():
        kind, name = line.split(maxsplit=1)
        if kind == "U" and re.match(r"_Z\w*(5torch|3c10|2at)", name):
            references.append(name)
    return references


def check_library(library: Path, readelf: str, nm: str, function: str, own: set[str]) -> list[str]:
    """Returns the problems of a library, which must export the function and need `own` besides
    torch."""
    needed, paths = dynamic_entries(readelf, library)
    print(f"{library.name} needs:", *needed)
    problems = [f"needs {n}" for n in needed if n not in own and not NEEDED.fullmatch(n)]
    problems += [f"does not need {name}" for name in own - set(needed)]
    problems += [
        f"has the search path {path!r}" for path in paths if path and not path.startswith("$ORIGIN")
    ]

    symbols = strong_symbols(nm, library)
    print("exports:", len(symbols), "functions")
    if not any(name.startswith(function) for name in symbols):
        problems.append(f"does not export {function}")
    # The ABI tag follows the name in functions that return a std::string.
    problems += [f"exports {name}" for name in symbols if not name.startswith("fastact::")]
    problems += [
        f"exports {name}, which is internal"
        for name in symbols
        if re.match(r"fastact::(cpu|cuda|aten|formulas|detail|internal)::", name)
    ]

    # With another torch, the library loads and prints a message (registration/tools).
    problems += [f"needs the symbol {name}" for name in strong_torch_references(nm, library)]
    return problems


def check(prefix: Path, readelf: str, nm: str, forbidden: list[str]) -> list[str]:
    """Returns every problem, as a sentence."""
    problems = [f"{name} is missing" for name in EXPECTED if not (prefix / name).is_file()]
    if problems:
        return problems

    for name, function, own in (
        ("libfastact.so", "fastact::selu(", set()),
        ("libfastact_aten.so", "fastact::begin_aten_override(", {"libfastact.so"}),
    ):
        found = check_library(prefix / "lib" / name, readelf, nm, function, own)
        problems += [f"{name} {problem}" for problem in found]

    for path in sorted(prefix.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            problems += [
                f"{path.relative_to(prefix)} contains the path {word}"
                for word in forbidden
                if word.encode() in data
            ]
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefix", type=Path, required=True)
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--forbid", action="append", default=[], metavar="PATH")
    options = parser.parse_args()
    problems = check(options.prefix, options.readelf, options.nm, options.forbid)
    for problem in problems:
        print("package:", problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

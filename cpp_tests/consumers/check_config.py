"""Checks the messages of find_package(FastAct) if the installed torch does not match.

Fakes other versions of torch by folders that link to the real torch but state another version.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = """\
cmake_minimum_required(VERSION 3.24)
project(other LANGUAGES CXX)
find_package(FastAct REQUIRED)
"""


def stand_in(folder: Path, torch: Path, version: str, libraries: str) -> Path:
    """Makes a LibTorch folder of another version, with links to the libraries that match the
    pattern."""
    (folder / "lib").mkdir(parents=True)
    (folder / "include").symlink_to(torch / "include")
    (folder / "build-version").write_text(version + "\n")
    for library in (torch / "lib").glob(libraries):
        (folder / "lib" / library.name).symlink_to(library)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefix", type=Path, required=True)
    parser.add_argument("--torch", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--generator", default="Ninja")
    parser.add_argument("--make-program", default="ninja")
    parser.add_argument("--compiler", default="c++")
    options = parser.parse_args()
    config = options.prefix / "lib" / "cmake" / "FastAct" / "FastActConfig.cmake"
    with_cuda = 'set(FastAct_CUDA "ON")' in config.read_text()
    # The Python package contains one library for each supported minor version.
    in_python = (options.prefix / "lib" / "libfastact_kernels.so").exists()
    built_for = ".".join(options.version.split(".")[:2]) if in_python else options.version

    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / "CMakeLists.txt").write_text(PROJECT)

        def configure(name: str, torch: Path) -> tuple[int, str]:
            result = subprocess.run(
                [options.cmake, "-S", root, "-B", root / name, "-G", options.generator]
                + [f"-DCMAKE_MAKE_PROGRAM={options.make_program}"]
                + [f"-DCMAKE_CXX_COMPILER={options.compiler}"]
                + [f"-DCMAKE_PREFIX_PATH={options.prefix}", f"-DLibTorch_ROOT={torch}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            return result.returncode, " ".join(result.stdout.split())

        cases = [
            ("same", options.torch, 0, "Configuring done"),
            (
                "newer",
                stand_in(root / "torch-newer", options.torch, "9.9.9", "*.so"),
                int(in_python),
                f"FastAct was built for torch {built_for}, but found torch 9.9.9",
            ),
        ]
        if with_cuda:
            cases.append(
                (
                    "cpu-only",
                    stand_in(root / "torch-cpu", options.torch, options.version, "lib[!_]*cpu.so"),
                    1,
                    "FastAct was built with CUDA, but the torch in",
                )
            )
        failures = 0
        for name, torch, expected_code, expected_text in cases:
            code, text = configure(name, torch)
            good = code == expected_code and expected_text in text
            if name == "same":
                good = good and "Warning" not in text
            print(f"{name}: {'ok' if good else 'FAILED, exit code ' + str(code) + ': ' + text}")
            failures += not good
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""Prints the packages of a requirements file that this environment lacks, without their versions.

    python scripts/build/missing_requirements.py requirements.txt

Without versions, the installer leaves the installed packages of an existing environment unchanged.
CMake and Ninja may also be on PATH.
"""

import importlib.metadata
import shutil
import sys
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement


def is_there(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return name in ("cmake", "ninja") and shutil.which(name) is not None
    return True


def main() -> None:
    for line in Path(sys.argv[1]).read_text().splitlines():
        text = line.partition("#")[0].strip()
        if not text:
            continue
        requirement = Requirement(text)
        wanted = requirement.marker is None or requirement.marker.evaluate()
        if wanted and not is_there(requirement.name):
            print(requirement.name)


if __name__ == "__main__":
    main()

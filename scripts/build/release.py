"""Checks that the tree is a release, and packs its sources.

    python scripts/build/release.py check              the version and its section in CHANGELOG.md
    python scripts/build/release.py sdist FOLDER       the source distribution, in the folder
    python scripts/build/release.py files FOLDER       whether the folder has what is uploaded

The version is that of CMakeLists.txt, which pyproject.toml reads. `make release` runs all three and
builds the wheels. Exit code: 0, or 1 with a sentence for each problem.
"""

import datetime
import os
import re
import subprocess
import sys
from pathlib import Path

import package_metadata

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = ROOT / "CHANGELOG.md"


def section_of(changelog: str) -> tuple[str, str]:
    """Returns the version and the date of the newest section."""
    found = re.search(r"^## \[(.*?)\] - (\S+)$", changelog, re.MULTILINE)
    return (found[1], found[2]) if found else ("", "")


def problems(version: str, changelog: str, changed: str, tags: list[str]) -> list[str]:
    """Returns the problems that prevent a release. `changed` is git's report of changed files."""
    found = []
    newest, date = section_of(changelog)
    if newest != version:
        found.append(f"expected CHANGELOG.md to begin with version {version}, but got {newest!r}")
    try:
        datetime.date.fromisoformat(date)
    except ValueError:
        found.append(
            f"expected a date in the section of {newest} in CHANGELOG.md, but got {date!r}"
        )
    if changed:
        found.append(f"expected no uncommitted change, but got:\n{changed}")
    if f"v{version}" in tags:
        found.append(f"expected a version without a tag, but v{version} exists")
    return found


def missing_files(version: str, names: list[str]) -> list[str]:
    """Returns the files to upload that a folder lacks."""
    wheels = [name for name in names if name.endswith(".whl")]
    found = [] if f"fastact-{version}.tar.gz" in names else [f"fastact-{version}.tar.gz"]
    if not wheels:
        found.append("a wheel")
    return found + [name for name in wheels if not name.startswith(f"fastact-{version}-")]


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def sdist(folder: Path) -> None:
    import scikit_build_core.build

    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    name = scikit_build_core.build.build_sdist(str(folder.resolve()))
    print(f"written: {folder / name}")


def main(arguments: list[str]) -> int:
    version = package_metadata.version()
    match arguments:
        case ["check"]:
            state = git("status", "--porcelain"), git("tag", "--list").split()
            found = problems(version, CHANGELOG.read_text(), *state)
        case ["sdist", folder]:
            sdist(Path(folder))
            return 0
        case ["files", folder]:
            lacking = missing_files(version, [path.name for path in Path(folder).iterdir()])
            found = [f"expected only files of {version} in {folder}: {name}" for name in lacking]
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    for sentence in found:
        print(f"release: {sentence}", file=sys.stderr)
    if not found:
        print(f"release: {version} {'can be built' if arguments == ['check'] else 'is complete'}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

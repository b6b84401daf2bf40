"""An exercise of CONTRIBUTING.md, done in a copy of the tree: what the checks of both share."""

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from scratch_tree import ROOT, Failure, ScratchTree, replaced

# The code blocks under each heading that names a file: {file: [block, ...]}.
Blocks = dict[str, list[str]]

# A failed test is enough to know that the page is wrong.
PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-W", "ignore")


def blocks_of(section: str) -> Blocks:
    """The blocks of a section of the page, by its title."""
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
    """Adds the page's line to a list of the catalogue, a macro: its last line gets a backslash."""
    replaced(
        tree / "ops/catalogue.h",
        rf"^(#define {name}\(X\)(?:.*\\\n)*.*[^\\\n])$",
        r"\1 \\" + "\n" + escaped(line.rstrip()),
    )


def contents(tree: Path) -> dict[str, bytes]:
    return {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}


def perform(
    section: str, add: Callable[[Path, Blocks], None], work: Path, jobs: int
) -> ScratchTree:
    """A copy of the tree in which `add` did what the section says, in its files and no others."""
    blocks = blocks_of(section)
    tree = ScratchTree(work, jobs)
    before = contents(tree.path)
    add(tree.path, blocks)
    after = contents(tree.path)
    changed = sorted(file for file in after if after[file] != before.get(file))
    if changed != sorted(blocks):
        raise Failure(f"expected {sorted(blocks)} to change, but got {changed}.")
    print(f"== {section}: {', '.join(blocks)}", flush=True)
    return tree


def parser(description: str) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--work", type=Path, help="an empty folder, kept; else a temporary one")
    result.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    return result


def run(name: str, work: Path | None, check: Callable[[Path], None]) -> int:
    """Runs the check in that folder; the exit code."""
    try:
        if work is not None:
            check(work.resolve())
        else:
            with tempfile.TemporaryDirectory(prefix="fastact-") as folder:
                check(Path(folder))
    except Failure as failure:
        print(f"{name}: {failure}", file=sys.stderr)
        return 1
    return 0

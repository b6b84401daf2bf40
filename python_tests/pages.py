"""Text that a command writes into a page: between two comments, the rest is left alone."""

from pathlib import Path

from support import REPOSITORY

README = REPOSITORY / "README.md"


def put_between_markers(name: str, command: str, text: str, page: Path = README) -> None:
    """Replaces what stands between the comments `name: written by ...` and `name: end`."""
    begin, end = f"<!-- {name}: written by `{command}` -->", f"<!-- {name}: end -->"
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page}: expected the lines {begin} and {end}, but got none")
    page.write_text(f"{before}{begin}\n{text}{end}{after}")

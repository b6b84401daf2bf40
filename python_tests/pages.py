"""Replaces the generated text of a page, between two comments."""

from pathlib import Path

from support import REPOSITORY

README = REPOSITORY / "README.md"


def put_between_markers(name: str, command: str, text: str, page: Path = README) -> None:
    """Replaces the text between the comments `name: written by ...` and `name: end`."""
    begin, end = f"<!-- {name}: written by `{command}` -->", f"<!-- {name}: end -->"
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page}: expected the lines {begin} and {end}, but got none")
    page.write_text(f"{before}{begin}\n{text}{end}{after}")


def error_of_finite_inputs(state: dict, name: str) -> float:
    """Returns the largest error in ULP of a state of `make prove`, or -1 if there are no results. A
    state of format 1 counts infinite inputs; then the figure's outline contains the largest
    error."""
    error = state[name]["max_ulp"]
    outline = state[name].get("outline")
    if state["format"] == 1 and error == float("inf") and outline:
        return max(value for values in outline.values() for value in values)
    return error

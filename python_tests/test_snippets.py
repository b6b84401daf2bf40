"""The Python code on the pages runs and prints the shown output. Quoted error messages exist."""

import doctest
import re

import pytest

from support import REPOSITORY, package_path, run_python

# One version of torch is enough to run the pages.
pytestmark = [pytest.mark.newest, pytest.mark.slow]

END_OF_BLOCK = "---- end of block ----"
# This page needs several processes: test_examples.py runs it with torchrun.
BY_TORCHRUN = "docs/guides/distributed.md"
FOLDERS = ("docs", "docs/guides", "docs/explanation")


def pages():
    found = sorted(path for folder in FOLDERS for path in (REPOSITORY / folder).glob("*.md"))
    names = [
        str(path.relative_to(REPOSITORY)) for path in found if "```python\n" in path.read_text()
    ]
    return [name for name in names if name != BY_TORCHRUN]


def script_of(text):
    """Returns a page's Python blocks as one script that keeps the line numbers of the page."""
    lines, is_python = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            lines.append(f"print({END_OF_BLOCK!r})" if is_python else "")
            is_python = line == "```python"
        else:
            lines.append(line if is_python else "")
    return "\n".join(lines)


def shown_by(text):
    """Returns the output that the page shows below each Python block, or None."""
    block = r"^```python\n.*?^```$(?:\n+```text\n(.*?)^```$)?"
    return [m[1] for m in re.finditer(block, text, re.DOTALL | re.MULTILINE)]


def printed_by(name, folder):
    """Returns the output of each Python block of a page."""
    script = folder / "page.py"
    script.write_text(script_of((REPOSITORY / name).read_text()))
    package = {"PYTHONPATH": str(package_path().parent)}
    printed = run_python("-W", "ignore", script, cwd=folder, environment=package)
    *blocks, rest = printed.split(END_OF_BLOCK + "\n")
    assert rest == ""
    return blocks


@pytest.mark.parametrize("name", pages())
def test_a_page_prints_what_it_shows(name, tmp_path):
    """`...` on a page matches any text."""
    shown = shown_by((REPOSITORY / name).read_text())
    printed = printed_by(name, tmp_path)
    assert len(printed) == len(shown)
    for expected, found in zip(shown, printed):
        if expected is not None:
            is_equal = doctest.OutputChecker().check_output(expected, found, doctest.ELLIPSIS)
            assert is_equal, f"expected\n{expected}\nbut got\n{found}"


def test_readme_counts_no_changes_with_fastact(tmp_path):
    """PyTorch's number depends on the processor."""
    (printed,) = printed_by("README.md", tmp_path)
    pytorch, ours = printed.split()
    assert int(pytorch) > 0 and ours == "0"


def sources():
    """Returns the sources, with string literals of several lines joined."""
    folders = ("python", "scripts", "cmake", "registration", "ops")
    suffixes = {".py", ".sh", ".cmake", ".in", ".h", ".cpp"}
    files = [REPOSITORY / "CMakeLists.txt"]
    files += [p for f in folders for p in (REPOSITORY / f).rglob("*") if p.suffix in suffixes]
    text = "\n".join(path.read_text() for path in files)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_troubleshooting_quotes_messages_that_exist():
    """Versions, names of operators and `...` match any text."""
    page = (REPOSITORY / "docs" / "troubleshooting.md").read_text()
    symptoms = re.findall(r"^\| (.*?) \| .* \|$", page, re.MULTILINE)
    messages = [m for s in symptoms for m in re.findall(r"`(fastact\b.*?|FastAct\b.*?)`", s)]
    assert len(messages) > 10
    text = sources()
    for message in messages:
        fragments = re.split(r"fastact::\w+|\.\.\.|(?:\btorch )?-?\b\d[\w.+]*", message)
        for fragment in (f.strip(" :,") for f in fragments):
            assert len(fragment.split()) < 3 or fragment in text, message

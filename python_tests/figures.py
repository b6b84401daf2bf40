"""How the figures of the pages look and are stored: the same small SVG from the same numbers, on an
opaque white ground so that a dark page shows it too, and no two lines told apart by color alone."""

import io
import math
import re
from contextlib import contextmanager
from pathlib import Path

from support import REPOSITORY

STYLE = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.transparent": False,
    "font.size": 9,
    "axes.titlesize": 9,
    "legend.fontsize": 8,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "svg.fonttype": "none",  # text stays text: a third of the size of its outlines
    "svg.hashsalt": "fastact",  # the same names within the file each time
}


@contextmanager
def drawing():
    """matplotlib's pyplot, whatever the settings of this machine."""
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("svg")
    with pyplot.style.context(["default", STYLE]):
        yield pyplot


def readable(op: str) -> str:
    """An activation's id with its parameters as in a call: elu(alpha=1, scale=1)."""
    name, *parameters = re.split(r"-(?=[a-z_]+=)", op)
    values = (re.sub(r"\.0$", "", text) for text in parameters)
    return f"{name}({', '.join(values)})" if parameters else name


def save(figure, path: Path) -> Path:
    """Stores and closes the figure."""
    from matplotlib import pyplot

    stored = io.StringIO()
    figure.savefig(stored, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    path.write_text(smaller(stored.getvalue()))
    return path


def smaller(svg: str) -> str:
    """Without what nobody sees: hundredths of a point suffice, and nothing reads the metadata."""
    svg = re.sub(r"<!DOCTYPE.*?>\n|<!--.*?-->\n?| *<metadata>.*?</metadata>\n", "", svg, flags=re.S)
    svg = re.sub(r"-?\d+\.\d{3,}", lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."), svg)
    svg = re.sub(r" *\n(?=[LMCQz\"])", " ", svg)
    return re.sub(r"^ +", "", svg, flags=re.M)


def is_pinned_version() -> bool:
    """Whether matplotlib is the one with which the committed figures were drawn; another sets text
    a little differently."""
    try:
        import matplotlib
    except ImportError:
        return False
    pins = (REPOSITORY / "requirements.txt").read_text()
    return matplotlib.__version__ == re.search(r"^matplotlib==([\d.]+);", pins, re.M)[1]


def check_inside(axis) -> None:
    """Asserts that no point of a line is outside the axes."""
    for line in axis.get_lines():
        if line.get_transform() == axis.transData:
            for values, (low, high) in (
                (line.get_xdata(), axis.get_xlim()),
                (line.get_ydata(), axis.get_ylim()),
            ):
                outside = [v for v in values if not (math.isnan(v) or low <= v <= high)]
                assert not outside, f"{line.get_label()}: {outside} is not in {low}..{high}"


def check_told_apart(lines) -> None:
    """Asserts that no two lines, or entries of a legend, look alike in grey."""
    looks = [
        (line.get_linestyle(), line.get_marker(), line.get_markerfacecolor() == "white")
        for line in lines
        if line.get_linestyle() != "None" or line.get_marker() != "None"
    ]
    assert looks and len(set(looks)) == len(looks), looks

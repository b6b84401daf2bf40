"""Style and storage of the figures: small SVG files with colours for light and dark pages. The same
numbers always give the same file."""

import io
import math
import re
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

from support import REPOSITORY

# Each colour on a light and on a dark page.
PAPER = ("#ffffff", "#0d1117")
INK = ("#24292f", "#e6edf3")
GRID = ("#d0d7de", "#30363d")
BLUE = ("#0969da", "#58a6ff")
ORANGE = ("#bc4c00", "#f0883e")
GREY = ("#8c959f", "#6e7681")
GREEN = ("#1a7f37", "#3fb950")
PALETTE = (PAPER, INK, GRID, BLUE, ORANGE, GREY, GREEN)
# The colours of the contestants in every figure.
FASTACT, PYTORCH, COMPILED = BLUE[0], GREY[0], ORANGE[0]

STYLE = {
    "figure.facecolor": PAPER[0],
    "axes.facecolor": PAPER[0],
    "savefig.facecolor": PAPER[0],
    "savefig.transparent": False,
    "text.color": INK[0],
    "axes.labelcolor": INK[0],
    "axes.edgecolor": GREY[0],
    "xtick.color": INK[0],
    "ytick.color": INK[0],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
    "axes.titlesize": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.grid": True,
    "grid.color": GRID[0],
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "svg.fonttype": "none",  # text stays text, which takes a third of the size of outlines
    "svg.hashsalt": "fastact",  # makes names in the file reproducible
}
# The rule that matplotlib writes into each file.
RULE = "*{stroke-linejoin: round; stroke-linecap: butt}"


@contextmanager
def drawing():
    """Returns matplotlib's pyplot, independent of this machine's settings."""
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("svg")
    with pyplot.style.context(["default", STYLE]):
        yield pyplot


def readable(op: str) -> str:
    """Returns an activation's id in the form of a call: elu(alpha=1, scale=1)."""
    name, *parameters = re.split(r"-(?=[a-z_]+=)", op)
    values = (re.sub(r"\.0$", "", text) for text in parameters)
    return f"{name}({', '.join(values)})" if parameters else name


def dark_style() -> str:
    """Returns the style for readers with a dark theme."""
    rules = [
        f'[style*="{part}: {light}"] {{ {part}: {dark} !important }}'
        for light, dark in PALETTE
        for part in ("fill", "stroke")
    ]
    return "@media (prefers-color-scheme: dark) {" + " ".join(rules) + "}"


def save(figure, path: Path) -> Path:
    """Stores and closes the figure."""
    from matplotlib import pyplot

    stored = io.StringIO()
    figure.savefig(stored, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    text = smaller(stored.getvalue())
    assert text.count(RULE) == 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace(RULE, f"{RULE} {dark_style()}"))
    return path


def smaller(svg: str) -> str:
    """Removes invisible detail: digits beyond hundredths of a point, and metadata."""

    def rounded(number: re.Match) -> str:
        return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")

    def of_tag(tag: re.Match) -> str:  # and not of the text between tags
        return re.sub(r"-?\d+\.\d{3,}", rounded, tag[0])

    svg = re.sub(r"<!DOCTYPE.*?>\n|<!--.*?-->\n?| *<metadata>.*?</metadata>\n", "", svg, flags=re.S)
    svg = re.sub(r"<[^>]*>", of_tag, numbered(svg))
    svg = re.sub(r" *\n(?=[LMCQz\"])", " ", svg)
    return re.sub(r"^ +|[ \t]+$", "", svg, flags=re.M)


def numbered(svg: str) -> str:
    """Replaces matplotlib's ids, which are hashes of unrounded coordinates, by numbers: the last
    bit of a coordinate depends on the processor."""
    numbers: dict[str, str] = {}

    def number(hashed: re.Match) -> str:
        return numbers.setdefault(hashed[0], f"{hashed[0][0]}{len(numbers)}")

    return re.sub(r"(?<=[\"#])[a-z][0-9a-f]{10}(?=[\")])", number, svg)


def is_pinned_version() -> bool:
    """Returns true for the matplotlib that drew the committed figures. Other versions place text
    differently."""
    try:
        import matplotlib
    except ImportError:
        return False
    pins = (REPOSITORY / "requirements.txt").read_text()
    return matplotlib.__version__ == re.search(r"^matplotlib==([\d.]+);", pins, re.M)[1]


# ---- Bars


def bars(
    axis,
    names: list[str],
    series: dict[str, tuple[str, list]],
    text: Callable[[float], str] = "{:.2f}".format,
    base: float = 0,
    most: float = math.inf,
) -> None:
    """Draws horizontal bars from `base` to a value, or to `most` if that is less. Each name has a
    group, from the top down, with a bar for each series. `series` maps a label to a colour and a
    value, or None, for each name."""
    height = 0.8 / len(series)
    for i, (label, (color, values)) in enumerate(series.items()):
        places = [j + (i - (len(series) - 1) / 2) * height for j in range(len(names))]
        lengths = [math.nan if v is None else min(v, most) - base for v in values]
        drawn = axis.barh(places, lengths, 0.9 * height, left=base, color=color, label=label)
        texts = ["" if value is None else text(value) for value in values]
        axis.bar_label(drawn, texts, padding=2, fontsize=6.5, color=INK[0])
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.grid(False, axis="y")
    axis.tick_params(axis="y", length=0)


def ratio_axis(axis, largest: float, smallest: float) -> None:
    """Makes the x axis logarithmic around a line at 1."""
    low, high = min(0.5, 0.75 * smallest) / 1.05, max(2.0, largest) * 1.35
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if low <= t <= high]
    axis.set(xscale="log", xlim=(low, high))
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.axvline(1, color=INK[0], linewidth=0.9)


# ---- Checks


def check_inside(axis) -> None:
    """Asserts that no point of a line and no end of a bar is outside the axes."""
    for line in axis.get_lines():
        if line.get_transform() == axis.transData:
            for values, (low, high) in (
                (line.get_xdata(), axis.get_xlim()),
                (line.get_ydata(), axis.get_ylim()),
            ):
                outside = [v for v in values if not (math.isnan(v) or low <= v <= high)]
                assert not outside, f"{line.get_label()}: {outside} is not in {low}..{high}"
    for patch in axis.patches:
        end, high = patch.get_x() + patch.get_width(), axis.get_xlim()[1]
        assert math.isnan(end) or end <= high, f"{end} is beyond {high}"


def check_told_apart(lines) -> None:
    """Asserts that no two lines, or entries of a legend, look alike in grey."""
    looks = [
        (line.get_linestyle(), line.get_marker(), line.get_markerfacecolor() == "white")
        for line in lines
        if line.get_linestyle() != "None" or line.get_marker() != "None"
    ]
    assert looks and len(set(looks)) == len(looks), looks


def check_colours(path: Path) -> None:
    """Asserts that each colour of a stored figure has one for a dark page."""
    text = path.read_text()
    assert dark_style() in text
    used = set(re.findall(r"#[0-9a-f]{6}\b", text.replace(dark_style(), "")))
    assert used <= {light for light, _ in PALETTE}, used

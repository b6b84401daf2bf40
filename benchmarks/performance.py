"""docs/performance.md and its figures from stored results, and README's table from that page."""

import json
import math
import re
from functools import cache
from pathlib import Path
from statistics import median

import figures
from cells import SWEPT, key_of, label, size_name
from contestants import NAMES
from isa import ENVIRONMENTS
from measure import loses, ratio, seconds_text
from overhead import ELEMENTS, TARGET
from overhead import ratio as call_ratio
from pages import README, put_between_markers
from results import SECTION_TITLES, combined, packed, title, unpacked, write_packed
from support import REPOSITORY

PAGE = REPOSITORY / "docs" / "performance.md"
ACCURACY = PAGE.with_name("accuracy") / "results.json"
FIGURES = "performance"  # beside the page
COMMAND = "make performance-report"
OF_A_GPU = re.compile("## .*, CUDA ")  # a section of the page
FEWEST_SIZES = 3  # in a figure, whose one axis is the size
# README's table: what it is about, and where it is measured.
SHOWN = ("selu", "gelu", "silu", "quick_gelu", "mish")
SHOWN_FORMS = ("forward", "backward")
SHOWN_COLUMNS = (("GPU", "bfloat16"), ("GPU", "float32"), ("CPU", "float32"))
LONGEST_TABLE = 400  # rows; beyond, the page has a summary, and each cell is in a file beside it
SUMMARY_FORMS = ("forward", "in-place", "backward")

INTRODUCTION = """\
# Performance

Written by `make performance-report` from what `make bench` measured; the figures too.

In each cell the contestants take turns, one sample of each a round, and medians count. "Of copy" is
the time of a copy of as many bytes over FastAct's: 1 is copy speed. "Over PyTorch" is PyTorch's
time over FastAct's: above 1 FastAct is faster. **Bold**: FastAct is slower than PyTorch beyond
noise, which means that even its 10th percentile is above PyTorch's 90th. "Training" is forward,
then backward, under autograd.

~ marks a ratio that is not to be relied on: of an activation for which processes of the same run
disagreed about FastAct's speed (both its ratios) or PyTorch's ("over PyTorch"). The figures mark
such an activation in the same way.

On a GPU time is taken between two CUDA events, and nothing of the operands is in the L2 cache. On a
CPU calls repeat, so operands that fit are in a cache; "forward" and "backward" take new memory, as
the copy beside them does.

A CPU's copy is the fastest of several ways to copy. Where a section says that it was `Tensor.copy_`
alone, large tensors can take less than a copy: its new memory has ordinary pages, of which each
costs a fault, where FastAct asks for huge ones; it reads each line before it overwrites it, where
FastAct writes around the caches; and for the in-place form it goes from one tensor to another.

On a CPU FastAct is slower than PyTorch mostly in two kinds of cells. Where an activation is a few
operations (Leaky ReLU, Hardswish, ReLU and Hardtanh in place), the one NaN for all is a comparison
and a selection more, which AVX2 makes of up to four operations. In most others PyTorch computes
less: its largest error stands beside each cell in which it is faster. tanh is neither: with AVX-512
PyTorch's is quicker in float64, and as exact.
"""


def write(stored: list[dict], page: Path = PAGE, readme: Path = README) -> int:
    """Writes the page, its figures and README's part, which is about all sections of the page. The
    sections of machines that are not among the results stay, and so do an earlier run's parts of a
    section that the results lack."""
    # As they are stored beside a summary, so that the same page comes of what is stored.
    stored = [
        combined([unpacked(packed(result))])[0] if is_long(result) else result
        for result in combined(stored)
    ]
    folder = page.parent / FIGURES
    earlier = sections_of(page)
    sections, count = [], 0
    for text in earlier:
        if not any(is_section_of(result, text) for result in stored):
            if points := points_of_table(text):
                drawn = draw(points, *headings_of_text(text), folder)
                text = "\n".join(
                    [re.sub(r"^!\[.*\n*", "", text, flags=re.M).rstrip(), "", *shown(drawn)]
                )
                count += len(drawn)
            sections.append(text.rstrip("\n") + "\n")
    for result in stored:
        drawn = draw(points_of(result), heading(result), slug(result), folder)
        count += len(drawn)
        before = next((text for text in earlier if is_section_of(result, text)), "")
        sections.append("\n".join([*section(result, before), *shown(drawn)]))
        if is_long(result):
            write_packed(folder / f"{slug(result)}.json", result)
    sections.sort(key=lambda text: bool(OF_A_GPU.match(text)))  # CPUs first
    page.write_text("\n".join([INTRODUCTION, *sections]))
    put_between_markers("performance", COMMAND, summary(sections), readme)
    print(f"written: {page}, {count} figures and {readme.name}")
    remove_unused(folder, page)
    return 0


def shown(drawn: list[Path]) -> list[str]:
    return [f"![{path.stem}]({FIGURES}/{path.name})\n" for path in drawn]


def remove_unused(folder: Path, page: Path) -> None:
    """The files of earlier reports that the page does not show any more."""
    text = page.read_text()
    for path in [*folder.glob("*.svg"), *folder.glob("*.json")]:
        if f"]({FIGURES}/{path.name})" not in text:
            path.unlink()
            print(f"removed: {path.name}")


def sections_of(page: Path) -> list[str]:
    if not page.exists():
        return []
    return re.split(r"^(?=## )", page.read_text(), flags=re.MULTILINE)[1:]


def is_section_of(result: dict, text: str) -> bool:
    """Whether it is that machine's, and on a CPU that instruction set's, with whatever versions."""
    heading = text.partition("\n")[0]
    where = result["machine"]
    kind = (
        "CUDA" if where["device"] == "cuda" else where["build_info"]["cpu instruction set in use"]
    )
    return heading.startswith(f"## {where['name']}, ") and f", {kind}" in heading


def table(head: list[str], rows: list[list[str]], left: int = 1) -> list[str]:
    rules = ["---"] * left + ["---:"] * (len(head) - left)
    return ["| " + " | ".join(row) + " |" for row in (head, rules, *rows)] + [""]


# ---- The page


def run_of(machine: dict) -> str:
    info = machine["build_info"]
    return f"{machine['date']}, FastAct {info['version']} ({info['revision']})"


def section(result: dict, before: str = "") -> list[str]:
    """`before` is the section that the page had: what another run measured stays."""
    where = result["machine"]
    lines = [
        f"## {title(result)}",
        "",
        f"{run_of(where)}, Python {where['python']}, "
        f"last-level cache {where['last_level_cache'] / 2**20:g} MiB.",
        "",
    ]
    if held := ENVIRONMENTS.get(where.get("isa")):
        settings = " ".join(f"{name}={value}" for name, value in held.items())
        lines += [f"Held to this instruction set by `{settings}`.", ""]
    others_of: dict[str, list[str]] = {}
    lines += [where["note"], ""] if where.get("note") else []
    lines += [f"The copy is {where['copy']}.", ""] if "copy" in where else []
    for name, machine in result["measured"].items():
        if machine != where:
            others_of.setdefault(run_of(machine), []).append(SECTION_TITLES[name])
    kept = {name: text for name, text in parts_of(before).items() if not result.get(name)}
    for name in kept:
        others_of.setdefault(run_of_part(before, name), []).append(SECTION_TITLES[name])
    for run, names in others_of.items():
        lines += [f"Of another run, {run}: {', '.join(names)}.", ""]
    if cells := result.get("cells"):
        lines += [f"Unsteady: {sentence}.\n" for sentence in result.get("unsteady", ())]
        if is_long(result):
            name = f"{slug(result)}.json"
            lines += [
                *digest(cells, unsteady(result)),
                f"Each cell: [{name}]({FIGURES}/{name}).",
                "",
            ]
            lines += [f"{counted([ratio(cell, 'copy') for cell in cells])}.", ""]
        else:
            ratios = matrix(cells, unsteady(result))
            lines += [*ratios, f"{beside_the_copy(ratios)}.", ""]
        lines += losing(cells, unsteady(result)) + others(cells)
    for name, part in (("overhead", calls), ("memory", peaks), ("binary", library)):
        if result.get(name):
            lines += part(result[name])
        elif name in kept:
            lines += [kept[name], ""]
    return lines


# Where the parts that a run may lack begin.
PARTS = {"overhead": "### The cost of a call", "memory": "### Memory", "binary": "### The library"}


def parts_of(text: str) -> dict[str, str]:
    """Those of a section of the page."""
    found = {
        name: re.search(rf"^{start}.*?(?=\n+(?:#|!\[)|\s*\Z)", text, re.MULTILINE | re.DOTALL)
        for name, start in PARTS.items()
    }
    return {name: match[0] for name, match in found.items() if match}


def run_of_part(text: str, name: str) -> str:
    """What a section of the page says about the run that measured one of its parts."""
    for run, names in re.findall(r"^Of another run, (.*\)): (.*)\.$", text, re.MULTILINE):
        if SECTION_TITLES[name] in names.split(", "):
            return run
    return re.search(r"^(.*\)), Python ", text, re.MULTILINE)[1]


def rows_of(cells: list[dict]) -> dict[tuple, dict[int, dict]]:
    """For each operator, form, dtype, layout and number of threads the cells by their size."""
    rows: dict[tuple, dict[int, dict]] = {}
    for cell in cells:
        rows.setdefault(key_of({**cell, "elements": 0}), {})[cell["elements"]] = cell
    return rows


def is_long(result: dict) -> bool:
    return len(rows_of(result.get("cells", []))) > LONGEST_TABLE


def digest(cells: list[dict], unsteady: set[tuple[str, str]] = frozenset()) -> list[str]:
    """What a table of each cell would hide: the least and the median ratio by activation and type,
    then by form, size and number of threads."""
    dtypes = list(dict.fromkeys(cell["dtype"] for cell in cells))
    sizes = sorted({cell["elements"] for cell in cells})
    doubtful = {op for op, _ in unsteady}
    by_op = [
        [op.partition("-")[0] + " ~" * (op in doubtful)]
        + [least_and_median(any_of(cells, op=op, dtype=dtype)) for dtype in dtypes]
        for op in dict.fromkeys(cell["op"] for cell in cells)
    ]
    kinds = dict.fromkeys((c["form"], c["layout"], c["threads"], c["device"]) for c in cells)
    by_form = []
    for form, layout, threads, device in kinds:
        found = any_of(cells, form=form, layout=layout, threads=threads)
        words = [form] + [layout] * (layout != "contiguous")
        words += [f"{threads} thread" + "s" * (threads > 1)] * (device == "cpu")
        by_form.append(
            [" ".join(words)] + [least_and_median(any_of(found, elements=size)) for size in sizes]
        )
    return [
        "### Over PyTorch: the least (the median)",
        "",
        f"Of {len(cells)} cells, by activation and type. **Bold**: in at least one of them FastAct "
        "is slower than PyTorch beyond noise; these are listed below.",
        "",
        *table(["", *dtypes], by_op),
        "By form and number of elements, of all activations and types:",
        "",
        *table(["elements", *map(size_name, sizes)], by_form),
    ]


def least_and_median(cells: list[dict]) -> str:
    if not cells:
        return ""
    ratios = [ratio(cell, "pytorch") for cell in cells]
    least = f"{min(ratios):.2f}"
    return f"{f'**{least}**' if any(map(loses, cells)) else least} ({median(ratios):.2f})"


# "Of copy" in a cell of the table.
OF_COPY = re.compile(r"(?<=\| )(\d+\.\d\d)~? / ")
TARGET_OF_COPY = 1.1


def beside_the_copy(lines: list[str]) -> str:
    """How many of a section's cells take longer than the copy, by the ratios that it shows."""
    found = [float(text) for line in lines for text in OF_COPY.findall(line)]
    said = [line for line in lines if COUNTED.fullmatch(line)]  # of a summary, without the ratios
    return said[0].rstrip(".") if said and not found else counted(found)


COUNTED = re.compile(r"\d+ of \d+ cells take longer than .* of it\.")


def counted(ratios: list[float]) -> str:
    found = [float(f"{value:.2f}") for value in ratios if value is not None]  # as they are shown
    longer = sum(value < round(1 / TARGET_OF_COPY, 2) for value in found)
    return (
        f"{longer} of {len(found)} cells take longer than {TARGET_OF_COPY} of the copy's time, "
        f"{sum(value > 1.3 for value in found)} less than 1 / 1.3 of it"
    )


def unsteady(result: dict) -> set[tuple[str, str]]:
    """(operator, contestant) of what a result says is unsteady."""
    names = (sentence.partition(":")[0] for sentence in result.get("unsteady", ()))
    return {tuple(name.rsplit(" ", 1)) for name in names}


def matrix(cells: list[dict], unsteady: set[tuple[str, str]] = frozenset()) -> list[str]:
    """A row for each operator, form, dtype, layout and number of threads, a column a size."""
    sizes = sorted({cell["elements"] for cell in cells})
    body = []
    for found in rows_of(cells).values():
        any_cell = next(iter(found.values()))
        name = label(any_cell).replace(f" {size_name(any_cell['elements'])}", "", 1)
        body.append(
            [name] + [pair(found[size], unsteady) if size in found else "" for size in sizes]
        )
    heading = ["### Of copy / over PyTorch", ""]
    return heading + table(["elements"] + [size_name(size) for size in sizes], body)


def pair(cell: dict, unsteady: set[tuple[str, str]] = frozenset()) -> str:
    copy = ratio(cell, "copy")
    over = f"{ratio(cell, 'pytorch'):.2f}"
    ours = "~" if (cell["op"], "fastact") in unsteady else ""
    theirs = "~" if (cell["op"], "pytorch") in unsteady else ours
    bold = f"**{over}**" if loses(cell) else over
    return f"{'-' if copy is None else f'{copy:.2f}{ours}'} / {bold}{theirs}"


def losing(cells: list[dict], unsteady: set[tuple[str, str]] = frozenset()) -> list[str]:
    lost = [cell for cell in cells if loses(cell)]
    if not lost:
        return [f"In none of the {len(cells)} cells FastAct is slower than PyTorch.", ""]
    doubtful = {op for op, _ in unsteady}
    rows = [
        [
            label(cell) + (" ~" if cell["op"] in doubtful else ""),
            spread(cell["times"]["fastact"]),
            seconds_text(cell["times"]["pytorch"]["median"]),
            f"{ratio(cell, 'pytorch'):.2f}",
            largest_error(cell),
        ]
        for cell in lost
    ]
    head = ["", "FastAct, median (10..90 %)", "PyTorch, median", "over PyTorch", "PyTorch's ULP"]
    return [
        f"### Slower than PyTorch: {len(lost)} of {len(cells)} cells",
        "",
        "PyTorch's ULP: its largest error, wherever that was proven ([accuracy](accuracy.md)); †: "
        "of an earlier proof, which counted infinite inputs too.",
        "",
        *table(head, rows),
    ]


@cache
def proven() -> dict[tuple, tuple[int, float]]:
    """PyTorch's largest error by activation, type and order, of the newest form of proof."""
    largest: dict[tuple, tuple[int, float]] = {}
    for state in json.loads(ACCURACY.read_text()):
        key = state["activation"], state["dtype"], state["order"]
        found = state["format"], state["pytorch"]["max_ulp"]
        largest[key] = max(found, largest.get(key, found))
    return largest


def largest_error(cell: dict) -> str:
    """In ULP; of a gradient that of the derivative. Empty where it is not known."""
    key = cell["op"], cell["dtype"], int(cell["form"] == "backward")
    form, error = proven().get(key, (0, -1.0))
    if error < 0:
        return ""
    return (f"{error:.1e}" if error >= 1e4 else f"{error:.2g}") + ("†" if form < 2 else "")


def spread(times: dict) -> str:
    return " ".join(
        (
            seconds_text(times["median"]),
            f"({seconds_text(times['low'])}..{seconds_text(times['high'])})",
        )
    )


def others(cells: list[dict]) -> list[str]:
    """torch.compile and the plain kernel, where they took part."""
    names = [n for n in ("compile", "plain") if any(n in cell["times"] for cell in cells)]
    rows = []
    for cell in cells:
        ratios = [ratio(cell, name) for name in names]
        if any(ratios):
            rows.append([label(cell)] + ["-" if r is None else f"{r:.2f}" for r in ratios])
    reasons = sorted({f"{NAMES[n]}: {text}" for c in cells for n, text in c["absent"].items()})
    lines = []
    if rows:
        heads = ["time over FastAct's"] + [NAMES[name] for name in names]
        lines += ["### Others", "", *table(heads, rows)]
    return lines + [f"Absent: {reason}\n" for reason in reasons]


def calls(rows: list[dict]) -> list[str]:
    body = []
    for row in rows:
        value = call_ratio(row)
        text = "-" if value is None else f"{value:.3f}"
        times = [
            f"{row['ns'][who]:.0f}" if who in row["ns"] else "-" for who in ("ours", "peer", "own")
        ]
        body.append(
            [row["op"], row["door"], row["case"], *times,
             f"**{text}**" if value and value > TARGET else text]
        )  # fmt: skip
    return [
        f"### The cost of a call on {ELEMENTS} numbers",
        "",
        "Nanoseconds, the least of many rounds. The ratio is FastAct's over PyTorch's through "
        f"the same door; **bold**: above {TARGET}. `torch.*` is PyTorch's own Python binding.",
        "",
        *table(["", "door", "", "FastAct", "PyTorch", "torch.*", "ratio"], body, 3),
    ]


def peaks(rows: list[dict]) -> list[str]:
    body = [
        [row["op"], row["form"]]
        + [f"{row['bytes'][who] / 2**20:,.2f}" for who in ("fastact", "pytorch")]
        for row in rows
    ]
    row = rows[0]
    return [
        "### Memory",
        "",
        f"The peak of forward plus backward through {row['layers']} layers, Linear and activation, "
        f"{row['batch']} x {row['features']} {row['dtype']} numbers, in MiB.",
        "",
        *table(["", "", "FastAct", "PyTorch"], body, 2),
    ]


def library(found: dict) -> list[str]:
    by = "".join(
        f"; its code for {name}, uncompressed, {size / 2**20:.2f} MiB"
        for name, size in found["bytes_by_architecture"].items()
    )
    built = (
        f" A fresh build takes {found['build_seconds']:.0f} s with {found['build_jobs']} jobs."
        if "build_seconds" in found
        else ""
    )
    return [
        "### The library",
        "",
        f"{found['bytes'] / 2**20:.2f} MiB{by}. Loading it into a process that has torch takes "
        f"{1e3 * found['load_seconds']:.1f} ms.{built}",
        "",
    ]


# ---- README


def summary(sections: list[str]) -> str:
    """The table of SHOWN activations, from the page's newest section of a GPU and of a CPU that has
    all of them; in how many of their cells FastAct is slower; and the GPU's figure."""
    newest: dict[str, str] = {}
    for text in sections:
        device = "GPU" if OF_A_GPU.match(text) else "CPU"
        has_all = all(size_of_all(shown_rows(text), t) for d, t in SHOWN_COLUMNS if d == device)
        if has_all and date_of(text) >= date_of(newest.get(device, "")):
            newest[device] = text
    head = ["PyTorch's time / FastAct's (a copy's / FastAct's)"]
    rows = [[f"`{op}`"] for op in SHOWN]
    numbers: dict[str, list[str]] = {}
    for device, dtype in SHOWN_COLUMNS:
        found = shown_rows(newest.get(device, ""))
        size = size_of_all(found, dtype)
        head += [f"{device} {dtype} {form}" for form in SHOWN_FORMS]
        for row, op in zip(rows, SHOWN):
            row += [turned(found[op, form, dtype][size]) if size else "-" for form in SHOWN_FORMS]
        numbers.setdefault(device, []).append(f"{size} {dtype}")
    lines = table(head, rows)
    for device in (d for d in numbers if d in newest):
        heading, one = newest[device].partition("\n")[0], ", one thread" if device == "CPU" else ""
        lines.append(
            f"- {device}: {heading.removeprefix('## ')}, {date_of(newest[device])[:10]}; "
            f"{' and '.join(numbers[device])} numbers{one}. {lost_in(newest[device])}"
        )
    lines += [
        "",
        "**Bold**: slower than PyTorch beyond noise. ~: not to be relied on, as processes "
        "disagreed. `quick_gelu` is several operators in PyTorch.",
        "",
    ]
    if drawn := re.search(rf"!\[(.*-copy)\]\(({FIGURES}/.*)\)", newest.get("GPU", "")):
        lines += [f"![{drawn[1]}](docs/{drawn[2]})", ""]
    link = "[docs/performance.md](docs/performance.md) has every activation, size, form and layout."
    return "\n".join([*lines, link, ""])


def shown_rows(text: str, ops: tuple[str, ...] = SHOWN) -> dict[tuple, dict[str, str]]:
    """Of a section of the page: (operator, form, dtype, and what else a row's name says, but one
    thread), and by size its cells, "of copy / over PyTorch"."""
    lines = text.partition("### Of copy / over PyTorch\n")[2].partition("\n### ")[0].splitlines()
    split = [[word.strip() for word in line.strip("|").split("|")] for line in lines if line]
    rows = {}
    for name, *found in split[2:]:
        words = name.removesuffix(" 1 thread").split()
        if words and words[0] in ops:
            by_size = zip(split[0][1:], found)
            rows[tuple(words)] = {size: cell for size, cell in by_size if cell}
    return rows


def size_of_all(rows: dict[tuple, dict[str, str]], dtype: str) -> str | None:
    """The largest size at which every SHOWN activation was measured in each form."""
    of_each = [list(rows.get((op, form, dtype), ())) for op in SHOWN for form in SHOWN_FORMS]
    return next((s for s in reversed(of_each[0]) if all(s in sizes for sizes in of_each)), None)


def date_of(section: str) -> str:
    return (re.findall(r"^(\d+-\d+-\d+ \d+:\d+) UTC, FastAct", section, re.MULTILINE) or [""])[0]


def turned(cell: str) -> str:
    """PyTorch first, then the copy."""
    copy, _, over = cell.partition(" / ")
    return f"{over} ({copy})"


def lost_in(section: str) -> str:
    """How many cells of SHOWN activations are slower than PyTorch's beyond noise, and the worst."""
    rows = shown_rows(section)
    lost = [
        (float(found[1]), " ".join(name), size)
        for name, by_size in rows.items()
        for size, cell in by_size.items()
        if (found := re.search(r"\*\*(.*)\*\*", cell))
    ]
    cells = sum(map(len, rows.values()))
    text = f"Of {cells} cells of these five (every size, form, layout and type) FastAct is slower"
    if not lost:
        return text + " in none."
    least, name, size = min(lost)
    return text + f" in {len(lost)}, at worst in `{name}` of {size}: {least:.2f}."


def swept(cells: list[dict]) -> list[dict]:
    """The cells of SWEPT activations; of all, if there are none of these."""
    return [cell for cell in cells if cell["op"] in SWEPT] or cells


def any_of(cells: list[dict], **wanted) -> list[dict]:
    return [cell for cell in cells if all(cell[key] == value for key, value in wanted.items())]


# ---- Figures: of forward, contiguous tensors and one thread


# Activations that people use, each with its own marker and line, so that no color is needed.
LOOKS = {
    "selu": {"color": "#1f4e9c", "marker": "o", "linestyle": "-"},
    "relu": {"color": "#000000", "marker": "s", "linestyle": "--"},
    "gelu": {"color": "#c0392b", "marker": "^", "linestyle": "-."},
    "silu": {"color": "#1e8449", "marker": "D", "linestyle": ":"},
    "quick_gelu": {"color": "#b9770e", "marker": "v", "linestyle": (0, (6, 1, 1, 1, 1, 1))},
    "mish": {"color": "#7d3c98", "marker": "X", "linestyle": (0, (8, 3))},
}
# The y axis beside a copy. A point beyond it is named at the edge, and no line goes there.
SLOWEST, FASTEST = 0.5, 1.05
# A row of the page's table.
ROW = re.compile(r"^\| (\S+) forward (\w+)(?: 1 thread)? \|(.*)\|$", re.MULTILINE)
PAIR = re.compile(r" (?:-|([\d.]+)(~?)) / \**([\d.]+)\**(~?) ")


def slug(result: dict) -> str:
    where = result["machine"]
    name = " ".join([where["name"].lower(), where.get("isa") or ""])
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")


def heading(result: dict) -> str:
    return f"{title(result)}, {result['machine']['date'].partition(' ')[0]}"


def headings_of_text(text: str) -> tuple[str, str]:
    """The heading and the slug of the figures of a section of the page."""
    name = text.partition("\n")[0].removeprefix("## ")
    date = re.search(r"^\d{4}-\d\d-\d\d(?= )", text, re.MULTILINE)
    (stem, *_) = re.findall(rf"\]\({FIGURES}/(.*)-(?:copy|pytorch)\.svg\)", text)
    return f"{name}, {date[0]}", stem


def points_of(result: dict) -> list[dict]:
    """What the figures show of a result: per operator, dtype and size FastAct's speed and PyTorch's
    over a copy's, PyTorch's time over FastAct's, and whether either is in doubt."""
    doubtful = {op for op, _ in unsteady(result)}
    points = []
    for cell in any_of(result.get("cells", []), form="forward", layout="contiguous"):
        if cell["threads"] <= 1:
            speed, over = ratio(cell, "copy"), ratio(cell, "pytorch")
            names = {name: cell[name] for name in ("op", "dtype", "elements")}
            points.append(names | point(speed, over, cell["op"] in doubtful))
    return points


def point(speed: float | None, over: float, doubtful: bool) -> dict:
    theirs = None if speed is None else speed / over
    return {"fastact": speed, "pytorch": theirs, "over": over, "doubtful": doubtful}


def points_of_table(text: str) -> list[dict]:
    """The same of a section of the page, to the digits that it shows."""
    head = re.search(r"^\| elements \|(.*)\|$", text, re.MULTILINE)
    sizes = [1 << int(power) for power in re.findall(r"2\^(\d+)", head[1] if head else "")]
    points = []
    for op, dtype, row in ROW.findall(text):
        for size, pair in zip(sizes, row.split("|")):
            if found := PAIR.fullmatch(pair):
                speed, ours, over, theirs = found.groups()
                names = {"op": op, "dtype": dtype, "elements": size}
                ratios = float(speed) if speed else None, float(over)
                points.append(names | point(*ratios, bool(ours or theirs)))
    return points


def draw(points: list[dict], heading: str, name: str, folder: Path) -> list[Path]:
    """The figures of these points, none where there is no matplotlib: on a GPU beside a copy, and
    everywhere beside PyTorch. (A CPU's copy is between a fifth and four times as fast, depending on
    which cache a tensor is in.)"""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("no figures: matplotlib is not installed")
        return []
    points = [p for p in points if p["op"] in LOOKS] or points
    if len({p["elements"] for p in points}) < FEWEST_SIZES:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {"copy": _copy_speed} if ", CUDA " in heading else {}
    drawn = []
    for kind, plot in {**kinds, "pytorch": _over_pytorch}.items():
        with figures.drawing() as pyplot:
            figure = plot(points, heading, pyplot)
            drawn.append(figures.save(figure, folder / f"{name}-{kind}.svg"))
    return drawn


def _panels(points: list[dict], what: str, heading: str, pyplot):
    """A figure with an empty panel for each type, and what to draw there: panel, operator, its look
    and its points."""
    dtypes = list(dict.fromkeys(p["dtype"] for p in points))
    columns = min(len(dtypes), 2)
    rows = -(-len(dtypes) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(4.6 * columns, 1.2 + 2.9 * rows), squeeze=False, sharex=True,
        sharey=True, layout="constrained",
    )  # fmt: skip
    tensors = "forward, contiguous" + ", one thread" * (", CUDA " not in heading)
    figure.suptitle(f"{what}\n{tensors}: {heading}", fontsize=9)
    ops = sorted(
        {p["op"] for p in points}, key=lambda op: (op not in LOOKS, [*LOOKS, op].index(op))
    )
    looks = [LOOKS.get(op, look) for op, look in zip(ops, LOOKS.values())]
    sizes = sorted({p["elements"] for p in points})
    series = []
    for axis, dtype in zip(axes.flat, dtypes):
        axis.set_title(dtype)
        axis.set_xscale("log", base=2)
        axis.set_xlim(sizes[0] / 4, sizes[-1] * 4)
        for op, look in zip(ops, looks):
            found = sorted(any_of(points, op=op, dtype=dtype), key=lambda p: p["elements"])
            series.append((axis, op, look, found))
    for axis in axes.flat[len(dtypes) :]:
        axis.remove()
    for axis in axes[-1]:
        axis.set_xlabel("number of elements")
    return figure, axes[:, 0], series


def _line(axis, points: list[dict], values: list[float], **look):
    """Alone, a few points do not tell what is between them."""
    style = look if len(points) >= FEWEST_SIZES else {**look, "linestyle": "none"}
    axis.plot([p["elements"] for p in points], values, markersize=4.5, linewidth=1.1, **style)


def _legend(figure, series, pyplot, more=()):
    from matplotlib.lines import Line2D

    handles = []
    for _, op, look, _ in series[: len({op for _, op, _, _ in series})]:
        doubtful = any(p["doubtful"] for _, name, _, found in series if name == op for p in found)
        text = figures.readable(op) + " ~" * doubtful
        handles.append(Line2D([], [], label=text, markersize=4.5, linewidth=1.1, **look))
    if any(handle.get_label().endswith("~") for handle in handles):
        more = [*more, Line2D([], [], linestyle="none", label="~: not to be relied on")]
    figure.legend(handles=[*handles, *more], loc="outside lower center", ncols=3)


def _copy_speed(points: list[dict], heading: str, pyplot):
    from matplotlib.lines import Line2D

    what = "Speed over that of a copy of as many bytes"
    figure, left, series = _panels(points, what, heading, pyplot)
    beyond: dict[tuple, list[str]] = {}
    for axis, op, look, found in series:
        axis.axhline(1, color="#444444", linewidth=0.8)
        for who, face in (("pytorch", "white"), ("fastact", look["color"])):
            measured = [p for p in found if p[who] is not None]
            speeds = [p[who] for p in measured]
            inside = [s if SLOWEST <= s <= FASTEST else math.nan for s in speeds]
            _line(axis, measured, inside, **look, markerfacecolor=face)
            for p, speed in zip(measured, speeds):
                if not SLOWEST <= speed <= FASTEST:
                    text = f"{NAMES[who]} {figures.readable(op)} {speed:.2f}"
                    edge = SLOWEST if speed < SLOWEST else FASTEST
                    beyond.setdefault((axis, p["elements"], edge), []).append(text)
        axis.set_ylim(SLOWEST, FASTEST)
    for (axis, size, edge), texts in beyond.items():
        below = edge == SLOWEST
        axis.plot([size], [edge], color="black", marker=7 if below else 6, clip_on=False)
        axis.annotate(
            "\n".join(texts), (size, edge), (0, 7 if below else -7), textcoords="offset points",
            ha="center", va="bottom" if below else "top", fontsize=6.5,
        )  # fmt: skip
    for axis in left:
        axis.set_ylabel("copy's time / time")
    black = {"color": "black", "linestyle": "none", "markersize": 4.5}
    more = [
        Line2D([], [], marker="o", label="filled: FastAct", **black),
        Line2D([], [], marker="o", markerfacecolor="white", label="hollow: PyTorch", **black),
        Line2D([], [], marker=7, label="beyond the axis: named", **black),
    ]
    _legend(figure, series, pyplot, more)
    return figure


def _over_pytorch(points: list[dict], heading: str, pyplot):
    figure, left, series = _panels(points, "PyTorch's time over FastAct's", heading, pyplot)
    values = [p["over"] for p in points]
    low, high = min(0.5, *values) / 1.1, max(2, *values) * 1.1
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= t <= high]
    for axis, _, look, found in series:
        axis.axhline(1, color="#444444", linewidth=0.8)
        _line(axis, found, [p["over"] for p in found], **look)
        axis.set(yscale="log", ylim=(low, high))
        axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
    for axis in left:
        axis.set_ylabel("PyTorch's time / FastAct's\n(logarithmic; above 1: FastAct is faster)")
    _legend(figure, series, pyplot)
    return figure

"""docs/performance.md and its figures from stored results, and README's table from that page."""

import re
from pathlib import Path

from cells import SWEPT, key_of, label, size_name
from contestants import NAMES
from isa import ENVIRONMENTS
from measure import loses, ratio, seconds_text
from overhead import ELEMENTS, TARGET
from overhead import ratio as call_ratio
from pages import README, put_between_markers
from results import SECTION_TITLES, combined, title
from support import REPOSITORY

PAGE = REPOSITORY / "docs" / "performance.md"
FIGURES = "performance"  # beside the page
COMMAND = "make performance-report"
OF_A_GPU = re.compile("## .*, CUDA ")  # a section of the page
FEWEST_SIZES = 3  # in a figure, whose one axis is the size
# README's table: what it is about, and where it is measured.
SHOWN = ("selu", "gelu", "silu", "quick_gelu", "mish")
SHOWN_FORMS = ("forward", "backward")
SHOWN_COLUMNS = (("GPU", "bfloat16"), ("GPU", "float32"), ("CPU", "float32"))

INTRODUCTION = """\
# Performance

Written by `make performance-report` from what `make bench` measured; the figures too.

In each cell the contestants take turns, one sample of each a round, and medians count. "Of copy" is
the time of a copy of as many bytes over FastAct's: 1 is copy speed. "Over PyTorch" is PyTorch's
time over FastAct's: above 1 FastAct is faster. **Bold**: FastAct is slower than PyTorch beyond
noise, which means that even its 10th percentile is above PyTorch's 90th. "Training" is forward,
then backward, under autograd.

~ marks a ratio that is not to be relied on: of an activation for which processes of the same run
disagreed about FastAct's speed (both its ratios) or PyTorch's ("over PyTorch"). The figures of such
a run have these ratios, too.

On a GPU time is taken between two CUDA events, and nothing of the operands is in the L2 cache. On a
CPU calls repeat, so operands that fit are in a cache; "forward" and "backward" take new memory, as
the copy beside them does.

A CPU's copy is the fastest of several ways to copy. Where a section says that it was `Tensor.copy_`
alone, large tensors can take less than a copy: its new memory has ordinary pages, of which each
costs a fault, where FastAct asks for huge ones; it reads each line before it overwrites it, where
FastAct writes around the caches; and for the in-place form it goes from one tensor to another.
"""


def write(stored: list[dict], page: Path = PAGE, readme: Path = README) -> int:
    """Writes the page, its figures and README's part, which is about all sections of the page. The
    sections of machines that are not among the results stay."""
    stored = combined(stored)
    figures = page.parent / FIGURES
    sections = kept_sections(page, stored)
    drawn_of = []
    for result in stored:
        drawn = draw(result, figures)
        drawn_of.append(drawn)
        lines = section(result)
        lines += [f"![{path.stem}]({FIGURES}/{path.name})\n" for path in drawn]
        sections.append("\n".join(lines))
    sections.sort(key=lambda text: bool(OF_A_GPU.match(text)))  # CPUs first
    page.write_text("\n".join([INTRODUCTION, *sections]))
    put_between_markers("performance", COMMAND, summary(sections), readme)
    print(f"written: {page}, {sum(map(len, drawn_of))} figures and {readme.name}")
    return 0


def kept_sections(page: Path, measured: list[dict]) -> list[str]:
    """The page's sections of other machines and instruction sets than those."""
    if not page.exists():
        return []
    _, *sections = re.split(r"^(?=## )", page.read_text(), flags=re.MULTILINE)
    return [
        text.rstrip("\n") + "\n"
        for text in sections
        if not any(is_section_of(result, text) for result in measured)
    ]


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


def section(result: dict) -> list[str]:
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
    for run, names in others_of.items():
        lines += [f"Of another run, {run}: {', '.join(names)}.", ""]
    if cells := result.get("cells"):
        lines += [f"Unsteady: {sentence}.\n" for sentence in result.get("unsteady", ())]
        ratios = matrix(cells, unsteady(result))
        lines += [*ratios, f"{beside_the_copy(ratios)}.", ""]
        lines += losing(cells, unsteady(result)) + others(cells)
    for name, part in (("overhead", calls), ("memory", peaks), ("binary", library)):
        if result.get(name):
            lines += part(result[name])
    return lines


# "Of copy" in a cell of the table.
OF_COPY = re.compile(r"(?<=\| )(\d+\.\d\d)~? / ")
TARGET_OF_COPY = 1.1


def beside_the_copy(lines: list[str]) -> str:
    """How many of a section's cells take longer than the copy, by the ratios that it shows."""
    found = [float(text) for line in lines for text in OF_COPY.findall(line)]
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
    rows: dict[tuple, dict[int, dict]] = {}
    for cell in cells:
        key = key_of({**cell, "elements": 0})
        rows.setdefault(key, {})[cell["elements"]] = cell
    body = []
    for found in rows.values():
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
        ]
        for cell in lost
    ]
    return [
        f"### Slower than PyTorch: {len(lost)} of {len(cells)} cells",
        "",
        *table(["", "FastAct, median (10..90 %)", "PyTorch, median"], rows),
    ]


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
        has_all = all(size_of_all(rows_of(text), t) for d, t in SHOWN_COLUMNS if d == device)
        if has_all and date_of(text) >= date_of(newest.get(device, "")):
            newest[device] = text
    head = ["PyTorch's time / FastAct's (a copy's / FastAct's)"]
    rows = [[f"`{op}`"] for op in SHOWN]
    numbers: dict[str, list[str]] = {}
    for device, dtype in SHOWN_COLUMNS:
        found = rows_of(newest.get(device, ""))
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


def rows_of(text: str, ops: tuple[str, ...] = SHOWN) -> dict[tuple, dict[str, str]]:
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
    rows = rows_of(section)
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


# ---- Figures


def slug(result: dict) -> str:
    where = result["machine"]
    name = " ".join([where["name"].lower(), where.get("isa") or ""])
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")


def draw(result: dict, folder: Path) -> list[Path]:
    """The figures of a result's forward cells; none where there is no matplotlib."""
    forward = [
        cell
        for cell in any_of(swept(result.get("cells", [])), form="forward", layout="contiguous")
        if cell["threads"] <= 1
    ]
    try:
        import matplotlib
    except ImportError:
        print("no figures: matplotlib is not installed")
        return []
    if len({cell["elements"] for cell in forward}) < FEWEST_SIZES:
        return []
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fastact"  # the same file from the same results
    folder.mkdir(parents=True, exist_ok=True)
    name = slug(result)
    return [
        _save(_copy_speed(forward, title(result)), folder / f"{name}-copy.svg"),
        _save(_heat_map(forward, title(result)), folder / f"{name}-pytorch.svg"),
    ]


def _save(figure, path: Path) -> Path:
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def _copy_speed(cells: list[dict], heading: str):
    """The fraction of copy speed against the size, an axis for each activation."""
    from matplotlib import pyplot

    ops = list(dict.fromkeys(cell["op"] for cell in cells))
    columns = min(len(ops), 3)
    rows = -(-len(ops) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(4.2 * columns, 3.2 * rows), squeeze=False, sharey=True,
        layout="constrained",
    )  # fmt: skip
    figure.suptitle(f"forward, {heading}", fontsize=9)
    for axis, op in zip(axes.flat, ops):
        for i, dtype in enumerate(dict.fromkeys(cell["dtype"] for cell in cells)):
            found = sorted(any_of(cells, op=op, dtype=dtype), key=lambda c: c["elements"])
            found = [cell for cell in found if "copy" in cell["times"]]
            sizes = [cell["elements"] for cell in found]
            copies = [cell["times"]["copy"]["median"] for cell in found]
            for who, style in (("fastact", "-"), ("pytorch", ":")):
                speeds = [c / cell["times"][who]["median"] for c, cell in zip(copies, found)]
                text = f"{dtype}, {NAMES[who]}"
                axis.plot(sizes, speeds, style, color=f"C{i}", label=text, marker=".", markersize=3)
        axis.axhline(1, color="gray", linewidth=0.8)
        axis.set(title=op, xlabel="elements", ylim=(0, None))
        axis.set_xscale("log", base=2)
    for axis in axes.flat[len(ops) :]:
        axis.remove()
    axes[0, 0].set_ylabel("copy's time / time")
    axes[0, 0].legend(fontsize=6, frameon=False)
    return figure


def _heat_map(cells: list[dict], heading: str):
    """PyTorch's time over FastAct's; below 1, where FastAct is slower, it is red."""
    import numpy as np
    from matplotlib import colors, pyplot

    rows = list(dict.fromkeys((cell["op"], cell["dtype"]) for cell in cells))
    sizes = sorted({cell["elements"] for cell in cells})
    values = np.full((len(rows), len(sizes)), np.nan)
    for cell in cells:
        place = rows.index((cell["op"], cell["dtype"])), sizes.index(cell["elements"])
        values[place] = ratio(cell, "pytorch")
    figure, axis = pyplot.subplots(
        figsize=(2 + 0.6 * len(sizes), 1.4 + 0.3 * len(rows)), layout="constrained"
    )
    norm = colors.TwoSlopeNorm(1, 0, max(2, float(np.nanmax(values))))
    axis.imshow(values, cmap="RdYlGn", norm=norm, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        if not np.isnan(value):
            axis.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7)
    axis.set_xticks(range(len(sizes)), [size_name(size) for size in sizes], fontsize=7)
    axis.set_yticks(range(len(rows)), [" ".join(row) for row in rows], fontsize=7)
    axis.set_title(f"forward, PyTorch's time / FastAct's\n{heading}", fontsize=8)
    return figure

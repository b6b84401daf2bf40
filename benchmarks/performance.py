"""Writes docs/performance.md, its figures and README's measured part from the stored results."""

import re
import textwrap
from pathlib import Path
from statistics import geometric_mean

import figures
import plots
import proven
import readme
import stored
from cells import size_name
from measure import EQUAL, faster_and_slower, ratio, worst_losses
from op_table import OPERATORS
from overhead import ELEMENTS
from overhead import ratio as call_ratio
from pages import README, put_between_markers

COMMAND = "make report"
KINDS = {"gpu": "GPU", "avx512": "CPU with AVX-512", "avx2": "CPU with AVX2"}
LONGEST_TABLE = 36  # rows
WIDTH = 120

INTRODUCTION = [
    "# Performance",
    "",
    "A ratio is PyTorch's time divided by FastAct's: above 1, FastAct is faster. We time the "
    "implementations in turn, once each per round, and compare the medians of all rounds. The "
    "spread is the range from the 10th to the 90th percentile. Differences of up to "
    f"{100 * EQUAL:g} % count as equal. GPU times are taken between two CUDA events, with no "
    "operand in the L2 cache. CPU runs use a warm cache. See also "
    "[softmax](reference/rows.md#speed) and [norms](reference/norms.md#speed).",
    "",
]
CLOSING = f"`{COMMAND}` writes this page and its figures from the JSON files that are linked above."


def write(folder: Path, docs: Path = stored.DOCS, page_of_readme: Path = README) -> int:
    """Stores the new results below the folder, and writes the page, figures and README's part."""
    for path in stored.take(folder, docs):
        print(f"updated: {path}")
    found = stored.load(docs)
    for path, draw in drawings(found, docs).items():
        with figures.drawing() as pyplot:
            figures.save(draw(pyplot), path)
    page = docs / "performance.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text_of(found))
    put_between_markers("measured", COMMAND, readme.measured(found, docs), page_of_readme)
    print(f"written: {page}, its figures and {page_of_readme.name}")
    return 0


def drawings(found: stored.Stored, docs: Path) -> dict:
    """Returns the functions that draw the figures, by path."""
    folder = docs / "performance"
    every = {
        folder / f"{section}-{kind}.svg": lambda pyplot, draw=draw, r=result: draw(r, pyplot)
        for section, draw in (
            ("networks", plots.networks),
            ("operators", plots.operators),
            ("compiled", plots.compiled),
        )
        for kind, result in getattr(found, section).items()
    }
    if found.changes and "gpu" in found.networks:
        every[docs / "figures" / "overview.svg"] = lambda pyplot: plots.overview(
            found.networks["gpu"], found.changes, pyplot
        )
    return every


def text_of(found: stored.Stored) -> str:
    parts = [*networks(found), *operators(found), *losses(found), *compiled(found), *calls(found)]
    return "\n".join([*map(wrapped, [*INTRODUCTION, *parts]), CLOSING, ""])


def wrapped(line: str) -> str:
    """Wraps a paragraph. Keeps tables, images, headings and commands."""
    if re.match(r"[|!#]|Data: ", line):
        return line
    return textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)


def picture(section: str, kind: str, seen: str, command: str) -> list[str]:
    name = f"{section}-{kind}"
    return [
        f"![{seen}](performance/{name}.svg)",
        "",
        f"Data: [{name}.json](performance/{name}.json). Command: `{command}`.",
        "",
    ]


def listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def table(head: list[str], rows: list[list[str]], left: int = 1) -> list[str]:
    rules = ["---"] * left + ["---:"] * (len(head) - left)
    return ["| " + " | ".join(row) + " |" for row in (head, rules, *rows)] + [""]


# ---- Networks


def networks(found: stored.Stored) -> list[str]:
    if not found.networks:
        return []
    lines = [
        "## Networks",
        "",
        "Each network comes from torchvision or timm with random weights. FastAct runs the model "
        "after `fastact.fuse_(model)`. PyTorch computes the convolutions and matrix products "
        "eagerly. `torch.compile` is Inductor in its default mode.",
        "",
        "On a GPU, `fuse_` computes batch norm, residual sum and activation in one pass. On a CPU "
        "it fuses only [some activations](guides/fusing.md#what-is-not-fused), such as Mish.",
        "",
        "On the GPU, most of the gain comes from batch norms: ConvNeXt and ViT contain none and "
        "gain nothing. For inference, `torch.nn.utils.fusion.fuse_conv_bn_eval` can fold them "
        "into the convolutions instead. On an H200 (2026-11-29, `--fuse --fold`), resnet50 "
        "took 73.4 us per image eagerly, 78.8 folded, 46.9 fused; densenet121 took 137.2, 138.0, "
        "99.5.",
        "",
    ]
    for kind, result in sorted(found.networks.items(), reverse=True):
        _, side, batch = result["sizes"]
        rows = result["rows"]
        gains = [f"{row['network']} {plots.gain(row):.2f}" for row in rows]
        where = f"{result['machine']}, torch {result['torch']}, {result.get('date', '')}"
        layout = ", channels-last" if kind == "gpu" else f", {result['threads']} threads"
        chosen = " ".join(f'--network "{row["network"]}"' for row in rows)
        command = (
            f"python benchmarks/models.py --device {result['device']} --libraries --fuse --compile "
            f"--at-once --mode forward --dtype {rows[0]['dtype']} {chosen}"
        )
        lines += [
            f"{where}; inference in {rows[0]['dtype']}, batch {batch}, images of {side} x {side}"
            f"{layout}.",
            "",
            *table_of_networks(rows, batch),
            spread_of_networks(rows),
            "",
            *picture(
                "networks", kind, f"Eager time divided by FastAct's: {', '.join(gains)}", command
            ),
        ]
    return lines


def table_of_networks(rows: list[dict], batch: int) -> list[str]:
    """Returns a table of microseconds per image, and of ratios to FastAct's time."""
    names = {name: label for name, (label, _) in plots.CONTESTANTS.items()}
    body = []
    for row in rows:
        times = plots.seconds(row, batch)
        cells = [f"{1e6 * times[name]:.1f}" if name in times else "" for name in names]
        ratios = [
            f"{plots.gain(row, name):.2f}" if name in times else "" for name in list(names)[:2]
        ]
        body.append([row["network"], *cells, *ratios])
    head = ["microseconds per image", *names.values(), "eager / FastAct", "compile / FastAct"]
    return table(head, body)


def spread_of_networks(rows: list[dict]) -> str:
    """Returns sentences on how far the spreads extend from the median, and in how many networks the
    spreads of eager PyTorch and FastAct overlap."""
    times = [time for row in rows for time in row["times"].values()]
    farthest = max(abs(t[end] / t["median"] - 1) for t in times for end in ("low", "high"))
    pairs = [(row["times"]["PyTorch"], row["times"].get("fuse_")) for row in rows]
    pairs = [(eager, ours) for eager, ours in pairs if ours]
    common = sum(a["low"] <= b["high"] and b["low"] <= a["high"] for a, b in pairs)
    text = f"The spreads extend up to {100 * farthest:.1f} % from the median. "
    text += "Those of eager PyTorch and FastAct "
    if common == 0:
        return text + "overlap in no network."
    if common == len(pairs):
        return text + "overlap in all networks, so these ratios may be noise."
    return (
        text + f"overlap in {common} of {len(pairs)} networks, so the ratios of these may be noise."
    )


# ---- Operators


def operators(found: stored.Stored) -> list[str]:
    if not found.operators:
        return []
    lines = [
        "## Operators",
        "",
        "The figures show all activations except `prelu`. The counts below compare medians at one "
        "size (on CPUs with one thread), even if they differ by less than the spread. The [losses "
        "table](#losses) omits such differences, and adds sizes and thread counts. PyTorch "
        "computes `softsign`, `tanhshrink`, `quick_gelu` and `squared_relu` with several kernels, "
        "hence the large ratios." + forward_passes(found),
        "",
    ]
    for kind, name in KINDS.items():
        if kind in found.operators:
            lines += operators_of(kind, name, found.operators[kind])
    return lines


BY_AUTOGRAD = {act.id: f"`{act.name}`" for act in OPERATORS if act.is_backward_by_autograd}


def times_a_forward_pass(result: dict, cell: dict) -> bool:
    """Returns whether PyTorch's time of a backward pass includes a forward pass."""
    graph_built_inside = not result.get("graph_built_outside", False)
    return graph_built_inside and cell["form"] == "backward" and cell["op"] in BY_AUTOGRAD


def forward_passes(found: stored.Stored) -> str:
    """Returns a sentence that lists the backward passes whose times include a forward pass, and the
    devices."""
    kinds = [
        name
        for kind, name in KINDS.items()
        if (result := found.operators.get(kind))
        and any(times_a_forward_pass(result, cell) for cell in result["cells"])
    ]
    if not kinds:
        return ""
    where = (
        "all sections below"
        if len(kinds) == len(found.operators)
        else f"the results for {listed(kinds)}"
    )
    return (
        f" In {where}, PyTorch's times for the backward passes of "
        f"{listed(list(BY_AUTOGRAD.values()))} include a forward pass. Counts include "
        "them; the largest ratios do not."
    )


def operators_of(kind: str, name: str, result: dict) -> list[str]:
    where = result["machine"]
    shown = plots.shown_cells(result)
    faster, slower = faster_and_slower(shown)
    comparable = [cell for cell in shown if not times_a_forward_pass(result, cell)]
    best = max(comparable, key=lambda cell: ratio(cell, "pytorch"))
    copies = [] if where["device"] == "cpu" else beside_the_copy(shown)
    summary = (
        f"Of the figure's {len(shown)} combinations of operator, dtype and direction, FastAct is "
        f"faster in {faster} and slower in {slower}. The largest ratio is "
        f"{ratio(best, 'pytorch'):.1f} ({label(best)})."
    )
    command = command_of(result)
    info = where["build_info"]
    machine = f"{where['name']}, CUDA {where['cuda']}" if where["device"] == "cuda" else (
        f"{where['name']} with {where['cores']} threads (counts: one thread)"
    )  # fmt: skip
    if where["isa"] == "avx2":
        machine += "; FastAct, PyTorch, MKL and oneDNN restricted to AVX2"
    elements = size_name(shown[0]["elements"])
    return [
        f"### {name}",
        "",
        f"{machine}; torch {where['torch']}, {where['date']}, FastAct {info['revision']}; "
        f"{elements} elements. {summary}",
        "",
        *copies,
        *picture(
            "operators",
            kind,
            f"{name}: FastAct is faster than PyTorch in {faster} of {len(shown)} combinations and "
            f"slower in {slower}",
            command,
        ),
    ]


def command_of(result: dict) -> str:
    """Returns the command that measures the result's cells."""
    where, cells = result["machine"], result["cells"]
    words = ["python benchmarks --every", f"--device {where['device']}", "--section cells"]
    words += [f"--isa {where['isa']}"] if where.get("isa") else []
    words += [f"--form {form}" for form in dict.fromkeys(cell["form"] for cell in cells)]
    words += [f"--dtype {dtype}" for dtype in dict.fromkeys(cell["dtype"] for cell in cells)]
    sizes = sorted({cell["elements"] for cell in cells})
    return " ".join([*words, *(f"--size {size.bit_length() - 1}" for size in sizes)])


def beside_the_copy(cells: list[dict]) -> list[str]:
    """Returns the speed of the operators relative to a copy. Used only for GPUs, because the speed
    of a CPU's copy depends on where its new memory comes from."""
    spreads = []
    for dtype in plots.DTYPES:
        for form in plots.FORMS:
            found = [ratio(c, "copy") for c in cells if (c["dtype"], c["form"]) == (dtype, form)]
            spreads.append(f"{dtype} {form} {min(found):.2f} to {max(found):.2f}")
    return [
        "Speed relative to a copy of the same number of bytes, lowest to highest: "
        f"{'; '.join(spreads)}. A backward pass is compared with a copy that reads two tensors "
        "and writes one.",
        "",
    ]


def label(cell: dict) -> str:
    return f"`{cell['op'].partition('-')[0]}`, {cell['dtype']} {cell['form']}"


# ---- Losses


def extent(result: dict) -> str:
    """Returns the sizes and, of a CPU, the numbers of threads of a result's cells."""
    sizes = sorted({cell["elements"] for cell in result["cells"]})
    threads = sorted({cell["threads"] for cell in result["cells"]} - {0})
    text = listed(list(map(size_name, sizes))) + " elements"
    return f"{text} with {listed(list(map(str, threads)))} threads" if threads else text


def extents(found: stored.Stored, kinds: list[str]) -> str:
    """Returns each extent of these kinds' results, preceded by the names that share it."""
    names: dict[str, list[str]] = {}
    for kind in kinds:
        names.setdefault(extent(found.operators[kind]), []).append(KINDS[kind])
    return "; ".join(f"{listed(who)}: {text}" for text, who in names.items())


def losses(found: stored.Stored) -> list[str]:
    by_kind = {kind: worst_losses(result["cells"]) for kind, result in found.operators.items()}
    kinds = [kind for kind in KINDS if kind in by_kind]
    keys = sorted({key for lost in by_kind.values() for key in lost},
                  key=lambda key: min(lost.get(key, 1) for lost in by_kind.values()))  # fmt: skip
    dtypes = dict.fromkeys(
        c["dtype"] for result in found.operators.values() for c in result["cells"]
    )
    lines = [
        "## Losses",
        "",
        f"The table lists each operator that is slower than PyTorch's by more than "
        f"{100 * EQUAL:g} % and by more than the spread, in {' and '.join(dtypes)}. Each "
        "entry is the smallest ratio measured "
        f"({extents(found, kinds)}). PyTorch mostly does less work, at the price of a "
        "larger error (last column). Where PyTorch's error is small, as for `tanh`, FastAct's "
        "formula needs more instructions. PyTorch's gradient of `log_sigmoid` on a CPU reads a "
        "stored exponential. Slower cases within the spread appear in the figures alone.",
        "",
    ]
    if not keys:
        return [*lines, "None.", ""]
    rows = []
    for op, dtype, form in keys[:LONGEST_TABLE]:
        cells = [by_kind[kind].get((op, dtype, form)) for kind in kinds]
        error = proven.error_of_pytorch(op, dtype, int(form == "backward"))
        texts = ["" if value is None else f"{value:.2f}" for value in cells]
        rows.append(
            [
                f"`{op.partition('-')[0]}` {dtype} {form}",
                *texts,
                proven.error_text(error) + proven.where_infinite(op, dtype, error, form),
            ]
        )
    head = ["", *(KINDS[kind] for kind in kinds), "PyTorch's largest error (ULP)"]
    rest = len(keys) - len(rows)
    return (
        lines
        + table(head, rows)
        + ([f"{rest} smaller losses are in the data.", ""] if rest else [])
    )


# ---- torch.compile, and the cost of a call


def cells_of(result: dict) -> str:
    """Returns the options of benchmarks/compiled.py that choose the result's cells."""
    chosen = [f"--neighbour {name}" for name in result["neighbours"]]
    chosen += [f"--dtype {dtype}" for dtype in sorted({row["dtype"] for row in result["rows"]})]
    return " ".join(chosen)


def compiled(found: stored.Stored) -> list[str]:
    if not found.compiled:
        return []
    cells = cells_of(next(iter(found.compiled.values())))
    lines = [
        "## torch.compile",
        "",
        "Inductor compiles four expressions with an activation f: `residual` is f(a) + b, `gate` "
        "is f(a) * b, `sum` is the sum of each row of f(a), and `alone` is f(a). Inductor inlines "
        "FastAct's formulas into its kernels, except in `alone` on a GPU, where it calls FastAct's "
        "kernel. Each ratio is the time of the compiled expression with PyTorch's activation, "
        "divided by that with FastAct's. "
        f"Command: `python benchmarks/compiled.py {cells}`, and these options:",
        "",
    ]
    for kind, result in found.compiled.items():
        rows, where = result["rows"], result["machine"]
        chosen = [f"--device {where['device']}"]
        chosen += [f"--isa {where['isa']}"] if where["isa"] else []
        chosen += [] if cells_of(result) == cells else [cells_of(result)]
        ratios = [row["ratio"] for row in rows]
        ends = [
            f"{row['ratio']:.2f} (`{row['op']}` {row['dtype']}, {row['neighbour']})"
            for row in (limit(rows, key=lambda row: row["ratio"]) for limit in (min, max))
        ]
        lines += [
            f"- {KINDS.get(kind, kind)}: {where['name']}, torch {where['torch']}, {where['date']}; "
            f"{size_name(result['elements'])} elements: geometric mean "
            f"{geometric_mean(ratios):.2f}, from {ends[0]} to {ends[1]}: "
            f"[plot](performance/compiled-{kind}.svg), [data](performance/compiled-{kind}.json), "
            f"`{' '.join(chosen)}`."
        ]
    lines.append("")
    return lines


# The contestants, and the names of their columns.
CALLERS = {"ours": "FastAct", "peer": "PyTorch", "own": "`torch.selu`"}


def calls(found: stored.Stored) -> list[str]:
    """Returns a table of one activation's calls: API, case, and the times on each device."""
    if not found.calls:
        return []
    lines = [
        "## The cost of a call",
        "",
        f"The times are nanoseconds per call on {ELEMENTS} elements, the minimum of many rounds, "
        "through the same API. On a GPU these times include the launch, but not the "
        "kernel's execution. In Python, FastAct and PyTorch are called through `torch.ops`. The "
        "column `torch.selu` is PyTorch's own Python binding, which takes less time than "
        "`torch.ops`. The data also contain `relu`, and calls from TorchScript. PyTorch's `selu` "
        "dispatches twice, because it calls `elu`.",
        "",
    ]
    rows: dict[tuple, list[str]] = {}
    sources = []
    for kind, result in found.calls.items():
        measured = [
            row
            for row in result["overhead"]
            if call_ratio(row) is not None and row["door"] == "Python"
        ]
        for row in (row for row in measured if row["op"] == measured[0]["op"]):
            times = [f"{row['ns'][who]:.0f}" if who in row["ns"] else "" for who in CALLERS]
            rows.setdefault((f"`{row['op']}`", row["door"], row["case"]), []).extend(times)
        where = result["machine"]
        sources.append(
            f"{KINDS[kind]}: {where['name']}, torch {where['torch']}, {where['date']} "
            f"([data](performance/calls-{kind}.json), `python benchmarks --section overhead "
            f"--device {where['device']}`)."
        )
    lines += [" ".join(sources), ""]
    head = [f"{KINDS[kind]}, {who}" for kind in found.calls for who in CALLERS.values()]
    return lines + table(["", "API", "", *head], [[*key, *times] for key, times in rows.items()], 3)

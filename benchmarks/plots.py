"""Draws the figures of docs/performance.md and README."""

import figures
from measure import ratio

DTYPES = ("float32", "bfloat16")
FORMS = {"forward": figures.BLUE[0], "backward": figures.ORANGE[0]}
CONTESTANTS = {
    "PyTorch": ("PyTorch eager", figures.PYTORCH),
    "PyTorch compiled": ("torch.compile", figures.COMPILED),
    "fuse_": ("FastAct, fused", figures.FASTACT),
}
# The activations in README's figure of changed results.
CHANGING = ("gelu", "gelu_tanh", "silu", "mish", "selu", "tanh")


def largest_common(cells: list[dict]) -> int:
    """Returns the largest size that every activation has."""
    sizes = {}
    for cell in cells:
        sizes.setdefault(cell["op"], set()).add(cell["elements"])
    return max(set.intersection(*sizes.values()))


def shown_cells(result: dict) -> list[dict]:
    """Returns a figure's cells: contiguous tensors of the largest size, in one thread."""
    cells = [c for c in result["cells"] if c["layout"] == "contiguous" and c["threads"] <= 1]
    cells = [c for c in cells if c["form"] in FORMS and c["dtype"] in DTYPES]
    size = largest_common(cells)
    return [c for c in cells if c["elements"] == size]


def operators(result: dict, pyplot):
    """Draws PyTorch's time divided by FastAct's: a panel for each type, a bar for each form."""
    cells = shown_cells(result)
    names = list(dict.fromkeys(cell["op"] for cell in cells))
    values = {(c["op"], c["dtype"], c["form"]): ratio(c, "pytorch") for c in cells}
    figure, axes = pyplot.subplots(
        1, 2, figsize=(9, 0.23 * len(names) + 1.1), sharey=True, layout="constrained"
    )
    for axis, dtype in zip(axes, DTYPES):
        series = {
            form: (color, [values.get((name, dtype, form)) for name in names])
            for form, color in FORMS.items()
        }
        figures.bars(axis, [name.partition("-")[0] for name in names], series, base=1)
        figures.ratio_axis(axis, max(values.values()), min(values.values()))
        axis.set_title(dtype)
        axis.set_xlabel("PyTorch's time / FastAct's (right of 1: FastAct is faster)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def seconds(network: dict, batch: int) -> dict[str, float]:
    """Returns the seconds per image by contestant. Parts that FastAct does not change count with
    PyTorch's time."""
    times = {"fuse_": network["times"]["PyTorch"], **network["times"]}
    return {name: times[name]["median"] / batch for name in CONTESTANTS if name in times}


def gain(row: dict, contestant: str = "PyTorch") -> float:
    """Returns a contestant's time divided by that of the fused network."""
    times = row["times"]
    ours = times.get("fuse_", times["PyTorch"])
    return times[contestant]["median"] / ours["median"]


def draw_networks(axis, result: dict) -> None:
    batch = result["sizes"][2]
    rows = [seconds(row, batch) for row in result["rows"]]
    longest = max(value for row in rows for value in row.values())
    unit, factor = ("microseconds", 1e6) if longest < 1e-3 else ("milliseconds", 1e3)
    rows = [{name: factor * value for name, value in row.items()} for row in rows]
    series = {
        label: (color, [row.get(name) for row in rows])
        for name, (label, color) in CONTESTANTS.items()
    }
    names = [row["network"].removeprefix("timm.") for row in result["rows"]]
    figures.bars(axis, names, series, text="{:.3g}".format)
    axis.set_xlim(0, 1.15 * factor * longest)
    axis.set_xlabel(f"{unit} per image (shorter is better)")
    side = result["sizes"][1]
    where = f"{result['machine']}, {result['rows'][0]['dtype']}"
    axis.set_title(f"Inference, {batch} images of {side} x {side}\n{where}")
    below = {"loc": "upper center", "bbox_to_anchor": (0.45, -0.16)}
    axis.legend(ncols=3, **below)


def networks(result: dict, pyplot):
    height = 0.5 * len(result["rows"]) + 1.2
    figure, axis = pyplot.subplots(figsize=(7, height), layout="constrained")
    draw_networks(axis, result)
    return figure


def shares(changes: dict, circumstance: str, dtype: str = "float32") -> dict[str, dict[str, float]]:
    """Returns the percentage of changed results by activation and side."""
    return {
        row["op"]: {
            side: 100 * row[side][circumstance] / row["elements"] for side in ("PyTorch", "FastAct")
        }
        for row in changes["rows"]
        if row["dtype"] == dtype and row["op"] in CHANGING
    }


def draw_changes(axis, changes: dict) -> None:
    found = shares(changes, "length")
    series = {
        "PyTorch": (figures.PYTORCH, [found[op]["PyTorch"] for op in found]),
        "FastAct": (figures.FASTACT, [found[op]["FastAct"] for op in found]),
    }
    figures.bars(axis, list(found), series, text="{:.3g} %".format)
    axis.set_xlim(0, 1.3 * max(max(values) for _, values in series.values()))
    axis.set_xlabel("share of the results (%)")
    machine = changes["machine"]
    axis.set_title(
        "float32 results that change with the tensor's length\n"
        + machine.get("cpu", machine["name"]),
        fontsize=8,
    )
    axis.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))


def overview(networks: dict, changes: dict, pyplot):
    height = 0.5 * len(networks["rows"]) + 1.4
    figure, axes = pyplot.subplots(
        1, 2, figsize=(9, height), layout="constrained", width_ratios=(3, 2)
    )
    draw_networks(axes[0], networks)
    draw_changes(axes[1], changes)
    return figure


def compiled(result: dict, pyplot):
    """Draws PyTorch's compiled time divided by FastAct's, for an activation and its neighbour."""
    dtypes = list(dict.fromkeys(row["dtype"] for row in result["rows"]))
    names = list(dict.fromkeys(row["op"] for row in result["rows"]))
    colors = (figures.BLUE[0], figures.ORANGE[0], figures.GREEN[0], figures.GREY[0])
    figure, axes = pyplot.subplots(
        1, len(dtypes), figsize=(9, 0.4 * len(names) + 1.3), layout="constrained", squeeze=False
    )
    every = [row["ratio"] for row in result["rows"]]
    for axis, dtype in zip(axes[0], dtypes):
        of = {(r["op"], r["neighbour"]): r["ratio"] for r in result["rows"] if r["dtype"] == dtype}
        series = {
            neighbour: (color, [of.get((name, neighbour)) for name in names])
            for neighbour, color in zip(result["neighbours"], colors)
        }
        figures.bars(axis, names, series, base=1)
        figures.ratio_axis(axis, max(every), min(every))
        axis.set_title(dtype)
        axis.set_xlabel("PyTorch's time / FastAct's, both compiled")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper right", ncols=4)
    return figure

"""docs/accuracy.md and its figures, and README's table, from the results of `prove`."""

import json
import struct
from pathlib import Path

from accuracy import PROFILE_BITS
from op_table import ACTIVATIONS, OPERATORS
from pages import put_between_markers
from support import DTYPES, dtype_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
FIGURES = ROOT / "docs" / "accuracy"
ORDERS = {0: "f", 1: "f'", 2: "f''", 3: "f'''"}
SMALL = ("bfloat16", "float16")
KINDS = (("infinity", "±inf"), ("zero", "±0"), ("subnormal", "subnormal"), ("nan", "NaN"))


def write(results: Path) -> int:
    """Writes the page from every complete state in the folders of `results`; 1 if there is none."""
    machines = [states for folder in sorted(results.glob("*")) if (states := read(folder))]
    if not machines:
        print(f"expected results in {results}, but got none that is complete: run make prove")
        return 1
    machines.sort(key=len, reverse=True)
    # One machine's result is that of all (`prove --digest`): the first's that has it.
    any_machine = {key: state for states in reversed(machines) for key, state in states.items()}
    FIGURES.mkdir(parents=True, exist_ok=True)
    shown = [a for a in OPERATORS if all((a.id, "float32", k) in any_machine for k in (0, 1))]
    for act in shown:
        draw(act, any_machine)
    PAGE.write_text(page(machines, any_machine, shown))
    put_between_markers("accuracy", "make accuracy-report", summary(machines, any_machine, shown))
    print(f"written: {PAGE.relative_to(ROOT)}, README.md and {len(shown)} figures")
    return 0


def read(folder):
    """The complete states of a folder by (activation, dtype, order)."""
    states = {}
    for path in folder.glob("*.json"):
        state = json.loads(path.read_text())
        if state["inputs"] == state["of"]:
            states[state["activation"], state["dtype"], state["order"]] = state
    return states


def ulp(value):
    """Three digits, and more where they tell 0.5 from just above it."""
    if value == float("inf"):
        return "inf"
    if value >= 1e4:
        return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    return f"{value:.6f}".rstrip("0").rstrip(".") if value < 0.51 else f"{value:.3g}"


def title(states):
    """The machine of a folder's states."""
    environment = next(iter(states.values()))["environment"]
    where = environment["device"]
    if environment["instruction_set"]:
        where += f", {environment['instruction_set']}"
    return f"{where}, torch {environment['torch']}"


INTRODUCTION = """\
# Accuracy

Written by `make accuracy-report` from what `make prove` measured; the figures too.

Errors are in ULP, units in the last place of the exact value, for gradients of 1. A result is
misrounded if it is not the number nearest to the exact one: its error is then above 0.5. The exact
values are enclosures in double (for float64: 80-bit) arithmetic, and MPFR's wherever an enclosure
leaves two answers. The contract is the table in the header of each formula; **bold**: FastAct
breaks it.

Wrong special values: misrounded results for zero inputs, results beyond the contract for infinite
ones and where the input or the result is subnormal, and NaN inputs whose result is not FastAct's
one NaN (for PyTorch: not a NaN at all). PyTorch's derivatives pass the gradient on at NaN, and give
0 as the second derivative at 0: that counts here.
"""


def page(machines, any_machine, shown):
    lines = [INTRODUCTION]
    for states in machines:
        seconds = sum(state["seconds"] for state in states.values())
        lines += [
            f"## {title(states)}",
            "",
            f"{sum(s['inputs'] for s in states.values()):,} inputs in {seconds / 60:.0f} min.",
            "",
            "| | inputs | contract | max ULP | misrounded | wrong special | PyTorch's max ULP | "
            "misrounded | wrong special |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for act in ACTIVATIONS:
            for dtype in map(dtype_name, DTYPES):
                lines += [
                    row(states[act.id, dtype, order])
                    for order in ORDERS
                    if (act.id, dtype, order) in states
                ]
        lines.append("")
    lines += missing(any_machine)
    lines += ["## Error against x", ""]
    for act in shown:
        lines += [f"![{act.id}: error in ULP against x](accuracy/{act.id}.svg)", ""]
    return "\n".join(lines)


def missing(any_machine):
    """What of the values and first derivatives no machine has done."""
    names = [
        f"{act.id} {dtype} {ORDERS[order]}"
        for act in OPERATORS
        for dtype in map(dtype_name, DTYPES)
        for order in (0, 1)
        if (act.id, dtype, order) not in any_machine
    ]
    return ["## Not in these results", "", ", ".join(names) + ".", ""] if names else []


def row(state):
    def found(name):
        if state[name]["max_ulp"] < 0:
            return ["none", "", ""]
        worst = ulp(state[name]["max_ulp"])
        if name == "fastact" and state[name]["beyond_contract"]:
            worst = f"**{worst}**"
        special = [f"{state[name][kind]:,} {label}" for kind, label in KINDS if state[name][kind]]
        return [
            worst,
            f"{state[name]['misrounded']:,}",
            ", ".join(special) or "0",
        ]

    name = f"{state['activation']} {state['dtype']} {ORDERS[state['order']]}"
    cells = [name, f"{state['inputs']:,}", f"{state['contract']:g}"]
    return "| " + " | ".join(cells + found("fastact") + found("pytorch")) + " |"


def summary(machines, any_machine, shown):
    """README's table: a row for each activation, ours and PyTorch's."""
    lines = [
        "| | float32 f, largest error (misrounded): FastAct | PyTorch | "
        "float32 f': FastAct | PyTorch | bfloat16, float16: FastAct | PyTorch |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for act in shown:
        cells = [act.name]
        for order in (0, 1):
            state = any_machine[act.id, "float32", order]
            cells += [
                f"{ulp(state[name]['max_ulp'])} ULP "
                f"({100 * state[name]['misrounded'] / state['inputs']:.2g} %)"
                for name in ("fastact", "pytorch")
            ]
        small = [any_machine.get((act.id, d, k)) for d in SMALL for k in (0, 1)]
        cells += [
            f"{sum(state[name]['misrounded'] for state in small):,}" if all(small) else "-"
            for name in ("fastact", "pytorch")
        ]
        lines.append("| " + " | ".join(cells) + " |")
    where = "; ".join(map(title, machines))
    note = (
        "All 2^32 inputs of float32; of the 16-bit types, the misrounded results among all f and "
        f"f'. {where}."
    )
    return "\n".join([*lines, "", note, ""])


def points(state, name):
    """(x, largest error) of each bin of a float32 profile, from the smallest x on."""
    shift = 32 - PROFILE_BITS
    pairs = []
    for bin_, error in state[name]["profile"].items():
        (x,) = struct.unpack("<f", struct.pack("<I", (int(bin_) << shift) + (1 << shift - 1)))
        if abs(x) <= 1000:
            pairs.append((x, error))
    return sorted(pairs)


def draw(act, states):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fastact"  # the same file from the same results
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
    for order, axis in enumerate(axes):
        state = states[act.id, "float32", order]
        for name, label, style in (
            ("pytorch", "PyTorch", {"color": "tab:orange", "linewidth": 1}),
            ("fastact", "FastAct", {"color": "tab:blue", "linewidth": 1.5}),
        ):
            pairs = points(state, name)
            axis.plot([x for x, _ in pairs], [max(e, 1e-2) for _, e in pairs], label=label, **style)
        axis.axhline(0.5, color="gray", linewidth=0.8, linestyle="--")
        axis.set(xscale="symlog", yscale="log", xlabel="x")
        axis.set_title(f"{act.id}: {ORDERS[order]}, float32")
    axes[0].set_ylabel("largest error (ULP)")
    axes[0].legend(loc="best", frameon=False)
    figure.savefig(FIGURES / f"{act.id}.svg", metadata={"Date": None})
    pyplot.close(figure)

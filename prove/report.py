"""Writes docs/accuracy.md, its figures, and the README's sentence from the results of `prove`.

Findings of all machines are kept in a record in the repository. `make accuracy-report` adds those
of this machine.
"""

import json
import math
import struct
from pathlib import Path

import figures
import prelu
from accuracy import FORMAT, PROFILE_BITS, SPECIAL
from op_table import ACTIVATIONS, OPERATORS
from pages import put_between_markers
from support import DTYPES, dtype_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
FIGURES = ROOT / "docs" / "accuracy"
RECORD = FIGURES / "results.json"
ORDERS = {0: "f", 1: "f'", 2: "f''", 3: "f'''"}
SMALL = ("bfloat16", "float16")
LABELS = ("±inf", "±0", "sign of 0", "subnormal", "NaN")
KINDS = tuple(zip(SPECIAL, LABELS, strict=True))
PRELU = [(f"prelu{form.name}", form.order) for form in prelu.FORMS]
# Marks a figure from a state of format 1, which does not count special inputs separately.
EARLIER = "†"
# Limits of a figure. Bins narrower than a pixel (|x| below NEAR) are merged.
NEAR, REACH, FLOOR = 2.0**-5, 2.0**10, 0.01
LINEAR = 1  # the x axis is linear from -LINEAR to LINEAR
TICKS = (-1000, -100, -10, -1, 0, 1, 10, 100, 1000)
SIGNS = ("positive", "negative")
# The leading bits of NEAR and of REACH.
SHOWN = range(*(struct.unpack("<I", struct.pack("<f", x))[0] >> 32 - PROFILE_BITS
                for x in (NEAR, REACH)))  # fmt: skip
# A broad light line below a thin dark one: both are visible where they coincide, in grey too.
CONTESTANTS = {
    "fastact": ("FastAct", {"color": "#6aaee6", "linewidth": 3.2, "linestyle": "-"}),
    "pytorch": ("PyTorch", {"color": "#8c2d04", "linewidth": 1.2, "linestyle": "--"}),
}
NEAREST = {"color": "#444444", "linewidth": 0.8, "linestyle": ":"}


def write(results: Path) -> int:
    """Writes the page from the record and every complete state in the folders of `results`. Returns
    1 if there is none."""
    new = [state for folder in sorted(results.glob("*")) for state in read(folder)]
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else []
    states = {(title(s), *key(s)): s for s in (*recorded, *new)}
    if not states:
        print(f"expected results in {results}, but got none that is complete: run make prove")
        return 1
    by_machine: dict[str, dict] = {}
    for (machine, *_), state in states.items():
        by_machine.setdefault(machine, {})[key(state)] = state
    machines = sorted(by_machine.values(), key=len, reverse=True)
    # All machines have the same results (`prove --digest`), so the first state of the newest format
    # is used.
    any_machine: dict[tuple, dict] = {}
    for state in sorted((s for m in machines for s in m.values()), key=lambda s: -s["format"]):
        any_machine.setdefault(key(state), state)
    FIGURES.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(record(states.values()))
    shown = [a for a in OPERATORS if all((a.id, "float32", k) in any_machine for k in (0, 1))]
    drawn = 0
    for act in shown:
        both = [with_outline(states.values(), act, k) for k in (0, 1)]
        if all(both):
            with figures.drawing() as pyplot:
                figures.save(draw(act, both, pyplot), FIGURES / f"{act.id}.svg")
            drawn += 1
    PAGE.write_text(page(machines, any_machine, summary(machines, any_machine, shown)))
    put_between_markers("accuracy", "make accuracy-report", sentences(any_machine))
    print(f"written: {PAGE.name}, {RECORD.name}, README.md and {drawn} figures")
    return 0


def key(state):
    return state["activation"], state["dtype"], state["order"]


def read(folder):
    """Yields the complete states of a folder."""
    for path in sorted(folder.glob("*.json")):
        state = json.loads(path.read_text())
        if state.get("format") == FORMAT and state["inputs"] == state["of"]:
            yield state


def record(states):
    """Returns a line for each state, without the library's digest and with only the part of the
    profile that a figure shows."""

    def kept(state):
        where = {k: v for k, v in state["environment"].items() if k != "library"}
        found = {
            name: {k: v for k, v in state[name].items() if k != "profile"}
            | ({"outline": outline(state[name])} if is_drawn(state) else {})
            for name in CONTESTANTS
        }
        return {**state, "environment": where, **found}

    lines = (json.dumps(kept(state), ensure_ascii=False) for state in states)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def is_drawn(state):
    """Returns true if a figure can show the state."""
    figured = state["dtype"] == "float32" and state["order"] in (0, 1)
    return figured and all(outline(state[name]) for name in CONTESTANTS)


def with_outline(states, act, order):
    """Returns the state for a figure: of several machines, that of the newest format. None if none
    was kept."""
    wanted = act.id, "float32", order
    found = (state for state in states if key(state) == wanted and is_drawn(state))
    return max(found, key=lambda state: state["format"], default=None)


def ulp(state, name):
    """Returns the largest error with three digits, or with as many as distinguish 0.5 from a number
    just above it."""
    value, misrounded = state[name]["max_ulp"], state[name]["misrounded"]
    if value == float("inf"):
        return "inf"
    if misrounded and value <= 0.5 and not mixed(state, name):
        return "> 0.5"  # the excess is below the precision of the stored number
    if value >= 1e4:
        return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    if value >= 0.51:
        return f"{value:.3g}"
    digits = 6
    while value > 0.5 and float(f"{value:.{digits}f}") <= 0.5:
        digits += 1
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def title(state):
    """Returns the name of a state's machine."""
    environment = state["environment"]
    where = environment["device"]
    if environment["instruction_set"]:
        where += f", {environment['instruction_set']}"
    return f"{where}, torch {environment['torch']}"


INTRODUCTION = f"""\
# Accuracy

Written by `make accuracy-report` from what `make prove` measured; the figures too.

Errors are in ULP, units in the last place of the exact value, for gradients of 1. The largest error
and the number of misrounded results are those of finite inputs. A result is misrounded if it is not
the number nearest to the exact one: its error is then above 0.5. The exact values are enclosures in
double (for float64: 80-bit) arithmetic, and MPFR's wherever an enclosure leaves two answers. The
contract is the table in the header of each formula, and the sign of every zero; **bold**: FastAct
breaks it.

Special, apart from these: results beyond the contract for infinite inputs (±inf); misrounded ones
for zeros (±0); zeros of the wrong sign, for whatever input (sign of 0); results beyond the contract
where the input or the result is subnormal; and NaN inputs whose result is not FastAct's one NaN
(for PyTorch: not a NaN at all). PyTorch's derivatives pass the gradient on at NaN, and give 0 as
the second derivative at 0: that counts here.

{EARLIER}: of an earlier proof, which counted infinite inputs and zeros of the wrong sign among the
largest errors and the misrounded results.

## What is promised, and what is tried

The bounds of float32 and the 16-bit types are in [README](../README.md#the-same-bits). With
default parameters float64 values are within 1.5 ULP, the first three derivatives within 10, 16 and
60 where they are worst (GELU by tanh, Mish), and within as many ULP of 1/16 where their terms
cancel. With any other finite parameters a bound is at least 0.51 ULP (2 for float32 Softplus), and
float64's are twice as large. [Each activation's page](reference/operators.md) has its own bounds.

`make prove` tries every activation, `prelu` included, in every type to the third derivative: all
inputs of the 16-bit types and of float32 to f'', and a fixed sample of 2^27 of float64 and of
float32's f'''. It has a progress bar and resumes after an interrupt; `make prove ARGS="--op selu
--dtype float32 --device cuda"` does a part of it. The tables say how many inputs a run tried, as
`--sample` makes it fewer. The oracle is MPFR, and interval-like arithmetic where that suffices;
never FastAct's own formulas.
"""


def page(machines, any_machine, short):
    lines = [INTRODUCTION, "## In short", "", short]
    forms = [(act.id, order) for act in ACTIVATIONS for order in ORDERS] + PRELU
    for states in machines:
        first = next(iter(states.values()))
        tried = f"{sum(s['inputs'] for s in states.values()):,} inputs"
        if all("seconds" in state for state in states.values()):
            tried += f" in {sum(s['seconds'] for s in states.values()) / 60:.0f} min"
        lines += [
            f"## {title(first)}",
            "",
            f"{tried}.",
            "",
            "| | inputs | contract | max ULP | misrounded | special | PyTorch's max ULP | "
            "misrounded | special |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        ]
        # All orders of one type, then the next type.
        for name in dict.fromkeys(name for name, _ in forms):
            for dtype in map(dtype_name, DTYPES):
                lines += [
                    row(states[name, dtype, order])
                    for other, order in forms
                    if other == name and (name, dtype, order) in states
                ]
        lines.append("")
    lines += missing(any_machine)
    lines += ["## Error against x", ""]
    for act in OPERATORS:
        if (FIGURES / f"{act.id}.svg").exists():
            lines += [f"![{act.id}: error in ULP against x](accuracy/{act.id}.svg)", ""]
    return "\n".join(lines)


def missing(any_machine):
    """Returns what no machine has tested, with default parameters."""
    lines = []
    for dtype in map(dtype_name, DTYPES):
        for order, form in ORDERS.items():
            wanted = [act.id for act in OPERATORS] + [name for name, k in PRELU if k == order]
            names = [name for name in wanted if (name, dtype, order) not in any_machine]
            if names:
                every = len(names) == len(wanted)
                lines.append(f"- {dtype} {form}: {'all' if every else ', '.join(names)}.")
    return ["## Not in these results", "", *lines, ""] if lines else []


def mixed(state, name):
    """Returns true if the misrounded results may include infinite inputs and zeros of the wrong
    sign."""
    return state["format"] < FORMAT and state[name]["misrounded"] > 0 and name == "pytorch"


def row(state):
    def found(name):
        if state[name]["max_ulp"] < 0:
            return ["none", "", ""]
        worst = ulp(state, name)
        mark = EARLIER if mixed(state, name) else ""
        if name == "fastact" and state[name]["beyond_contract"]:
            worst = f"**{worst}**"
        special = [f"{n:,} {label}" for kind, label in KINDS if (n := state[name].get(kind))]
        of_infinity = mark if state[name].get("infinity") else ""
        return [
            worst + of_infinity,
            f"{state[name]['misrounded']:,}{mark}",
            ", ".join(special) or "0",
        ]

    name = f"{state['activation']} {state['dtype']} {ORDERS[state['order']]}"
    cells = [name, f"{state['inputs']:,}", f"{state['contract']:g}"]
    return "| " + " | ".join(cells + found("fastact") + found("pytorch")) + " |"


def beside(states, name):
    """Returns the remark beside misrounded results: the number of zeros with the wrong sign and of
    infinite inputs with a wrong result, or that these are included."""
    if any(mixed(state, name) for state in states):
        return EARLIER
    special = sum(state[name].get(kind, 0) for state in states for kind in ("infinity", "sign"))
    return f"; special: {special:,}" if special else ""


def summary(machines, any_machine, shown):
    """Returns the page's first table: a row for each activation, with FastAct's and PyTorch's
    errors."""
    lines = [
        "| | float32 f, largest error (misrounded): FastAct | PyTorch | "
        "float32 f': FastAct | PyTorch | bfloat16, float16: FastAct | PyTorch |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for act in shown:
        cells = [act.name]
        for order in (0, 1):
            state = any_machine[act.id, "float32", order]
            for name in ("fastact", "pytorch"):
                percent = 100 * state[name]["misrounded"] / state["inputs"]
                cells.append(f"{ulp(state, name)} ULP ({percent:.2g} %){beside([state], name)}")
        small = [any_machine.get((act.id, d, k)) for d in SMALL for k in (0, 1)]
        cells += [
            f"{sum(state[name]['misrounded'] for state in small):,}{beside(small, name)}"
            if all(small)
            else "-"
            for name in ("fastact", "pytorch")
        ]
        lines.append("| " + " | ".join(cells) + " |")
    where = "; ".join(title(next(iter(states.values()))) for states in machines)
    note = (
        "All 2^32 inputs of float32, of which the finite ones count; of the 16-bit types, the "
        "misrounded results among all f and f'. Special: infinite inputs with a wrong result, and "
        f"zeros of the wrong sign. {EARLIER}: of an earlier proof, in which these are not apart. "
        f"{where}."
    )
    return "\n".join([*lines, "", note, ""])


# Activations whose errors the README states.
IN_README = ("selu", "gelu", "silu", "quick_gelu", "mish")


def sentences(any_machine):
    """Returns the README's part: the errors of these activations, if all of them are known."""
    of_float32, counts = [], {"inputs": 0, "fastact": 0, "pytorch": 0}
    for name in IN_README:
        single = [any_machine.get((name, "float32", k)) for k in (0, 1)]
        small = [any_machine.get((name, d, k)) for d in SMALL for k in (0, 1)]
        if not all(single) or not all(small):
            return f"Not yet known: {name}.\n"
        of_float32.append(f"`{name}` {' and '.join(ulp(s, 'fastact') for s in single)}")
        for state in small:
            counts["inputs"] += state["inputs"]
            for who in ("fastact", "pytorch"):
                counts[who] += state[who]["misrounded"]
    return (
        "Largest errors of value and derivative among all 2^32 float32 inputs, in ULP: "
        f"{', '.join(of_float32)}.\nOf their {counts['inputs']:,} values and derivatives in "
        f"bfloat16 and float16, FastAct rounds {counts['fastact']:,} to another number than the "
        f"nearest one, PyTorch {counts['pytorch']:,}.\n"
    )


# ---- Figures


def outline(found):
    """Returns the largest error of each bin that a figure shows, by the sign of x, from zero
    outwards: |x| below NEAR, then quarters of a binade up to REACH. Returns 0 for errors of at most
    FLOOR, and None for a result without a profile."""
    if "profile" not in found:
        return found.get("outline")
    signs = []
    for sign in (0, 1 << PROFILE_BITS - 1):
        bins = [found["profile"].get(str(sign + i), 0.0) for i in range(SHOWN.stop)]
        largest = [max(bins[: SHOWN.start]), *bins[SHOWN.start :]]
        signs.append([float(f"{error:.3g}") if error > FLOOR else 0.0 for error in largest])
    return dict(zip(SIGNS, signs))


def edges():
    """Returns the edges of the bins for x > 0."""
    patterns = (i << 32 - PROFILE_BITS for i in range(SHOWN.start, SHOWN.stop + 1))
    return [0.0, *(struct.unpack("<f", struct.pack("<I", bits))[0] for bits in patterns)]


def steps(outline):
    """Returns the points of a line that is flat over each bin and absent over bins without an
    error."""
    xs, ys = [], []
    right = list(zip(edges(), edges()[1:], outline[SIGNS[0]]))
    left = [
        (-high, -low, error) for low, high, error in zip(edges(), edges()[1:], outline[SIGNS[1]])
    ]
    for low, high, error in left[::-1] + right:
        if ys and ys[-1] == error:
            xs[-1] = high  # extends the step
        else:
            xs += [low, high]
            ys += [error, error]
    return xs, [error or math.nan for error in ys]


def draw(act, states, pyplot):
    """Draws the figure of f and f' from their states."""
    figure, axes = pyplot.subplots(
        1, 2, figsize=(9, 3.8), sharex=True, sharey=True, layout="constrained"
    )
    largest = 1.0
    for state, axis in zip(states, axes):
        remarks = []
        axis.axvspan(-LINEAR, LINEAR, color="#f2f2f2", zorder=0)
        axis.axhline(0.5, label="0.5: the number nearest to the exact one", **NEAREST)
        for name, (label, style) in CONTESTANTS.items():
            xs, ys = steps(outline(state[name]))
            axis.plot(xs, ys, label=label, **style)
            drawn = [error for error in ys if not math.isnan(error)]
            largest = max([largest, *drawn])
            if state[name]["max_ulp"] < 0:
                remarks.append(f"{label}: no such derivative")
            elif not drawn:
                remarks.append(f"{label}: no error above {FLOOR} ULP")
        axis.text(0.5, 0.06, "\n".join(remarks), transform=axis.transAxes, ha="center")
        axis.set_xscale("symlog", linthresh=LINEAR)
        axis.set(yscale="log", xlim=(-REACH, REACH))
        axis.set_xticks(TICKS, [f"{tick:g}".replace("-", "\N{MINUS SIGN}") for tick in TICKS])
        axis.minorticks_off()
        axis.set_xlabel(
            f"x (grey: linear, from \N{MINUS SIGN}{LINEAR} to {LINEAR}; beyond: logarithmic)"
        )
        name = figures.readable(act.id)
        axis.set_title(f"{name}: {ORDERS[state['order']]}, float32\n{title(state)}")
    axes[0].set_ylim(FLOOR, 3 * largest)
    axes[0].set_ylabel(f"largest error (ULP)\n{FLOOR} or less: not drawn")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure

"""docs/accuracy.md and its figures, and README's sentence, from the results of `prove`.

What was found on any machine stays in a record in the repository; `make accuracy-report` adds what
this one has found to it.
"""

import json
import struct
from pathlib import Path

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
# Beside a figure of a state of format 1, in which special inputs are not apart.
EARLIER = "†"


def write(results: Path) -> int:
    """Writes the page from the record and every complete state in the folders of `results`; 1 if
    there is none."""
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
    # One machine's result is that of all (`prove --digest`): the first's of the newest format.
    any_machine: dict[tuple, dict] = {}
    for state in sorted((s for m in machines for s in m.values()), key=lambda s: -s["format"]):
        any_machine.setdefault(key(state), state)
    FIGURES.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(record(states.values()))
    shown = [a for a in OPERATORS if all((a.id, "float32", k) in any_machine for k in (0, 1))]
    drawn = 0
    for act in shown:
        both = [any_machine[act.id, "float32", k] for k in (0, 1)]
        if all(points(state, "fastact") for state in both):
            draw(act, both)
            drawn += 1
    PAGE.write_text(page(machines, any_machine, summary(machines, any_machine, shown)))
    put_between_markers("accuracy", "make accuracy-report", sentences(any_machine))
    print(f"written: {PAGE.name}, {RECORD.name}, README.md and {drawn} figures")
    return 0


def key(state):
    return state["activation"], state["dtype"], state["order"]


def read(folder):
    """The complete states of a folder."""
    for path in sorted(folder.glob("*.json")):
        state = json.loads(path.read_text())
        if state.get("format") == FORMAT and state["inputs"] == state["of"]:
            yield state


def record(states):
    """A line for each state, without the library, of which its results count, and without the
    profile, which is the figure."""

    def kept(state):
        where = {k: v for k, v in state["environment"].items() if k != "library"}
        found = {
            name: {k: v for k, v in state[name].items() if k != "profile"}
            for name in ("fastact", "pytorch")
        }
        return {**state, "environment": where, **found}

    lines = (json.dumps(kept(state), ensure_ascii=False) for state in states)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def ulp(state, name):
    """Three digits of the largest error, and as many more as tell 0.5 from just above it."""
    value, misrounded = state[name]["max_ulp"], state[name]["misrounded"]
    if value == float("inf"):
        return "inf"
    if misrounded and value <= 0.5 and not mixed(state, name):
        return "> 0.5"  # by less than the number that was kept can tell
    if value >= 1e4:
        return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    if value >= 0.51:
        return f"{value:.3g}"
    digits = 6
    while value > 0.5 and float(f"{value:.{digits}f}") <= 0.5:
        digits += 1
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def title(state):
    """The machine of a state."""
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
float64's are twice as large. [Each activation's page](operators/) has its own bounds.

`make prove` tries every activation, `prelu` included, in every type to the third derivative: all
inputs of the 16-bit types and of float32 to f'', and a fixed sample of 2^27 of float64 and of
float32's f'''. It has a progress bar and resumes after an interrupt; `make prove ARGS="--op selu
--dtype float32 --device cuda"` does a part of it. The oracle is MPFR, and interval-like arithmetic
where that suffices; never FastAct's own formulas.
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
        # Of a type all orders, then the next type.
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
    """What no machine has done, with default parameters."""
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
    """Whether infinite inputs and zeros of the wrong sign may be among the misrounded results."""
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
    """What is said beside misrounded results: how many zeros have the wrong sign, how many infinite
    inputs a wrong result; or that these are counted in."""
    if any(mixed(state, name) for state in states):
        return EARLIER
    special = sum(state[name].get(kind, 0) for state in states for kind in ("infinity", "sign"))
    return f"; special: {special:,}" if special else ""


def summary(machines, any_machine, shown):
    """The page's first table: a row for each activation, ours and PyTorch's."""
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


# Of which README says the errors.
SHOWN = ("selu", "gelu", "silu", "quick_gelu", "mish")


def sentences(any_machine):
    """README's part: the errors of SHOWN activations, where all of them are known."""
    of_float32, counts = [], {"inputs": 0, "fastact": 0, "pytorch": 0}
    for name in SHOWN:
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


def points(state, name):
    """(x, largest error) of each bin of a float32 profile, from the smallest x on."""
    shift = 32 - PROFILE_BITS
    pairs = []
    for bin_, error in state[name].get("profile", {}).items():
        (x,) = struct.unpack("<f", struct.pack("<I", (int(bin_) << shift) + (1 << shift - 1)))
        if abs(x) <= 1000:
            pairs.append((x, error))
    return sorted(pairs)


def draw(act, states):
    """The figure of f and f', from their states."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fastact"  # the same file from the same results
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
    for order, (state, axis) in enumerate(zip(states, axes)):
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

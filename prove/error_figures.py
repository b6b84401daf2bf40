"""The figures of docs/accuracy.md, and of the operators' pages: the error against x."""

import math
import struct

import figures
from accuracy import PROFILE_BITS
from op_table import OPERATORS
from pages import error_of_finite_inputs

ORDERS = {0: "f", 1: "f'", 2: "f''", 3: "f'''"}
SMALL = ("bfloat16", "float16")
# Limits of a figure. Bins narrower than a pixel (|x| below NEAR) are merged.
NEAR, REACH, FLOOR = 2.0**-5, 2.0**10, 0.01
LINEAR = 1  # the x axis is linear from -LINEAR to LINEAR
TICKS = (-1000, -100, -10, -1, 0, 1, 10, 100, 1000)
SIGNS = ("positive", "negative")
# The leading bits of NEAR and of REACH.
SHOWN = range(*(struct.unpack("<I", struct.pack("<f", x))[0] >> 32 - PROFILE_BITS
                for x in (NEAR, REACH)))  # fmt: skip
# A broad line below a thin dashed line: both are visible where they coincide, also in grey.
CONTESTANTS = {
    "fastact": ("FastAct", {"color": figures.FASTACT, "linewidth": 3.2, "linestyle": "-"}),
    "pytorch": ("PyTorch", {"color": figures.ORANGE[0], "linewidth": 1.2, "linestyle": "--"}),
}
NEAREST = {"color": figures.INK[0], "linewidth": 0.8, "linestyle": ":"}
# The ends of the axis for the largest error. An error beyond the end has a bar to the end.
LEAST, MOST = 0.1, 1e8


# ---- States


def key(state):
    return state["activation"], state["dtype"], state["order"]


def title(state):
    """Returns the name of a state's machine."""
    environment = state["environment"]
    where = environment["device"]
    if environment["instruction_set"]:
        where += f", {environment['instruction_set']}"
    return f"{where}, torch {environment['torch']}"


def is_drawn(state):
    """Returns true if a figure can show the state."""
    figured = state["dtype"] == "float32" and state["order"] in (0, 1)
    return figured and all(outline(state[name]) for name in CONTESTANTS)


def with_outline(states, act, order):
    """Returns the state for a figure: the last state of the newest format, or None if there is
    none."""
    wanted = act.id, "float32", order
    found = [state for state in states if key(state) == wanted and is_drawn(state)]
    return max(reversed(found), key=lambda state: state["format"], default=None)


# ---- The error against x


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
    """Draws the error of f and f' against x from their states."""
    figure, axes = pyplot.subplots(
        1, 2, figsize=(9, 3.6), sharex=True, sharey=True, layout="constrained"
    )
    largest = 1.0
    for state, axis in zip(states, axes):
        remarks = []
        axis.axhline(0.5, label="0.5: the number nearest to the exact one", **NEAREST)
        for name, (label, style) in CONTESTANTS.items():
            xs, ys = steps(outline(state[name]))
            axis.plot(xs, ys, label=label, **style)
            drawn = [error for error in ys if not math.isnan(error)]
            largest = max([largest, *(error for error in drawn if error < math.inf)])
            if state[name]["max_ulp"] < 0:
                remarks.append(f"{label}: no such derivative")
            elif not drawn:
                remarks.append(f"{label}: no error above {FLOOR} ULP")
        axis.text(0.5, 0.06, "\n".join(remarks), transform=axis.transAxes, ha="center")
        axis.set_xscale("symlog", linthresh=LINEAR)
        axis.set(yscale="log", xlim=(-REACH, REACH))
        axis.set_xticks(TICKS, [f"{tick:g}".replace("-", "\N{MINUS SIGN}") for tick in TICKS])
        axis.minorticks_off()
        axis.set_xlabel(f"x (linear from \N{MINUS SIGN}{LINEAR} to {LINEAR}, else logarithmic)")
        name = figures.readable(act.id)
        axis.set_title(f"{name}: {ORDERS[state['order']]}, float32\n{title(state)}")
    axes[0].set_ylim(FLOOR, 3 * largest)
    axes[0].set_ylabel(f"largest error (ULP)\n{FLOOR} or less: not drawn")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def panels(found, dtypes, value, pyplot, label, text, most=math.inf):
    """Draws bars of both contestants for each default activation: a panel for f and one for f'.
    Returns the figure and its axes, or None if a result is missing."""
    names = [act.id for act in OPERATORS]
    wanted = [(op, d, k) for op in names for d in dtypes for k in (0, 1)]
    if not all(key in found for key in wanted):
        return None, ()
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 6.6), sharey=True, layout="constrained")
    colors = {"fastact": figures.FASTACT, "pytorch": figures.PYTORCH}
    for order, axis in enumerate(axes):
        series = {
            CONTESTANTS[name][0]: (
                color, [value([found[op, d, order] for d in dtypes], name) for op in names]
            )
            for name, color in colors.items()
        }  # fmt: skip
        figures.bars(axis, [act.name for act in OPERATORS], series, text, most=most)
        axis.set_title(f"{ORDERS[order]}, {' and '.join(dtypes)}")
        axis.set_xlabel(label)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure, axes


def error_text(error):
    if error in (0, math.inf):
        return "0" if error == 0 else "infinite"
    return f"{error:.2g}".replace("e+0", "e").replace("e+", "e")


def largest_errors(dtype):
    def draw_bars(found, pyplot):
        def value(states, name):
            error = error_of_finite_inputs(states[0], name)
            return None if error < 0 else error

        label = f"largest error (ULP, logarithmic; bars end at {MOST:.0e})".replace("e+0", "e")
        figure, axes = panels(found, (dtype,), value, pyplot, label, error_text, MOST)
        for axis in axes:
            axis.set(xscale="log", xlim=(LEAST, 100 * MOST))
            axis.set_xticks([0.1, 1, 1e2, 1e4, 1e6, 1e8])
            axis.minorticks_off()
            axis.axvline(0.5, **NEAREST)
        return figure

    return draw_bars


def misrounded(found, pyplot):
    def value(states, name):
        if states[0][name]["max_ulp"] < 0:
            return None
        return 100 * sum(s[name]["misrounded"] for s in states) / sum(s["inputs"] for s in states)

    label = "misrounded results (%)"
    figure, axes = panels(found, SMALL, value, pyplot, label, "{:.2g}".format)
    for axis in axes:
        axis.set_xlim(0, 1.15 * max(patch.get_width() for patch in axis.patches))
    return figure


BARS = {
    "float32": largest_errors("float32"),
    "float64": largest_errors("float64"),
    "sixteen_bits": misrounded,
}

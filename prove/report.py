"""Writes docs/accuracy.md, docs/digests.md and their figures from the results of `prove`.

The repository contains records of the results on all machines. `make report` adds those of this
machine.
"""

import json
import textwrap
from pathlib import Path

import torch

import digest_page
import figures
import prelu
from accuracy import FORMAT, SPECIAL
from error_figures import (
    BARS,
    CONTESTANTS,
    ORDERS,
    SMALL,
    draw,
    is_drawn,
    key,
    outline,
    title,
    with_outline,
)  # fmt: skip
from op_table import ACTIVATIONS, OPERATORS
from pages import error_of_finite_inputs
from support import DTYPES, dtype_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "accuracy.md"
FIGURES = ROOT / "docs" / "accuracy"
WIDTH = 120
RECORD = FIGURES / "results.json"
PRELU = [(f"prelu{form.name}", form.order) for form in prelu.FORMS]
ORDER_WORDS = ("value", "first derivative", "second derivative", "third derivative")


def write(results: Path) -> int:
    """Writes the pages from the records and every complete state in the folders of `results`.
    Returns 1 if there is none."""
    new = [state for folder in sorted(results.glob("*")) for state in read(folder)]
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else []
    states = {(title(s), *key(s)): s for s in (*recorded, *new)}
    if not states:
        print(f"expected results in {results}, but got none that is complete: run make prove")
        return 1
    FIGURES.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(record(states.values()))
    found = newest(states.values())
    drawn = 0
    for act in OPERATORS:
        both = [with_outline(states.values(), act, k) for k in (0, 1)]
        if all(both):
            with figures.drawing() as pyplot:
                figures.save(draw(act, both, pyplot), FIGURES / f"{act.id}.svg")
            drawn += 1
    for name, draw_bars in BARS.items():
        with figures.drawing() as pyplot:
            if figure := draw_bars(found, pyplot):
                figures.save(figure, FIGURES / f"{name}.svg")
                drawn += 1
    PAGE.write_text(page(found))
    digest_page.write(results / "digests")
    print(f"written: {PAGE.name}, {RECORD.name}, {digest_page.PAGE.name} and {drawn} figures")
    return 0


def read(folder):
    """Yields the complete states of a folder."""
    for path in sorted(folder.glob("*.json")):
        state = json.loads(path.read_text())
        if state.get("format") == FORMAT and state["inputs"] == state["of"]:
            yield state


def newest(states):
    """Returns a state for each activation, type and order. All machines have the same results
    (`prove --digest`). So the state with the newest format is used; among these, the state with the
    most inputs; and among these, the last one."""
    found = {}
    for state in states:
        earlier = found.get(key(state), {"format": 0, "inputs": 0})
        ranks = [(s["format"], s["inputs"]) for s in (state, earlier)]
        if ranks[0] >= ranks[1]:
            found[key(state)] = state
    return found


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


def ulp(state, name):
    """Returns the largest error with three digits, or with as many as distinguish 0.5 from a number
    just above it."""
    value, misrounded = state[name]["max_ulp"], state[name]["misrounded"]
    if value == float("inf"):
        return "inf"
    if misrounded and value <= 0.5 and not may_be_special(state, name):
        return "> 0.5"  # the excess is below the precision of the stored number
    if value >= 1e4:
        return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    if value >= 0.51:
        return f"{value:.3g}"
    digits = 6
    while value > 0.5 and float(f"{value:.{digits}f}") <= 0.5:
        digits += 1
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def may_be_special(state, name):
    """Returns true if the misrounded results may include infinite inputs and zeros of the wrong
    sign, which format 1 does not count separately."""
    return state["format"] < FORMAT and state[name]["misrounded"] > 0 and name == "pytorch"


# ---- The page

INTRODUCTION = """\
# Accuracy

`make report` writes this page and its figures from the results of `make prove`, which are stored in
[results.json](accuracy/results.json). Errors are in ULP (units in the last place of the exact
value). Errors of derivatives are measured with an incoming gradient of 1. A result is misrounded if
it is not the number nearest to the exact value; its error is then above 0.5 ULP. Exact values come
from MPFR or from enclosures, never from FastAct's own formulas. An enclosure is a value computed in
wider arithmetic, with a bound on its error. If an enclosure leaves two possible results, MPFR
decides.

## What is promised, and what is tested

FastAct's accuracy contract consists of the bounds below, and of rules for infinities, NaN,
subnormal numbers and the sign of zero. [Each operator's page](reference/operators.md) lists its
bounds, and plots its error against x.

With default parameters, every value and derivative in bfloat16 and float16 is correctly rounded,
and so is each float32 value of SELU, ELU, CELU and of [some activations without an
exponential](faq.md#why-are-float32-results-not-all-correctly-rounded). The other float32 values are
within 2 ULP, and the first three derivatives within {float32}. In float64, values are within 1.5
ULP, and the first three derivatives within 10, 16 and 60 in the worst cases (tanh GELU and Mish).
Near a zero of some float64 derivatives, terms cancel. If such a derivative is below 1/16 and
|x| < 10, the same bound holds in ULP of the number 1/16 instead of the exact value.

With other finite parameters, the float64 bounds are twice as large. In the other types, bounds
below 0.51 ULP become 0.51 ULP, and the bound of float32 Softplus values becomes 2 ULP. The in-place
gradients of SELU, ELU, CELU and Leaky ReLU are [less
exact](explanation/computation.md#how-accurate).

`make prove` tests every activation in every dtype to the third derivative, and `prelu` to the
second. For the 16-bit types it tests all inputs. For float32 it tests all inputs up to the second
derivative (f''), and 2^27 fixed inputs for the third. For float64 it tests 2^27 fixed inputs, and
for `prelu` 2^27 fixed sets of operands. The recorded runs used smaller samples for float64 and for
the third derivative in float32: [what is not proven](#what-is-not-proven) lists their sizes and
what the record lacks. To run a part of the proof:
`make prove ARGS="--op selu --dtype float32 --device cuda"`.
"""
CLOSING = """\
## What is not proven

- Gradients other than 1: multiplying by them adds one more rounding. The digests cover them.
- The sum in the gradient of `prelu`'s weight, which is PyTorch's.
"""


def unproven(found):
    """Returns a line with the types and derivatives that were tested only on a sample, and a line
    for each derivative that the record lacks."""
    lacking, samples = {}, []
    for dtype in DTYPES:
        for order, form in ORDERS.items():
            name = f"{dtype_name(dtype)} {form}"
            wanted = [act.id for act in OPERATORS] + [p for p, k in PRELU if k == order]
            states = [found.get((op, dtype_name(dtype), order)) for op in wanted]
            missing = [op for op, state in zip(wanted, states) if state is None]
            if missing:
                every = len(missing) == len(wanted)
                ops = "all operators" if every else listed([in_words(op) for op in missing])
                lacking.setdefault((ORDER_WORDS[order], ops), []).append(dtype_name(dtype))
            tried = [state["inputs"] for state in states if state is not None]
            if tried and (dtype == torch.float64 or dtype_name(dtype) == "float32" and order == 3):
                samples.append(f"{name} 2^{min(tried).bit_length() - 1}")
    lines = [f"- Tested on a sample of at least this many inputs: {', '.join(samples)}."] * bool(
        samples
    )
    return lines + [
        f"- The record lacks the {form} of {ops} in {listed(dtypes)}."
        for (form, ops), dtypes in lacking.items()
    ]


def listed(words):
    """Returns words as a list in a sentence: "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def in_words(op):
    """Returns the name of an operator, such as "prelu by input", in the words of the page."""
    name, by, operand = op.partition(" by ")
    return f"`{name}`" + (f" (by {operand})" if by else "")


def largest(found, dtype, order, name="fastact"):
    """Returns the state with the largest error of a default activation."""
    states = [found[act.id, dtype, order] for act in OPERATORS if (act.id, dtype, order) in found]
    return max(states, key=lambda state: state[name]["max_ulp"], default=None)


def bounds():
    """Returns the largest bounds of float32's derivatives, in words."""
    first, second, third = (max(act.ulp[DTYPES[0]][k] for act in OPERATORS) for k in (1, 2, 3))
    return f"{first:g}, {second:g} and {third:g}"


def is_broken(state):
    """Returns true if a result is beyond the contract. A state whose contract was changed later is
    judged by its largest error, if nothing else was wrong."""
    ours = state["fastact"]
    bound = next(
        (a.ulp[getattr(torch, state["dtype"])][state["order"]] for a in ACTIVATIONS
         if a.id == state["activation"]),
        state["contract"],
    )  # fmt: skip
    if bound != state["contract"] and not any(ours.get(name) for name in SPECIAL):
        return ours["max_ulp"] > bound
    return ours["beyond_contract"] > 0


def wrapped(text):
    """Returns the text wrapped, with the lines of a list's item indented."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False) + "\n"


def page(found):
    broken = [state for state in found.values() if is_broken(state)]
    told = (
        f"{len(found):,} combinations of activation, parameters, dtype and derivative were tested, "
    )
    told += f"{sum(state['inputs'] for state in found.values()):,} inputs in all. "
    told += "The contract holds for every one." if not broken else "The contract is broken for: "
    told += ", ".join(f"{s['activation']} {s['dtype']} {ORDERS[s['order']]}" for s in broken)
    lines = [INTRODUCTION.format(float32=bounds()), wrapped(told)]
    for heading, name, alternative, text in sections(found):
        lines += [f"## {heading}\n", wrapped(text), f"![{alternative}](accuracy/{name}.svg)\n"]
    return "\n".join([*lines, CLOSING]) + "".join(map(wrapped, unproven(found)))


def sections(found):
    """Yields heading, figure, alternative text and text of each figure whose results are known."""
    defaults = [act.id for act in OPERATORS]
    if all((op, "float32", k) in found for op in defaults for k in (0, 1)):
        ends = [ulp(largest(found, "float32", k), "fastact") for k in (0, 1)]
        theirs = sum(
            error_of_finite_inputs(found[op, "float32", k], "pytorch") > 100
            for op in defaults
            for k in (0, 1)
        )
        yield (
            "float32",
            "float32",
            f"FastAct's largest error is {ends[0]} ULP, PyTorch's goes beyond 100 in {theirs} of "
            f"{2 * len(defaults)} bars",
            f"The largest error among all 2^32 inputs is {ends[0]} ULP of a value and {ends[1]} "
            "ULP "
            f"of a first derivative. PyTorch's largest error is above 100 ULP in {theirs} of the "
            f"{2 * len(defaults)} cases ({len(defaults)} activations, value and first derivative), "
            "because its formulas cancel in a tail or underflow too early.",
        )
    small = [
        found[op, d, k] for op in defaults for d in SMALL for k in (0, 1) if (op, d, k) in found
    ]
    if len(small) == 4 * len(defaults):
        ours, theirs = (sum(s[name]["misrounded"] for s in small) for name in CONTESTANTS)
        worst = max(100 * s["pytorch"]["misrounded"] / s["inputs"] for s in small)
        yield (
            "16-bit types",
            "sixteen_bits",
            f"FastAct misrounds {ours or 'no'} 16-bit result, PyTorch up to {worst:.0f} % of them",
            f"Among the {sum(s['inputs'] for s in small):,} values and first derivatives in "
            f"bfloat16 and float16, FastAct misrounds {f'{ours:,}' if ours else 'none'} and "
            f"PyTorch {theirs:,}.",
        )
    if (FIGURES / "gelu.svg").exists():
        yield (
            "Where the errors are",
            "gelu",
            "GELU: FastAct stays near 1 ULP for every x, PyTorch's error grows in the negative "
            "tail",
            "The figure shows GELU's largest error in each quarter of a binade. PyTorch loses all "
            "digits in the negative tail, where the result is small but not zero.",
        )
    if all((op, "float64", k) in found for op in defaults for k in (0, 1)):
        ends = [ulp(largest(found, "float64", k), "fastact") for k in (0, 1)]
        yield (
            "float64",
            "float64",
            f"FastAct's largest error is {ends[0]} ULP of a value, {ends[1]} of a derivative",
            f"The largest error in the sample is {ends[0]} ULP of a value and {ends[1]} ULP of a "
            "first derivative.",
        )

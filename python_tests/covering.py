"""Combinations of operands, layouts, types and operators. With allpairspy a few hundred calls
contain every pair of values of any two dimensions. The nightly run adds random combinations."""

import itertools
import os
import random
from collections import OrderedDict
from functools import cache

from allpairspy import AllPairs

from combinations import BITS, Combination
from modes import (
    BESIDE_INFERENCE,
    COMPILED,
    FORWARD_MODE,
    IN_FLOAT64,
    IN_PLACE,
    SECOND_ORDER,
    SUMS,
    VMAP,
    WITHOUT_GRADIENTS,
)
from operator_rows import FAMILIES_OF_DERIVATIVES, family, rows
from support import NIGHTLY

TYPES = (
    "float32", "float64", "bfloat16", "float16", "bfloat16 float32", "float16 float32",
)  # fmt: skip
# (shape, dim): images, rows, one dimension, one number, no elements. Some are longer than the
# kernels' vectors and blocks.
SHAPES = (
    ((2, 4, 3, 2), -1), ((2, 4, 3, 2), 1), ((3, 4), -1), ((3, 4), 0), ((6,), -1), ((), -1),
    ((0, 4), -1), ((2, 0, 3, 2), 1), ((5, 130), -1), ((2, 3, 33, 16), 1),
)  # fmt: skip
# Shapes at the limits of the kernels' vectors, tiles and blocks, for the modes that compare bits
# and sums.
EDGES = (
    ((9, 513), -1), ((3, 4500), -1), ((500, 3), -1), ((67, 37), 0), ((20, 256), -1), ((65, 1), -1),
    ((3, 20, 300), -1), ((2, 33, 7, 7), 1), ((1, 130, 5, 5), 1), ((3, 90, 3, 4), 1),
    ((2, 3, 70, 61), 1), ((1025,), -1), ((2, 16, 8, 8), 1), ((40, 5, 1, 3), 1), ((2053, 1), -1),
    ((107, 20), -1), ((9, 127), -1), ((9, 129), -1), ((9, 2048), -1),
)  # fmt: skip
# The modes that run for every operator. The others run for one operator of each kind, because the
# operators of a kind differ only by their formula.
OF_FORMULAS = ("value", "backward", "in_place_backward", "double_backward", "func_jvp")
# The modes of the second and third derivatives. All other modes see them as gradients.
OF_DERIVATIVES = (
    "value", "backward", "double_backward", "func_jvp", "func_jvp_of_vjp", "vmap",
    "backward_of_vmap", "vmap_of_grad", "vmap_of_jvp", "bits", "meta", "fake", "aot_eager",
)  # fmt: skip
# Modes that run every pair of values. The others reach FastAct's code in the same way, and differ
# in what PyTorch does around it. They run a part of the calls, except in the nightly run.
EVERY_PAIR = (
    *OF_FORMULAS, "in_place", "out", "vmap", "backward_of_vmap", "func_jvp_of_vjp", SUMS,
    BESIDE_INFERENCE, *COMPILED,
)  # fmt: skip
# The others run every third call. A fake tensor takes 0.3 s.
EVERY_NTH = {"fake": 48, "bits": 2}
INCOMING = ("full", "full expanded", "full transposed", "full strided")
BATCHED = ("batched", "", "batched_last")
# Random calls for each family in each mode. 2500 take `make fuzz` half an hour.
EXAMPLES = int(os.environ.get("FASTACT_FUZZ_EXAMPLES", 0)) // 4
SEED = os.environ.get("FASTACT_FUZZ_SEED", "0")


def shapes_of(mode):
    return EDGES if mode == SUMS else SHAPES + EDGES if mode == BITS else SHAPES


def dimensions(name, mode):
    """Returns the values of each dimension in which a family's calls of a mode vary."""
    members = [
        row for row in family(name) if row.is_representative or mode in OF_FORMULAS or NIGHTLY
    ]
    result = OrderedDict(
        operator=[row.name for row in members],
        type=TYPES if name == "fused" else TYPES[:4],
        shape=[s for s in shapes_of(mode) if name != "packed" or s[0]],
        incoming=INCOMING,
    )
    for operand in members[0].operands:
        result[operand.name] = (*((None,) if operand.is_optional else ()), *operand.placements)
        result[operand.name + "_grad"] = ("grad", "")
        result[operand.name + "_batched"] = BATCHED
    if name == "fused":
        result["inference"] = (None, "scale", "bias", "residual", "gate")
    return result


@cache
def pairs_of(dimensions):
    """Returns rows that contain every pair of values of any two dimensions."""
    names = [name for name, _ in dimensions]
    found = AllPairs([list(values) for _, values in dimensions])
    return tuple(dict(zip(names, row)) for row in found)


def every_pair(name, mode):
    """Returns the values of a family's calls of a mode."""
    return pairs_of(tuple((key, tuple(found)) for key, found in dimensions(name, mode).items()))


def missing_pairs(name, mode):
    """Yields the pairs that every_pair() lacks; there should be none."""
    chosen = list(dimensions(name, mode).items())
    found = every_pair(name, mode)
    for (a, first), (b, second) in itertools.combinations(chosen, 2):
        present = {(row[a], row[b]) for row in found}
        yield from ((a, x, b, y) for x in first for y in second if (x, y) not in present)


def random_rows(name, mode):
    """Yields random rows in the nightly run. FASTACT_FUZZ_EXAMPLES sets their number, and a seed
    always gives the same rows. Yields none for compiled modes, which would take too long."""
    draw = random.Random(f"{SEED} {name} {mode}")
    chosen = dimensions(name, mode)
    for _ in range(0 if mode in COMPILED else EXAMPLES):
        yield {key: draw.choice(values) for key, values in chosen.items()}


def combination(values, mode, seed):
    """Returns the call of a mode with these values, except values that the mode does not use."""
    row = rows()[values["operator"]]
    dtype, *wide = values["type"].split()
    if mode in SECOND_ORDER:  # 16-bit sums of products are too inexact
        dtype, wide = ("float64", "float32")[seed % 2], []
    if mode in IN_FLOAT64:
        dtype, wide = "float64", []
    shape, dim = values["shape"]
    present = [o for o in row.operands if values[o.name] is not None]
    needs = [o.name for o in present if values[o.name + "_grad"]]
    if mode in WITHOUT_GRADIENTS:
        needs = []
    elif not needs:
        needs = [present[seed % len(present)].name]
    batched = {o.name: values[o.name + "_batched"] for o in present} if mode in VMAP else {}
    if mode in VMAP and (not any(batched.values()) or mode in IN_PLACE):
        batched[present[0].name] = batched[present[0].name] or "batched"
    operands = {}
    for operand in present:
        name = operand.name
        words = [values[name]]
        if wide and name in ("scale", "bias"):
            words += wide
        if name in needs:
            words.append("grad")
        elif values.get("inference") == name and mode == BESIDE_INFERENCE:
            words.append("inference")
        if batched.get(name):
            words.append(batched[name])
        operands[name] = " ".join(words)
    return Combination(
        row.name, mode, operands, dtype=dtype, shape=shape, dim=dim, incoming=values["incoming"],
        seed=seed,
    )  # fmt: skip


def combinations(name, mode):
    """Returns the calls of a family in a mode."""
    listed = itertools.chain(every_pair(name, mode), random_rows(name, mode))
    found = (combination(values, mode, seed) for seed, values in enumerate(listed))
    step = 1 if NIGHTLY or mode in EVERY_PAIR else EVERY_NTH.get(mode, 3)
    return [c for c in found if is_possible(c)][::step]


def is_possible(c):
    """Returns true if the operator, and PyTorch, support the call."""
    row = c.row
    if row.family in FAMILIES_OF_DERIVATIVES[1:] and c.mode not in OF_DERIVATIVES:
        return False
    if c.mode == SUMS and row.family != "fused":
        return False
    if c.mode == BESIDE_INFERENCE:
        return bool(c.having("inference"))
    if c.mode == "in_place_backward":
        return row.differentiates_in_place
    if c.mode in FORWARD_MODE and any("expanded" in c.words(name) for name in c.having("grad")):
        return False  # PyTorch makes no dual numbers of expanded tensors
    if c.mode in IN_PLACE:
        return row.call_ is not None
    return row.has_out if c.mode in ("out", "functionalize_out") else True


def every_set_of_operands(row, vectors="full", **others):
    """Yields every choice of each operand: absent, present, or with a gradient. `vectors` is the
    shape of scale and bias."""
    states = [(None, "", "grad") if o.is_optional else ("", "grad") for o in row.operands]
    for state in itertools.product(*states):
        if "grad" not in state:
            continue
        operands = {
            o.name: f"{vectors if o.name in ('scale', 'bias') else 'full'} {word}".strip()
            for o, word in zip(row.operands, state)
            if word is not None
        }
        yield Combination(row.name, operands=operands, **others)

"""Calls every operator in every mode, with covering combinations of operands, layouts, types and
shapes. Compares values and gradients with PyTorch's compositions in float64.

A failure prints its call in one line. To repeat it, in python_tests:

    from conftest import *; from combinations import *; from checking import *
    check(Combination(...))
"""

import itertools
from dataclasses import replace

import pytest
import torch
from torch.func import vmap
from torch.nn import functional as F

from checking import check_all, check_compiled, documented_error
from combinations import BITS, Call, Combination, drawn
from covering import combinations, every_set_of_operands, missing_pairs
from modes import COMPILED, IN_PLACE, MODES, VMAP, WITHOUT_GRADIENTS
from op_table import ACTIVATIONS, OPERATORS, REPRESENTATIVES
from operator_rows import FAMILIES, family
from schema_checks import BELOW_FUSED, FORMS, check_below_fused, check_form
from support import DTYPES, LAYOUTS, NIGHTLY, dtype_name, error_of, make

EAGER = [mode for mode in MODES if mode not in (*COMPILED, "saves_no_more")]
fastact = torch.ops.fastact


def rows_named(*names):
    return [row for name in FAMILIES for row in family(name) if row.name in names]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_pair_is_covered(name):
    for mode in ("value", "vmap"):
        assert not list(missing_pairs(name, mode))


@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("name", FAMILIES)
def test_mode(name, mode):
    listed = combinations(name, mode)
    if not listed:
        pytest.skip("no operator of the family has this form")
    check_all(listed)


# test_autocast.py tests which operators a GPU's autocast casts, and to which type. Meta stands for
# the CPU, whose strides of results of several types differ from a GPU's.
@pytest.mark.parametrize("mode", [mode for mode in EAGER if mode not in ("autocast", "meta")])
@pytest.mark.parametrize("name", FAMILIES)
def test_mode_on_a_gpu(name, mode, cuda):
    listed = combinations(name, mode)
    if not listed:
        pytest.skip("no operator of the family has this form")
    check_all([replace(c, device=cuda) for c in listed])


@pytest.mark.parametrize("act", ACTIVATIONS if NIGHTLY else OPERATORS, ids=lambda act: act.id)
def test_every_set_of_operands(act):
    """Each operand is absent, present or requires a gradient, in every combination."""
    (row,) = rows_named("fused_" + act.id)
    check_all(every_set_of_operands(row, mode="backward", shape=(2, 3)))


def test_every_set_of_operands_under_func_grad(act):
    (row,) = rows_named("fused_" + act.id)
    check_all(every_set_of_operands(row, mode="func_grad", shape=(2, 3)))


@pytest.mark.parametrize("act", REPRESENTATIVES, ids=lambda act: act.id)
def test_saved_memory(act, device):
    """A fused form saves at most what PyTorch's operators save, for every set of operands."""
    (row,) = rows_named("fused_" + act.id)
    options = {"shape": (64, 32), "vectors": "vector", "device": device}
    check_all(every_set_of_operands(row, mode="saves_no_more", **options))


def calls_of_layout(name, layout, mode):
    """Calls of two rows with every operand, and with only one, in this layout."""
    shape = tuple(make(layout).shape)
    word = " as_" + layout
    if name == "packed":
        if not shape or shape[-1] % 2:
            return
        shape = (*shape[:-1], shape[-1] // 2)
    grad = "" if mode in WITHOUT_GRADIENTS else " grad"
    for row in [row for row in family(name) if row.is_representative][:2]:
        operands = [o for o in row.operands if o.name != "weight"]
        # One dtype is enough on Meta, where layouts do not depend on it.
        for i, dtype in enumerate(DTYPES[:1] if mode == "meta" else DTYPES):
            chosen = operands[i - 1 : i] if i else operands
            if mode in IN_PLACE:
                chosen = operands[:1]
            words = {o.name: "full" + (word if o in chosen else "") + grad for o in operands}
            if len(operands) < len(row.operands):
                words["weight"] = "channels" + grad
            yield Combination(row.name, mode, words, dtype=dtype_name(dtype), shape=shape, seed=i)


@pytest.mark.parametrize("name", FAMILIES)
def test_layouts(name, device):
    """Layouts that few programs use."""
    modes = [BITS, "meta"] if device == "cpu" else [BITS]
    listed = [c for a in LAYOUTS for mode in modes for c in calls_of_layout(name, a, mode)]
    if family(name)[0].call_:  # PyTorch cannot tell that windows overlap
        for layout in LAYOUTS:
            if layout != "overlapping_windows":
                listed += calls_of_layout(name, layout, "in_place")
    check_all([replace(c, device=device) for c in listed])


# ---- types


@pytest.mark.parametrize("mode", ("value", "backward", "vmap", "backward_of_vmap"))
def test_types_of_fused_operands(mode):
    """An operand of another type is an error, except float32 scale and bias beside 16-bit types.
    This also holds if vmap turns 0-dimensional operands into vectors."""
    check_all(
        Combination(
            "fused_silu",
            mode,
            {
                "self": own + (" grad" if "backward" in mode else "") + batch,
                name: f"{place} {dtype_name(other)}{batch}",
                **({"scale": "zero_dim float32"} if name == "gate" and dtype.itemsize == 2 else {}),
            },
            dtype=dtype_name(dtype),
            shape=(3, 4),
        )
        for dtype, other in itertools.product(DTYPES, DTYPES)
        for name in ("scale", "bias", "residual", "gate")
        for own, place in itertools.product(("full", "zero_dim"), ("zero_dim", "one", "full"))
        for batch in ((" batched", " batched_last") if mode in VMAP else ("",))
    )


@pytest.mark.parametrize("mode", ("value", "backward", "vmap", "backward_of_vmap"))
@pytest.mark.parametrize(
    "operator",
    (
        *("silu_backward", "tanh_backward", "_clamped_swiglu"),
        *("selu_double_backward", "relu_triple_backward"),
    ),
)
def test_types_that_promote(operator, mode):
    """The result has the type of PyTorch's result, and each gradient has its operand's type."""
    (row,) = rows_named(operator)
    *first, second = (o.name for o in row.operands)
    check_all(
        Combination(
            operator,
            mode,
            {
                **dict.fromkeys(first, f"{place} grad {dtype_name(dtype)}{batches[0]}"),
                second: f"{other_place} grad {dtype_name(other)}{batches[1]}",
            },
            shape=(3, 4),
        )
        for dtype, other in itertools.product(DTYPES, DTYPES)
        for place, other_place in itertools.product(("full", "zero_dim"), repeat=2)
        for batches in (((" batched", ""), ("", " batched")) if mode in VMAP else (("", ""),))
    )


def test_one_tensor_as_several_operands(act, dtype):
    """The tensor's gradient is the sum of the operands' gradients."""
    op = (rows_named("fused_" + act.id)[0]).call
    x, scale, shift = (drawn([], (3, 8), n, dtype, 0) for n in ("argument", "odd", "shift"))
    roles = {"self": x, "scale": scale, "bias": shift, "residual": shift, "gate": x}
    apart = {name: t.clone().requires_grad_() for name, t in roles.items()}
    op(apart, -1).sum().backward()
    leaves = {id(t): t.clone().requires_grad_() for t in (x, scale, shift)}
    op({name: leaves[id(t)] for name, t in roles.items()}, -1).sum().backward()
    for t, names in ((x, ("self", "gate")), (scale, ("scale",)), (shift, ("bias", "residual"))):
        expected = sum(apart[name].grad for name in names)
        assert torch.equal(leaves[id(t)].grad, expected), names


# ---- torch.compile


def compiled_calls(names, mode, count):
    """About `count` calls of each family, more in the nightly run, in lists of up to 12."""
    listed = []
    for name in names:
        calls = [c for c in combinations(name, mode) if documented_error(Call(c)) is None]
        listed += calls[:: len(calls) // (60 if NIGHTLY else count) + 1]
    return [listed[i : i + 12] for i in range(0, len(listed), 12)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", COMPILED[: 2 if NIGHTLY else 1])
@pytest.mark.parametrize("name", FAMILIES)
def test_compiled(name, mode, fresh_compiler):
    for listed in compiled_calls([name], mode, 12):
        check_compiled(listed)


@pytest.mark.slow
def test_compiled_with_the_gates_gradient_alone(fresh_compiler):
    """Every set of other operands is present or absent."""
    (row,) = rows_named("fused_silu")
    listed = every_set_of_operands(row, mode=COMPILED[0], shape=(2, 3))
    check_compiled([c for c in listed if c.having("grad") == ("gate",)])


@pytest.mark.slow
def test_compiled_by_inductor(fresh_compiler, device):
    for mode in COMPILED[2:]:
        for listed in compiled_calls(FAMILIES, mode, 1):
            check_compiled([replace(c, device=device) for c in listed])


@pytest.mark.newest
@pytest.mark.slow
@pytest.mark.parametrize("backend", ("aot_eager", "inductor")[: 2 if NIGHTLY else 1])
def test_compiled_in_place_has_the_gradients_bits_of_eager(backend, fresh_compiler):
    """Includes tails, where gradients from the result and from the input differ."""
    acts = [act for act in ACTIVATIONS if hasattr(fastact, act.name)]
    points = torch.tensor([-40.0, -20.0, -12.0, -8.0, -3.3, -1.0, -0.1, 0.3, 2.0, 9.0])

    def function(leaves):
        return [act.op_(x * 1) for act in acts for x in leaves[act.id]]

    def gradients(f):
        leaves = {
            act.id: [points.to(t, copy=True).requires_grad_() for t in DTYPES] for act in acts
        }
        results = f(leaves)
        torch.autograd.backward(results, [torch.ones_like(r) for r in results])
        return {(a, x.dtype): x.grad for a, several in leaves.items() for x in several}

    found = gradients(torch.compile(function, backend=backend, fullgraph=True))
    wrong = [
        f"{name} in {dtype_name(dtype)}: {found[name, dtype].tolist()}, not {grad.tolist()}"
        for (name, dtype), grad in gradients(function).items()
        if not torch.equal(found[name, dtype], grad)
    ]
    assert not wrong, "\n".join(wrong)


# ---- vmap of random operators


def masks(function, is_batched, randomness, device):
    """Compares the masks of three slices: "error", "equal" or "different"."""
    x = torch.randn(3, 200, device=device)

    def one(x):
        return function(x if is_batched else torch.ones(200, device=device)) + 0 * x

    if error_of(vmap(one, randomness=randomness), x) is not None:
        return "error"
    dropped = vmap(one, randomness=randomness)(torch.zeros_like(x))
    return "equal" if torch.equal(dropped[0], dropped[1]) else "different"


@pytest.mark.parametrize("train", (True, False))
@pytest.mark.parametrize("randomness", ("error", "different", "same"))
@pytest.mark.parametrize("is_batched", (True, False), ids=("batched", "unbatched"))
def test_randomness_of_vmap_is_that_of_alpha_dropout(is_batched, randomness, train, device):
    def theirs(x):
        return F.alpha_dropout(F.selu(x), 0.5, train)

    def ours(x):
        return fastact.selu_alpha_dropout(x, 0.5, train)

    expected = masks(theirs, is_batched, randomness, device)
    assert masks(ours, is_batched, randomness, device) == expected


# ---- torch.library.opcheck


def opchecked(name, form):
    """Returns a few calls of a family, in the nightly run a tenth of them."""
    mode = {"functional": "backward", "in_place": "in_place", "out": "out"}[form]
    listed = [c for c in combinations(name, mode) if not c.row.draws]
    return listed[3 :: 10 if NIGHTLY else max(1, len(listed) // 4)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FAMILIES)
def test_opcheck(name, form, device):
    listed = [c for c in opchecked(name, form) if documented_error(Call(c)) is None]
    listed = [replace(c, device=device) for c in listed]
    if not listed:
        pytest.skip("no operator of the family has this form")
    check_all([(form, c) for c in listed], check_form)


@pytest.mark.parametrize("suffix", BELOW_FUSED)
@pytest.mark.parametrize("act", REPRESENTATIVES, ids=lambda act: act.id)
def test_opcheck_below_fused(act, suffix):
    """Operands that are vectors, that broadcast, and that have the full shape."""
    listed = [
        Combination(f"fused_{act.id}", "backward", operands, shape=(3, 4))
        for operands in (
            {"self": "full grad", "bias": "vector grad"},
            {"self": "full grad", "scale": "vector grad", "gate": "full grad"},
            {"self": "full", "residual": "full grad", "gate": "row grad"},
            dict.fromkeys(("self", "scale", "bias", "residual", "gate"), "full transposed grad"),
        )
    ]
    # Only the gradients depend on which operands are present.
    check_all(
        [(suffix, c) for c in listed[:: 1 if suffix == "_backward" else 3]], check_below_fused
    )

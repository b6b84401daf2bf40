"""Modes of test_combinations.py that compare a call with another call of the same operator, or with
PyTorch's composition: bits, layouts, Meta, saved memory and derivatives of the third order. Each
mode takes a Call and raises an AssertionError."""

import contextlib
import re
from dataclasses import replace

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._prims_common import compute_elementwise_output_strides
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from combinations import Composed, drawn, incoming_like
from support import assert_same_bits, error_of, first_line, no_vmap_fallback, untouched


def without_fallback(call):
    """Forbids vmap's fallback, except for operators with a given seed (docs/reference/fused.md)."""
    return contextlib.nullcontext() if call.c.row.family == "dropout" else no_vmap_fallback()


def views(call):
    """Returns the operands as views that broadcast."""
    rank = call.tensors[call.c.row.leading].dim()
    return {n: call.c.row.align(n, t, rank, call.c.dim) for n, t in call.tensors.items()}


def gradients(call, operator, tensors, names, incoming, create_graph=False):
    """Returns the result of an operator, and the gradients of these operands."""
    leaves = {n: t.detach().requires_grad_(n in names) for n, t in tensors.items()}
    torch.manual_seed(call.c.seed)
    result = operator(leaves, call.c.dim)
    incoming = incoming_like(call.c, result) if incoming is None else incoming
    found = torch.autograd.grad(
        result, [leaves[n] for n in names], incoming, create_graph=create_graph
    )
    return result.detach(), dict(zip(names, (t.detach() for t in found))), incoming


def bits(call):
    """The result has the bits of a call with contiguous operands of its shape, and the strides of
    PyTorch's elementwise operators. In float32 and float64, this also holds for gradients; those of
    a fused form have the bits of a composition of PyTorch's operators. No operand changes."""
    row = call.c.row
    with untouched(*call.tensors.values()):
        result, found, incoming = gradients(call, row.call, call.tensors, call.needs, None)
        again = gradients(call, row.call, call.tensors, call.needs, incoming, create_graph=True)[1]
    full = call.tensors if row.halves else views(call)
    full = {n: (t if row.halves else t.expand(result.shape)).contiguous() for n, t in full.items()}
    dense_call = row.dense_call or row.call
    whole = [n for n in call.needs if call.tensors[n].shape == full[n].shape]
    dense, expected, _ = gradients(call, dense_call, full, whole or call.needs, incoming)
    assert_same_bits(result, dense)
    # The two ways to compute a gradient round differently in 16-bit types, with scale and bias, and
    # if an operand of clamped_swiglu broadcasts.
    is_composed = {"scale", "bias"} <= set(full) or (
        row.family == "swiglu" and any(t.shape != result.shape for t in call.tensors.values())
    )
    if result.element_size() > 2 and not is_composed:
        for name in whole:
            # A kernel's sums start at 0.0, so the sum of a single -0.0 is 0.0.
            zero = 0.0 if name in ("scale", "bias") else -0.0
            assert_same_bits(found[name] + zero, expected[name] + zero)
            if row.family == "fused":
                assert_same_bits(found[name] + zero, again[name] + zero)
    assert_strides(call, result)


def assert_strides(call, result):
    """Asserts the strides of an elementwise operator, which prefers its first operand's order."""
    row, operands = call.c.row, views(call)
    if result.numel() == 0:
        return
    if row.halves:
        operands = {"self": row.halves(call.tensors["self"])[0]}
    elif row.dense_call or row.recover:
        operands = {"self": operands["self"]}
    ordered = list(operands.values())[:: -1 if row.last_leads else 1]
    strides = compute_elementwise_output_strides(*torch.broadcast_tensors(*ordered))
    expected = lies(torch.empty_strided(result.shape, strides, dtype=result.dtype))
    assert lies(result) == expected, (lies(result), expected)


def lies(t):
    """Returns the shape, the strides of dimensions with several elements, and the dtype."""
    strides = [int(s) for s, n in zip(t.stride(), t.shape) if n > 1]
    return tuple(map(int, t.shape)), strides if t.numel() else [], t.dtype


def assert_stand_ins(call, stand_in, context=contextlib.nullcontext):
    """Asserts that result and gradients have the layouts that the real tensors give.
    stand_in(tensor) replaces each tensor."""
    row = call.c.row
    result, found, incoming = gradients(call, row.call, call.tensors, call.needs, None)
    operands = {n: stand_in(t.detach()) for n, t in call.tensors.items()}
    incoming = stand_in(incoming)
    with context():
        other = gradients(call, row.call, operands, call.needs, incoming)
    assert lies(other[0]) == lies(result), (lies(other[0]), lies(result))
    for name, t in found.items():
        own, expected = lies(other[1][name]), lies(t)
        if row.family in ("fused", "packed", "swiglu"):  # may be composed
            own, expected = own[::2], expected[::2]
        assert own == expected, (name, own, expected)


def meta(call):
    assert_stand_ins(
        call, lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
    )


def fake(call):
    """Returns fake tensors with numbers or symbols as sizes."""
    mode = FakeTensorMode(shape_env=ShapeEnv())

    def stand_in(t):
        sizes = [DimDynamic.DYNAMIC] * t.dim()
        has_symbols = call.c.dtype in ("bfloat16", "float16")
        context = StatelessSymbolicContext(dynamic_sizes=sizes) if has_symbols else None
        return mode.from_tensor(t, symbolic_context=context)

    @contextlib.contextmanager
    def tracing():
        with mode, enable_python_dispatcher():
            yield

    assert_stand_ins(call, stand_in, tracing)


def third_derivatives(call, incoming):
    """Differentiates three times by all operands and the incoming gradient, along directions."""
    result = call.operator(**call.tensors)
    inputs = [*(call.tensors[n] for n in call.needs), incoming.requires_grad_()]
    total = (result * incoming).sum()
    for order in range(3):
        if not total.requires_grad:
            return [torch.zeros_like(t) for t in inputs]
        found = torch.autograd.grad(total, inputs, create_graph=order < 2, materialize_grads=True)
        total = sum(
            (t * drawn([], tuple(t.shape), "factor", t.dtype, i, t.device)).sum()
            for i, t in enumerate(found)
        )
    return found


def third_order(call):
    """The first three derivatives in float64 equal those of PyTorch's composition on the CPU."""
    c, row = call.c, call.c.row
    with torch.no_grad():
        value = call.operator(**call.tensors)
        incoming = incoming_like(c, value)
    torch.manual_seed(c.seed)
    found = third_derivatives(call, incoming.clone())
    composed = Composed(replace(c, device="cpu"))
    if row.recover:
        composed.tensors["kept"] = row.recover(value).cpu()
    expected = third_derivatives(composed, incoming.cpu().clone())
    for name, ours, theirs in zip((*call.needs, "incoming"), found, expected):
        size = float(theirs.abs().max()) if theirs.numel() else 0.0
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, name
        torch.testing.assert_close(
            ours.cpu(), theirs, rtol=1e-10, atol=1e-12 * (1 + size),
            msg=lambda text, name=name: f"the third derivative by {name}: {text}",
        )  # fmt: skip


def batched_gradients(call):
    """The gradients for a batch of incoming gradients equal those for each incoming gradient."""
    result = call.operator(**call.tensors)
    inputs = [call.tensors[n] for n in call.needs]
    incoming = torch.stack([incoming_like(call.c, result, seed) for seed in (99, 98)])
    with without_fallback(call):
        found = torch.autograd.grad(
            result, inputs, incoming, is_grads_batched=True, retain_graph=True
        )
    for i, g in enumerate(incoming):
        expected = torch.autograd.grad(result, inputs, g, retain_graph=True)
        for name, batch, t in zip(call.needs, found, expected):
            torch.testing.assert_close(
                batch[i], t, rtol=1e-12, atol=1e-12,
                msg=lambda text, name=name: f"the gradient of {name}: {text}",
            )  # fmt: skip


def saved_bytes(function):
    """Returns the bytes of the storages that a call saves for backward."""
    saved = {}

    def pack(t):
        saved[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with saved_tensors_hooks(pack, lambda t: t):
        result = function()
    del result
    return sum(saved.values())


def saves_no_more(call):
    """Saves at most the bytes that PyTorch's composition saves. Vectors do not count."""
    ours = saved_bytes(lambda: call.operator(**call.tensors))
    vectors = sum(t.nbytes for name, t in call.tensors.items() if name in ("scale", "bias"))
    composed = Composed(call.c)
    allowed = saved_bytes(lambda: composed.operator(**composed.tensors)) + vectors
    assert ours <= allowed, f"{ours} bytes are saved, but PyTorch saves {allowed}"


def changed_operand(call):
    """A change of an operand before backward is an error, or has no effect on the gradients."""
    leaves = call.tensors
    copies = {n: t.detach().clone().requires_grad_(n in call.needs) for n, t in leaves.items()}
    writable = [n for n, t in leaves.items() if t.numel() < 2 or 0 not in t.stride()]
    if not writable:
        return
    name = writable[call.c.seed % len(writable)]
    results = []
    for tensors, changes in ((leaves, True), (copies, False)):
        torch.manual_seed(call.c.seed)
        result = call.operator(**tensors)
        incoming = incoming_like(call.c, result)
        if changes:
            with torch.no_grad():
                tensors[name].copy_(tensors[name] * 2 + 1)
        inputs = [tensors[n] for n in call.needs]
        error = error_of(torch.autograd.grad, result, inputs, incoming, retain_graph=True)
        if error is not None:
            assert re.search("modified( by an)? inplace", first_line(error)), error
            return
        results.append(torch.autograd.grad(result, inputs, incoming))
    torch.testing.assert_close(*results)


# Modes that check a call themselves.
PROPERTIES = {
    "bits": bits,
    "meta": meta,
    "fake": fake,
    "third_order": third_order,
    "batched_gradients": batched_gradients,
    "changed_operand": changed_operand,
}

"""check(Combination(...)) compares one call with PyTorch's composition in float64."""

import functools
import re
import warnings

import torch

from combinations import Call, Composed, dtype_of
from float64_oracle import added, aligned, assert_close, expected, expected_second, stacked
from modes import MODES, VMAP, compiled_together
from support import error_of, first_line

# The pattern of FastAct's error messages.
EXPECTED = re.compile(r"fastact::\w+: expected .*, but got .*")


def check(c):
    """Raises an AssertionError if a call differs from PyTorch's composition."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vmap loops, resized outputs, checkpoints
        call = Call(c)
        torch.manual_seed(c.seed)
        if pattern := documented_error(call):
            error = error_of(MODES[c.mode], call)
            assert error is not None, f"expected an error like '{pattern}', but got none"
            assert re.search(pattern, first_line(error)), f"expected '{pattern}', but got: {error}"
            return
        try:
            outcome = MODES[c.mode](call)
        except Exception as error:
            # A hook may change a saved tensor, and the operator may then raise its own error.
            if c.mode.startswith("hook") and EXPECTED.match(first_line(error)):
                return
            if c.having("inference") and error_of(MODES[c.mode], Composed(c)) is not None:
                return
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            raise AssertionError(kind + " ".join(str(error).split("\n")[:4])) from error
        if outcome is not None:  # else the mode has checked the call itself
            compare(call, outcome)


def documented_error(call):
    """Returns a pattern of the error that the operator's page documents for this call, or None."""
    c, row = call.c, call.c.row
    leading = call.slices[0][row.leading]
    if row.family == "fused" and (name := operand_of_another_type(c)):
        return f"expected {name} to have self's type"
    if row.family == "fused" and not -max(leading.dim(), 1) <= c.dim < max(leading.dim(), 1):
        return "expected dim to be from"
    try:
        shape = torch.broadcast_shapes(*(t.shape for t in aligned(c, call.slices[0]).values()))
    except RuntimeError:
        return "must match|expected .* to have|to broadcast to"
    if row.call_ is not None and c.mode in ("in_place", "functionalize_in_place", "vmap_in_place"):
        if shape != leading.shape:
            return "to broadcast to self's shape"
        written = call.tensors[row.leading]
        overlaps = 0 in written.stride() and written.numel() > 1 and not written.is_contiguous()
        if c.mode == "in_place" and overlaps:
            return "more than one element|overlap"
    return None


def operand_of_another_type(c):
    """Returns the first operand whose type the fused operator does not accept, or None."""
    own = dtype_of(c, "self")
    for name in c.operands:
        may_be_float32 = name in ("scale", "bias") and own.itemsize == 2
        if dtype_of(c, name) not in ((own, torch.float32) if may_be_float32 else (own,)):
            return name
    return None


def result_type(call):
    c, row = call.c, call.c.row
    if c.mode == "autocast" and row.name == "prelu" and c.dtype != "float64":
        return torch.bfloat16  # as for PyTorch's prelu, except in float64
    if row.promotes:
        tensors = call.slices[0].values()
        decisive = [t for t in tensors if t.dim() > 0] or tensors
        return functools.reduce(torch.promote_types, (t.dtype for t in decisive))
    return dtype_of(c, row.leading)


def slice_of(tensors, i):
    """Returns slice `i` of each tensor, or the tensors themselves if `i` is None."""
    if tensors is None or i is None:
        return tensors
    return {name: t[i] for name, t in tensors.items()}


def compare(call, outcome):
    c, row = call.c, call.c.row
    is_mapped = c.mode in VMAP
    values = outcome.value if is_mapped else outcome.value[None]
    incoming = outcome.incoming
    if incoming is not None and not is_mapped:
        incoming = incoming[None]
    assert len(values) == len(call.slices), "expected a result for each slice"
    exact = [
        expected(
            c, tensors,
            incoming=None if incoming is None else incoming[i],
            tangents=slice_of(outcome.tangents, i if is_mapped else None),
            extra={"kept": row.recover(values[i])} if row.recover else None,
        )
        for i, tensors in enumerate(call.slices)
    ]  # fmt: skip
    assert_close("the result", values, stacked([e.value for e in exact]), result_type(call))
    if outcome.tangents is not None:
        assert outcome.tangent is not None, "the tangent is None"
        tangents = outcome.tangent if is_mapped else outcome.tangent[None]
        wanted = stacked([e.tangent for e in exact])
        assert_close("the tangent", tangents, wanted, result_type(call))
    for name, found in (outcome.gradients or {}).items():
        what = f"the gradient of {name}"
        assert found is not None, f"{what} is None"
        parts = [e.gradients[name] for e in exact]
        if c.mode == "vmap_of_grad":
            wanted = stacked(parts)
        elif (dim := c.batch_dim(name)) is not None:
            wanted = stacked(parts, dim)
        else:
            wanted = added(parts)
        assert_close(what, found, wanted, dtype_of(c, name))
    if outcome.second is not None:
        compare_second(call, outcome)
    for name, t in call.tensors.items():
        assert name in call.needs or t.grad is None, f"{name} requires no gradient, but has one"


def compare_second(call, outcome):
    c, row = call.c, call.c.row
    extra = {"kept": row.recover(outcome.value)} if row.recover else None
    exact = expected_second(c, call.slices[0], outcome.incoming, outcome.directions, extra)
    for name, found in outcome.second.items():
        dtype = outcome.incoming.dtype if name == "incoming" else dtype_of(c, name)
        found = torch.zeros_like(exact[name].value, dtype=dtype) if found is None else found
        assert_close(f"the second derivative by {name}", found, exact[name], dtype)


def failure(function, *arguments):
    """Returns a line that repeats the check if it fails, else None."""
    try:
        function(*arguments)
    except AssertionError as error:
        return f"{function.__name__}({', '.join(map(repr, arguments))})  # {first_line(error)}"
    return None


def check_all(listed, function=check):
    """Checks each call. Fails with one line for each wrong call, which repeats it."""
    found = [failure(function, *(c if isinstance(c, tuple) else (c,))) for c in listed]
    assert found, "no combination"
    wrong = [line for line in found if line]
    if wrong:
        shown = "\n".join(wrong[:20])
        raise AssertionError(f"{len(wrong)} of {len(found)} calls are wrong:\n{shown}")


def check_compiled(listed):
    """Checks calls of one compiled mode in one compiled function. If a call is wrong, checks each
    call in a function of its own."""
    (mode,) = {c.mode for c in listed}
    try:
        calls = [Call(c) for c in listed]
        for call, outcome in zip(calls, compiled_together(calls, mode)):
            compare(call, outcome)
    except Exception as error:
        check_all(listed)
        raise AssertionError(f"these calls are wrong together, not one by one: {listed}") from error

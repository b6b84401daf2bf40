"""The expected result of a call and its tolerance. PyTorch's operators compute the expected result
in float64 from the same numbers.

The arguments of all activations are exact (combinations.NUMBERS), so a result's error comes only
from the formula and from rounding factors and sums:

- An element is the product of f, f' or f'' with at most three factors and the incoming gradient.
  Each product is rounded once, in the type or a wider one, which gives half an ULP each and 2 ULP
  in total. Rounding to another type between operators adds 1 ULP.
- The formula adds twice the ULP that its header promises, because one ULP of a factor can be two
  ULP of the product. If terms of f' cancel, the header counts in ULP of 1/16, and
  docs/reference/fused.md in ULP of 1/64 of the other factors.
- A derivative computed from a rounded result (tanh, sigmoid, in place) has an absolute error of
  2 ULP of the other factors.
- PyTorch's float64 compositions can cancel, too (x - tanh(x)), which adds 8 float64 ULP of the
  other factors.
- The error of a sum of n elements is n ULP of the type it is added in (float32 or float64), times
  the sum of absolute values, plus the errors of its elements.
"""

from dataclasses import dataclass

import torch

from combinations import dtype_of
from operator_rows import identity

DOUBLE = torch.finfo(torch.float64).eps


@dataclass(frozen=True)
class Exact:
    """A float64 tensor and its tolerance: the largest error that a result may have."""

    value: torch.Tensor
    error: torch.Tensor


@dataclass(frozen=True)
class Expected:
    value: Exact
    gradients: dict  # Exact for each operand, if there is an incoming gradient
    tangent: Exact | None


def oracle_operand(t):
    """Moves to float64 on the CPU: PyTorch's float64 hardswish has float32 constants on a GPU."""
    return t.double().cpu()


def aligned(c, tensors):
    """The operands in float64, viewed so that they broadcast."""
    rank = max(t.dim() for name, t in tensors.items() if name == c.row.leading)
    return {name: c.row.align(name, oracle_operand(t), rank, c.dim) for name, t in tensors.items()}


def leaves_of(c, tensors, extra):
    """Copies every operand, expanded to the result's shape. Also returns the original shapes."""
    views = aligned(c, {name: t.detach() for name, t in tensors.items()})
    shapes = {name: t.shape for name, t in views.items()}
    full = torch.broadcast_shapes(*shapes.values())
    leaves = {name: t.expand(full).clone().requires_grad_() for name, t in views.items()}
    return {**leaves, **{name: t.cpu() for name, t in extra.items()}}, shapes


def terms_of(c, function, leaves, incoming):
    """Returns the result, and each operand's gradient before summing."""
    names = [name for name, t in leaves.items() if t.requires_grad]
    value = c.row.compose(function, leaves)
    if incoming is None:
        return value.detach(), {}
    # materialize_grads: if the slope is constant, the result does not depend on its operand.
    grads = torch.autograd.grad(
        value, [leaves[n] for n in names], oracle_operand(incoming), materialize_grads=True
    )
    return value.detach(), dict(zip(names, grads))


def unit(c):
    """Returns the ULP of the coarsest operand type."""
    return max(torch.finfo(dtype_of(c, name)).eps for name in c.operands)


def element_error(c, order, exact, others, from_rounded=False):
    """Returns the tolerance of elements. `others` is `exact` with a slope of 1 for f or f'."""
    eps = max(unit(c), torch.finfo(torch.bfloat16).eps if c.mode == "autocast" else 0)
    dtype = next(t for t in c.row.ulp if torch.finfo(t).eps == eps)
    count = 3 + 2 * c.row.ulp[dtype][order]
    floor = 2.0 if from_rounded else count / 16
    return eps * (count * exact.abs() + floor * others.abs()) + 8 * DOUBLE * others.abs()


def summed(c, term, error, shape, to):
    """Sums the elements' terms to the gradient of an operand of this shape."""
    value = term.sum_to_size(shape)
    count = term.numel() // max(value.numel(), 1)
    added_in = DOUBLE if unit(c) == DOUBLE else torch.finfo(torch.float32).eps
    rounding = 2 * count * added_in + (unit(c) if count > 1 else 0)
    error = error.sum_to_size(shape) + rounding * term.abs().sum_to_size(shape)
    return Exact(value.reshape(to), error.reshape(to))


def expected(c, tensors, incoming=None, tangents=None, extra=None):
    """Returns the expected outcome of a call with the operands of one slice."""
    row = c.row
    from_rounded = row.from_rounded or c.mode.startswith("in_place")
    leaves, shapes = leaves_of(c, tensors, extra or {})
    ones = torch.ones((), dtype=torch.float64)
    seed = incoming
    if tangents is not None:
        with torch.no_grad():
            seed = ones.expand_as(row.compose(row.function, leaves))
    value, terms = terms_of(c, row.function, leaves, seed)
    flat = identity if row.function is not None else None
    other_value, others = terms_of(c, flat, leaves, seed)
    result = Exact(value, element_error(c, 0, value, other_value))
    if tangents is not None:
        views = {name: tangents[name] for name in tangents}
        views = aligned(c, {**tensors, **views})
        tangent, error = 0.0, 0.0
        for n in tangents:
            part, size = (t[n] * views[n].expand_as(t[n]) for t in (terms, others))
            off = element_error(c, 1, part, size, from_rounded)
            tangent = tangent + (sum(row.halves(part)) if row.halves else part)
            error = error + (sum(row.halves(off)) if row.halves else off)
        return Expected(result, {}, Exact(tangent, error))
    gradients = {
        name: summed(
            c, term, element_error(c, 1, term, others[name], from_rounded),
            shapes[name], tensors[name].shape,
        )
        for name, term in terms.items()
    }  # fmt: skip
    return Expected(result, gradients, None)


def second_terms(c, function, leaves, incoming, directions):
    """Returns the derivatives of sum(gradient * direction) by each operand and by the incoming
    gradient, before summing."""
    names = [name for name in leaves if leaves[name].requires_grad]
    g = incoming.clone().requires_grad_()
    value = c.row.compose(function, leaves)
    inputs = [leaves[n] for n in names]
    first = torch.autograd.grad(value, inputs, g, create_graph=True, materialize_grads=True)
    total = sum(
        (t * directions[n].expand_as(t)).sum() for n, t in zip(names, first) if n in directions
    )
    if not total.requires_grad:
        return {name: torch.zeros_like(g) for name in (*names, "incoming")}
    terms = torch.autograd.grad(total, [*inputs, g], materialize_grads=True)
    return dict(zip((*names, "incoming"), terms))


def expected_second(c, tensors, incoming, directions, extra=None):
    """Returns the expected outcome of a double backward, with directions for the gradients. A term
    is a sum of products of up to seven rounded factors. The same sum of e^|z| and absolute operands
    bounds its size, so the tolerance is 32 ULP of the largest such sum."""
    leaves, shapes = leaves_of(c, tensors, extra or {})
    views = aligned(c, {**tensors, **directions})
    views = {name: views[name] for name in directions}
    terms = second_terms(c, c.row.function, leaves, oracle_operand(incoming), views)
    positive = {
        name: t.detach().abs().requires_grad_() if t.requires_grad else t
        for name, t in leaves.items()
    }
    sizes = second_terms(
        c, torch.exp if c.row.function is not None else None, positive,
        oracle_operand(incoming).abs(),
        {name: t.abs() for name, t in views.items()},
    )  # fmt: skip
    largest = max((float(t.max()) for t in sizes.values() if t.numel()), default=0.0)
    shapes["incoming"] = incoming.shape
    own = {**{name: t.shape for name, t in tensors.items()}, "incoming": incoming.shape}
    return {
        name: summed(c, term, 32 * unit(c) * (term.abs() + largest), shapes[name], own[name])
        for name, term in terms.items()
    }


def stacked(exacts, dim=0):
    return Exact(
        torch.stack([e.value for e in exacts], dim), torch.stack([e.error for e in exacts], dim)
    )


def added(exacts):
    """Adds up the gradient of an operand that all slices share."""
    return Exact(sum(e.value for e in exacts), sum(e.error for e in exacts))


def assert_close(what, found, exact, dtype):
    """Compares type, shape and values. Near 0 the smallest normal number is allowed as an error."""
    assert found.dtype == dtype, f"{what}: expected {dtype}, but got {found.dtype}"
    assert found.shape == exact.value.shape, (
        f"{what}: expected the shape {tuple(exact.value.shape)}, but got {tuple(found.shape)}"
    )
    limit = torch.finfo(dtype)
    difference = (oracle_operand(found.detach()) - exact.value).abs()
    wrong = ~(difference <= exact.error + limit.smallest_normal)
    wrong &= exact.value.abs() + exact.error <= limit.max  # larger results are infinite
    if wrong.any():
        at = tuple(wrong.nonzero()[0].tolist())
        raise AssertionError(
            f"{what}: {int(wrong.sum())} of {wrong.numel()} are off, first at {at}: expected "
            f"{exact.value[at].item():.9g} within {exact.error[at].item():.2g}, "
            f"but got {found[at].item():.9g}"
        )

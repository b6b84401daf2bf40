"""torch.func and vmap: nested transforms, in-place and out= forms, with no slow fallback.
test_combinations.py tests each transform alone, for every operator."""

import itertools

import pytest
import torch
from torch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from torch.utils._pytree import tree_map

from oracle import reference
from support import assert_same_bits, error_of, no_vmap_fallback, smooth_values, values

close = torch.testing.assert_close


def double(act, *shape, device="cpu"):
    return smooth_values(act, *shape, device=device, requires_grad=False)


def both(act):
    """Returns FastAct's operator and the reference, each as the scalar function sum f(x) sin(x)."""

    def scalar(f):
        return lambda x: (f(x) * x.sin()).sum()

    return scalar(act.op), scalar(reference(act))


@pytest.fixture(autouse=True)
def without_fallback():
    with no_vmap_fallback():
        yield


@pytest.mark.parametrize("dims", list(itertools.product((0, 1, 2, -1), repeat=2)), ids=str)
def test_vmap_any_dims(act, device, dims):
    x = values(3, 4, 5, device=device)
    in_dim, out_dim = dims
    expected = act.op(x).movedim(in_dim, out_dim)
    assert_same_bits(vmap(act.op, in_dim, out_dim)(x), expected)


def test_vmap_promotes_as_a_loop_does_nested_and_differentiated(act, device):
    wide = values(3, 4, dtype=torch.float64, device=device)

    def gradients(g, x):
        return grad(lambda g, x: act.ladder(g, x).sum(), (0, 1))(g, x)

    for f in (act.ladder, lambda g, x: act.ladder(g, g, g, x), gradients):
        for x, dim in ((values(5, device=device), None), (values(3, 5, device=device), 0)):
            slices = [f(g, x if dim is None else x[i]) for i in range(3) for g in wide[i]]
            expected = tree_map(lambda *t: torch.stack(t).unflatten(0, (3, 4)), *slices)
            close(vmap(vmap(f, (0, None)), (0, dim))(wide, x), expected)


def test_vmap_nested(act, device):
    x = values(3, 4, 5, device=device)
    assert_same_bits(vmap(vmap(act.op))(x), act.op(x))
    assert_same_bits(vmap(vmap(act.op, 1, 1), 2, 2)(x), act.op(x))
    assert_same_bits(vmap(vmap(vmap(act.op)))(x), act.op(x))
    rows, columns = values(3, device=device), values(5, device=device)
    outer = vmap(vmap(act.ladder, (None, 0)), (0, None))(rows, columns)
    assert_same_bits(outer, act.ladder(rows[:, None], columns))


@pytest.mark.parametrize("dim", (0, 1, -1))
def test_vmap_in_place(act, device, dim):
    x = values(3, 4, device=device)
    expected = act.op(x)
    assert_same_bits(vmap(lambda t: act.op_(t.clone()), dim, dim)(x), expected)
    target = x.clone()
    vmap(act.op_, dim, dim)(target)
    assert_same_bits(target, expected)
    target = x.clone()

    def on_slice(t):
        act.op_(t[1:])
        return t

    vmap(on_slice)(target)
    assert_same_bits(target[:, 1:], expected[:, 1:])
    assert_same_bits(target[:, :1], x[:, :1])


def test_vmap_of_unbatched_tensor(act, device):
    fixed = values(4, device=device)
    result = vmap(lambda t: act.op(fixed) + t)(torch.zeros(3, 4, device=device))
    assert_same_bits(result, act.op(fixed).expand(3, 4))


def test_vmap_of_out(act, device):
    """out is batched. PyTorch's own out= operators do not support vmap."""
    x, target = values(3, 4, device=device), torch.empty(4, 3, device=device)
    vmap(act.out, in_dims=(0, 1))(x, target)
    assert_same_bits(target.t(), act.op(x))
    vmap(lambda out: act.out(x[0], out), in_dims=1)(target)
    assert_same_bits(target.t(), act.op(x[0]).expand(3, 4))
    for outs, text in (
        (
            lambda t: act.out(t, torch.empty(4, device=device)),
            "to be batched by vmap, like its operands",
        ),
        (
            lambda t: act.out(t[:2], t),
            r"to have the result's shape \[2\] under vmap, but got \[4\]",
        ),
    ):
        with pytest.raises(RuntimeError, match=f"fastact::{act.name}: expected the .* {text}"):
            vmap(outs)(x)


def test_grad_vjp_jvp_linearize(act, device):
    ours, theirs = both(act)
    x, c = double(act, 5, device=device), double(act, 5, device=device)
    close(grad(ours)(x), grad(theirs)(x))
    close(vjp(act.op, x)[1](c), vjp(reference(act), x)[1](c))
    close(jvp(act.op, (x,), (c,)), jvp(reference(act), (x,), (c,)))
    close(linearize(act.op, x)[1](c), linearize(reference(act), x)[1](c))


@pytest.mark.parametrize("outer", (jacrev, jacfwd))
@pytest.mark.parametrize("inner", (jacrev, jacfwd))
def test_jacobians(act, device, outer, inner):
    ours, theirs = both(act)
    x = double(act, 5, device=device)
    close(outer(act.op)(x), outer(reference(act))(x))
    close(outer(inner(ours))(x), outer(inner(theirs))(x))
    close(hessian(ours)(x), hessian(theirs)(x))


def test_vmap_and_derivatives_nested(act, device):
    ours, theirs = both(act)
    x, batch = double(act, 5, device=device), double(act, 3, 5, device=device)
    close(vmap(hessian(ours))(batch), vmap(hessian(theirs))(batch))
    close(vmap(grad(ours), 1)(batch), vmap(grad(theirs), 1)(batch))

    def inside(f):
        return grad(lambda x: vmap(lambda r: f(r * x).sum())(batch).sum())(x)

    close(inside(act.op), inside(reference(act)))

    def tangents(f):
        return vmap(lambda c: jvp(grad(f), (x,), (c,))[1])(batch)

    close(tangents(ours), tangents(theirs))


@pytest.mark.parametrize("transform", (grad, jacfwd, hessian, lambda f: vmap(grad(f))))
def test_in_place_under_transforms(act, device, transform):
    def scalar(f):
        return lambda x: f(x.clone()).sin().sum()

    x = double(act, 3, 5, device=device)
    close(transform(scalar(act.op_))(x), transform(scalar(reference(act)))(x))


def test_in_place_on_a_view_under_transforms(act, device):
    def ours(x):
        y = x * 1.0
        act.op_(y[1:])
        return y.sin().sum()

    def theirs(x):
        return torch.cat([x[:1], reference(act)(x[1:])]).sin().sum()

    x = double(act, 5, device=device)
    for transform in (grad, jacfwd, hessian):
        close(transform(ours)(x), transform(theirs)(x))


def test_what_transforms_do_not_allow(act, device):
    """Raises the errors of any PyTorch operator, for out= forms and for changes of a tensor from
    outside."""
    x, captured = values(4, device=device), values(4, device=device)
    out = torch.empty(4, device=device)
    error = error_of(grad(lambda x: act.out(x, out).sum()), x)
    assert "functions with out=... arguments don't support automatic differentiation" in str(error)
    error = error_of(jvp, lambda x: act.out(x, torch.empty(4, device=device)), (x,), (x,))
    assert "does not support it because it is an out= function" in str(error)
    error = error_of(grad(lambda x: (act.op_(captured) * x).sum()), x)
    assert f"in-place operation (fastact::{act.name}_) that would mutate a captured" in str(error)


def test_functionalize(act, device):
    def f(x):
        y = x.clone()
        act.op_(y[1:])
        act.out(x[:2], y[:2])
        return y

    x = values(5, device=device)
    assert_same_bits(functionalize(f)(x), f(x))
    assert_same_bits(functionalize(act.op)(x), act.op(x))
    target, expected = x.clone(), act.op(x)
    functionalize(act.op_)(target)
    assert_same_bits(target, expected)

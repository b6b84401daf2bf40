"""In-place rules, derivatives of in-place forms, graphs and their nodes, threads and modules.
test_combinations.py tests the derivatives of all operators."""

import copy
import io
import threading

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

from oracle import exact, reference
from support import error_of, first_line, smooth_values, values

EVERYTHING = {
    "check_forward_ad": True,
    "check_batched_grad": True,
    "check_batched_forward_grad": True,
    "fast_mode": False,
}


def in_place(act):
    return lambda x: act.op_(x * 1.0)


def in_place_on_row(act):
    def f(x):
        y = x * 1.0
        act.op_(y[1])
        return y

    return f


def in_place_on_reshaped_slice(act):
    def f(x):
        y = x * 1.0
        v = y.view(-1)[2:7]
        act.op_(v)
        return y * v.sum()

    return f


FORMS = {
    "functional": lambda act: act.op,
    "in_place": in_place,
    "in_place_on_row": in_place_on_row,
    "in_place_on_reshaped_slice": in_place_on_reshaped_slice,
    "in_place_twice": lambda act: lambda x: act.op_(act.op_(x * 1.0) + 0.75),
}


@pytest.fixture(params=[name for name in FORMS if name != "functional"])
def function(request, act):
    return FORMS[request.param](act)


def test_first_order_in_both_modes(act, device, function):
    assert gradcheck(function, (smooth_values(act, 3, 4, device=device),), **EVERYTHING)


def test_second_order(act, device, function):
    x = smooth_values(act, 3, 4, device=device)
    assert gradgradcheck(function, (x,), check_fwd_over_rev=True, check_batched_grad=True)


def test_reverse_over_forward(act, device):
    def tangent(x, t):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(act.op(forward_ad.make_dual(x, t))).tangent * 1

    x, t = (smooth_values(act, 3, 4, device=device) for _ in range(2))
    assert gradcheck(tangent, (x, t))


def derivative_function(act, order, form=None):
    """Returns the function from x to the order-th derivative of sum f(x), elementwise, by nested
    reverse mode."""

    def f(x):
        y = (form or act.op)(x)
        for _ in range(order):
            (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y

    return f


@pytest.mark.parametrize("order", (1, 2, 3))
@pytest.mark.parametrize("form", ("functional", "in_place"))
def test_nested_reverse_equals_the_mathematics(act, device, order, form):
    x = smooth_values(act, 20, device=device)
    ours = derivative_function(act, order, FORMS[form](act))(x)
    if act.takes_output:
        wanted = derivative_function(act, order, reference(act))(x).detach().cpu()
    else:
        wanted = [float(exact(act.derivative, v, order)) for v in x.tolist()]
        wanted = torch.tensor(wanted, dtype=x.dtype)
    torch.testing.assert_close(ours.detach().cpu(), wanted)


def test_result_is_a_fresh_leaf_only_without_grad(act, device):
    x = values(3, device=device)
    assert act.op(x).grad_fn is None and act.op(x).is_leaf
    x.requires_grad_()
    assert act.name.replace("_", "") in act.op(x).grad_fn.name().lower()
    with torch.no_grad():
        assert not act.op(x).requires_grad


def test_backward_twice(act, device):
    x = values(3, device=device).requires_grad_()
    y = act.op(x).sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert torch.equal(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_saved_tensor_may_not_be_changed(act, device):
    leaf = values(3, device=device).requires_grad_()
    z = leaf * 1
    y = act.op(z)
    (z if act.saves == "input" else y).detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    z = leaf * 1
    act.op_(z)
    z.detach().mul_(2)
    if act.in_place_keeps_input:
        (gradient,) = torch.autograd.grad(z.sum(), leaf)
        assert torch.equal(gradient, act.ladder(torch.ones_like(leaf), leaf.detach()))
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_input_that_is_not_saved_may_be_changed(act, device):
    if act.saves == "input":
        return
    leaf = values(5, device=device).requires_grad_()
    z = leaf * 1
    y = act.op(z)
    z.mul_(2)
    (grad,) = torch.autograd.grad(y.sum(), leaf)
    torch.testing.assert_close(grad, act.gradient(torch.ones_like(leaf), leaf.detach()))


def forbidden_leaf(x):
    return x


def forbidden_view_of_leaf(x):
    return x[1:]


def forbidden_no_grad_view(x):
    y = x * 1
    with torch.no_grad():
        return y[1:]


def forbidden_inference_view(x):
    with torch.inference_mode():
        return torch.ones(3, device=x.device)


def forbidden_multi_view(x):
    return (x * 1).unbind(0)[0]


def forbidden_split(x):
    return (x * 1).split(2)[0]


def forbidden_expanded(x):
    return (x[:1] * 1).expand(4)


@pytest.mark.parametrize(
    "build",
    (
        forbidden_leaf,
        forbidden_view_of_leaf,
        forbidden_no_grad_view,
        forbidden_inference_view,
        forbidden_multi_view,
        forbidden_split,
        forbidden_expanded,
    ),
    ids=lambda f: f.__name__.removeprefix("forbidden_"),
)
def test_in_place_where_pytorch_forbids_it(act, device, build):
    ours = build(values(4, device=device).requires_grad_())
    theirs = build(values(4, device=device).requires_grad_())
    before = ours.detach().clone()
    expected, error = error_of(act.aten_, theirs), error_of(act.op_, ours)
    assert isinstance(expected, RuntimeError) == isinstance(error, RuntimeError), (expected, error)
    if expected is not None:
        assert first_line(error) == first_line(expected).replace(act.aten_.__name__, act.name + "_")
        if build is not forbidden_inference_view:  # PyTorch detects this only after the change
            assert torch.equal(ours.detach(), before)


def test_in_place_breaks_an_earlier_saved_tensor(act, device):
    x = values(3, device=device).requires_grad_()
    y = x.exp()
    act.op_(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_in_place_on_a_base_reaches_its_views(act, device):
    """A view that was taken before the base changes has the changed value and gradient."""

    def f(x):
        y = x * 1.0
        v = y[1:]
        act.op_(y)
        return v * v

    assert gradcheck(f, (smooth_values(act, 3, 4, device=device),), check_forward_ad=True)
    assert gradgradcheck(f, (smooth_values(act, 3, 4, device=device),))


def test_out_does_not_support_autograd(act, device):
    x, out = values(4, device=device), torch.empty(4, device=device)
    grad = values(4, device=device).requires_grad_()
    calls = (
        (lambda: act.out(grad, out), lambda: act.aten_out(grad, out)),
        (lambda: act.out(x, grad), lambda: act.aten_out(x, grad)),
        (lambda: act.grad_input(grad, x, out), lambda: torch.mul(grad, x, out=out)),
        (lambda: act.grad_input(x, grad, out), lambda: torch.mul(x, grad, out=out)),
    )
    for ours, theirs in calls:
        error, expected = error_of(ours), error_of(theirs)
        text = "functions with out=... arguments don't support automatic differentiation"
        assert text in first_line(error) and text in first_line(expected)
        assert type(error) is type(expected) and act.name in str(error).split(text)[0]
    with torch.no_grad():
        act.out(grad, out)
        act.grad_input(grad, grad, out)
    assert not out.requires_grad


def test_out_does_not_support_forward_mode(act, device):
    x = values(3, device=device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x)
        for call in (
            lambda: act.out(dual, torch.empty_like(x)),
            lambda: act.grad_input(dual, x, torch.empty_like(x)),
        ):
            error = error_of(call)
            assert isinstance(error, NotImplementedError)
            assert "Trying to use forward AD with" in str(error) and act.name in str(error)


def test_saved_tensor_hooks_may_replace_the_tensor(act, device):
    """Backward uses the tensor that the hooks return: here a copy on the host."""
    x = values(6, device=device).requires_grad_()
    with torch.autograd.graph.save_on_cpu():
        y, z = act.op(x), act.op_(x * 1)
    wanted = act.gradient(torch.ones(6, device=device), x.detach())
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], wanted)
    torch.testing.assert_close(torch.autograd.grad(z.sum(), x)[0], wanted)


@pytest.mark.parametrize("use_reentrant", (False, True))
def test_checkpoint(act, device, use_reentrant):
    x = smooth_values(act, 6, device=device)

    def f(x):
        return act.op_(act.op(x) * 2)

    plain = torch.autograd.grad(f(x).sum(), x)[0]
    checkpoint(f, x, use_reentrant=use_reentrant).sum().backward()
    assert torch.equal(x.grad, plain)


def test_inference_mode(act, device):
    with torch.inference_mode():
        x = values(3, device=device)
        y = act.op(x)
        assert y.is_inference() and act.op_(y) is y
        act.out(x, y)
    leaf = values(3, device=device).requires_grad_()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        torch.autograd.grad((act.op(leaf) * x).sum(), leaf)


def test_anomaly_mode(act, device):
    x = values(3, device=device).requires_grad_()
    with torch.autograd.set_detect_anomaly(True):
        act.op(x).sum().backward()
        act.op_(x * 1).sum().backward()


def test_node_hooks(act, device):
    x = values(3, device=device).requires_grad_()
    y = act.op(x)
    seen = []
    y.grad_fn.register_prehook(lambda grads: seen.append("before") or (grads[0] * 2,))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append("after"))
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert seen == ["before", "after"]
    torch.testing.assert_close(grad, act.gradient(torch.full_like(x, 2), x.detach()))


def test_backward_from_many_threads(act, device):
    x = smooth_values(act, 64, device=device)
    y = act.op(x)
    results = [None] * 8

    def work(i):
        local = act.op(x) + act.op_(x * 1)
        results[i] = torch.autograd.grad(local.sum() + y.sum(), x, retain_graph=True)[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(results))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wanted = 3 * act.gradient(torch.ones_like(x), x.detach())
    for result in results:
        torch.testing.assert_close(result, wanted)


class Block(torch.nn.Module):
    """A linear layer and the activation."""

    def __init__(self, act):
        super().__init__()
        self.name, self.numbers = act.name, act.parameters
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return getattr(torch.ops.fastact, self.name)(self.linear(x), **self.numbers)


def test_module_survives_deepcopy_and_saving(act):
    module, x = Block(act), values(2, 4)
    assert torch.equal(copy.deepcopy(module)(x), module(x))
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded(x), module(x))


def test_gradient_accumulates_over_uses(act, device):
    x = smooth_values(act, 5, device=device)
    y = act.op(x)
    (y * y + y).sum().backward()
    wanted = act.gradient(2 * y.detach() + 1, x.detach())
    torch.testing.assert_close(x.grad, wanted)

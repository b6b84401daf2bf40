"""Every form of calling an activation, as a function of (act, x, grad), for tests that make many
different calls. The functions keep their arguments and return a tensor to compare."""

import pytest
import torch


def in_place(act, x, grad):
    return act.op_(x.clone())


def out(act, x, grad):
    return act.out(x, torch.empty_like(x))


def resized_out(act, x, grad):
    return act.out(x, x.new_empty(0))


def strided(act, x, grad):
    return act.op(x[::2])


def grad_input(act, x, grad):
    return act.grad_input(grad, x, torch.empty_like(x))


def training(act, x, grad):
    """Calls forward and backward of the functional form and of the in-place form."""
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(act.op_(act.op(leaf) * 1), leaf, grad)[0]


def second_order(act, x, grad):
    leaf = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(act.op(leaf), leaf, grad, create_graph=True)
    return torch.autograd.grad(first, leaf, grad)[0] if first.requires_grad else first


def refused(act, x, grad):
    """Makes calls that raise an error of FastAct, of PyTorch's iterator and of its autograd."""
    with pytest.raises(NotImplementedError, match="but got Bool"):
        act.op(x.bool())
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        act.op_(x[:1].expand(3))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        act.out(x.clone().requires_grad_(), torch.empty_like(x))
    return x


FORMS = (
    lambda act, x, grad: act.op(x),
    lambda act, x, grad: act.ladder(grad, x),
    lambda act, x, grad: act.ladder(grad, grad, x),
    lambda act, x, grad: act.ladder(grad, grad, grad, x),
    in_place,
    out,
    resized_out,
    strided,
    grad_input,
    training,
    second_order,
    refused,
)

"""Parameters that are errors, in every form and mode. An error changes nothing."""

import re

import pytest
import torch

from op_table import ACTIVATIONS
from support import error_of, first_line, untouched, values

FORBIDDEN = [(act, *case) for act in ACTIVATIONS for case in act.forbidden]
INSUFFICIENT = [act for act in ACTIVATIONS if act.has_is_result and not act.result_suffices]
wrong = pytest.mark.parametrize(
    "act, parameters, kind, text", FORBIDDEN, ids=lambda v: v.id if hasattr(v, "id") else ""
)


def calls(act, parameters, device):
    """Returns every operator of the family with these parameters, and its tensor arguments."""
    x, grad, out = (values(5, device=device) for _ in range(3))
    arguments = list(parameters.values())
    yield act.packet(), (x, *arguments), {}
    yield act.packet("_"), (x, *arguments), {}
    yield act.packet().out, (x, *arguments), {"out": out}
    yield act.packet("_backward"), (grad, x, *arguments), {}
    yield act.packet("_backward").grad_input, (grad, x, *arguments), {"grad_input": out}
    yield act.packet("_double_backward"), (grad, grad, x, *arguments), {}
    yield act.packet("_triple_backward"), (grad, grad, grad, x, *arguments), {}


def assert_refused(error, act, kind, text):
    assert type(error) is kind, repr(error)
    assert re.match(rf"fastact::{act.name}\w*: expected {text}, but got -?\w+", first_line(error))


@wrong
def test_forbidden_parameters_are_an_error_that_changes_nothing(
    act, parameters, kind, text, device
):
    for call, arguments, written in calls(act, parameters, device):
        tensors = [t for t in (*arguments, *written.values()) if isinstance(t, torch.Tensor)]
        with untouched(*tensors):
            assert_refused(error_of(call, *arguments, **written), act, kind, text)


@wrong
def test_forbidden_parameters_on_meta_and_on_nothing(act, parameters, kind, text):
    for call, arguments, written in calls(act, parameters, "meta"):
        assert_refused(error_of(call, *arguments, **written), act, kind, text)
    assert_refused(error_of(act.packet(), torch.empty(0), **parameters), act, kind, text)


@wrong
def test_forbidden_parameters_under_autograd_and_transforms(act, parameters, kind, text):
    def f(x):
        return act.packet()(x, **parameters)

    def f_(x):
        return act.packet("_")(x, **parameters)

    x = values(3, 2).requires_grad_()
    assert_refused(error_of(f, x), act, kind, text)
    y = x * 1
    with untouched(y):
        assert_refused(error_of(f_, y), act, kind, text)
    assert_refused(error_of(torch.func.vmap(f), x), act, kind, text)
    assert_refused(error_of(torch.func.functionalize(f_), x.detach().clone()), act, kind, text)
    torch._dynamo.reset()
    error = error_of(torch.compile(f, backend="eager", fullgraph=True), x)
    assert text in str(error)


@pytest.mark.parametrize("act", INSUFFICIENT, ids=lambda act: act.id)
def test_is_result_where_the_result_does_not_tell_the_gradient(act, device):
    x = values(4, device=device)
    with untouched(x):
        error = error_of(act.ladder, x, x, is_result=True)
    assert type(error) is RuntimeError
    text = rf"fastact::{act.name}_backward: expected is_result to be False .+, but got True"
    assert re.match(text, first_line(error))

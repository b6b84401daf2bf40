"""Random calls compared with PyTorch's: geometry, versions, graphs, errors, and exact values.

`make test` makes the same few hundred calls each time, `make fuzz` new ones (docs/dev/testing.md).
"""

import os
import re
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract import assert_within_contract
from op_table import ACTIVATIONS, TOP_ORDER
from strategies import (
    Spec,
    broadcastable,
    build,
    dtypes,
    overlaps_in_part,
    random_bits,
    seeds,
    shapes,
    supported,
    targets,
    tensors,
    well_defined,
)
from support import DTYPES, assert_same_bits, error_of, first_line, untouched, whole_storage
from test_derivative_operators import ELEMENTWISE, elementwise

# PyTorch warns about resized outputs.
pytestmark = pytest.mark.filterwarnings("ignore")

# Calls of each test on each device, which the activations share. The nightly run takes all
# activations.
EXAMPLES = int(os.environ.get("FASTACT_FUZZ_EXAMPLES", 500))
fuzzed = settings(
    max_examples=max(50, EXAMPLES // len(ACTIVATIONS)),
    derandomize="FASTACT_FUZZ_EXAMPLES" not in os.environ,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


def forms_of_pytorch(act, whole_row=True):
    """Returns (functional, in-place, out=) of the row. If PyTorch has no single operator, another
    elementwise floating-point operator replaces it."""
    stand_ins = torch.sigmoid, torch.sigmoid_, lambda x, out: torch.sigmoid(x, out=out)
    if act.is_composed or not whole_row:
        return stand_ins
    return act.aten, act.aten_, act.aten_out


def geometry(t):
    return t.dtype, t.shape, t.stride(), t.storage_offset(), t._is_view(), t._version


def converted_bits(t):
    """Returns where a converted tensor is NaN, and its bytes with NaNs set to 0, because PyTorch's
    conversions produce several NaNs."""
    return t.isnan().contiguous(), t.masked_fill(t.isnan(), 0).reshape(-1).view(torch.uint8)


def with_memory(arguments):
    return [t for t in arguments if t.device.type != "meta"]


def attempt(call, arguments):
    """Returns (result, None) or (None, error)."""
    try:
        return call(*arguments), None
    except Exception as error:
        return None, error


def assert_same_error(act, error, expected):
    """Asserts that the error has FastAct's form, or is PyTorch's own."""
    assert type(error) is type(expected), (error, expected)
    ours, theirs = first_line(error), first_line(expected)
    assert ours == theirs or re.match(rf"fastact::{act.name}\w*: expected .+, but got .+", ours)


def assert_unsupported(act, call, arguments):
    """Asserts the error for types that FastAct does not support. PyTorch supports some of them."""
    with untouched(*with_memory(arguments)):
        error = error_of(call, *arguments)
    assert isinstance(error, NotImplementedError), error
    assert re.match(rf"fastact::{act.name}\w*: expected \w+ to be float32, .+, but got", str(error))


def assert_values(act, result, operands, **options):
    """Asserts values within the contract, in the type to which the operands promote."""
    order = len(operands) - 1
    promoted = ELEMENTWISE[order](*operands) if order else operands[0]
    if result.dtype != promoted.dtype:  # an out= of another type is rounded a second time
        direct = act.ladder(*operands, **options)
        for ours, theirs in zip(*map(converted_bits, (result, direct.to(result.dtype)))):
            assert torch.equal(ours, theirs)
        result = direct
    assert_within_contract(act, result, *operands, **options)


def check(act, ours, theirs, specs, make, written=None, **options):
    """Makes both calls with separate arguments. The argument at `written` is written to."""
    arguments = make(specs)
    read = [i for i in range(len(specs)) if i != written or len(specs) == 1]
    if any(specs[i].dtype not in DTYPES for i in read):
        assert_unsupported(act, ours, arguments)
        return
    their_arguments = make(specs)
    expected, expected_error = attempt(theirs, their_arguments)
    if expected_error is not None:
        with untouched(*with_memory(arguments)):
            error = error_of(ours, *arguments)
        assert_same_error(act, error, expected_error)
        return
    if written is not None and overlaps_in_part(specs, written):
        # PyTorch checks dense tensors only, and reads elements that it has overwritten.
        with untouched(*with_memory(arguments)):
            error = error_of(ours, *arguments)
        assert "refer to a single memory location" in str(error), error
        return

    result = ours(*arguments)
    if len(read) > 3:  # PyTorch has no such operator, and separate products have another layout
        expected = expected.new_empty_strided(expected.shape, result.stride())
    assert geometry(result) == geometry(expected)
    assert result.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    assert not result.requires_grad
    assert list(map(geometry, arguments)) == list(map(geometry, their_arguments))
    before = make(specs)
    resized = written is not None and result.shape != before[written].shape
    if written is not None:
        assert result is arguments[written]
        if resized:
            if any(specs[i].storage == specs[written].storage for i in read):
                return
        elif well_defined(specs, written):
            before[written].copy_(result)
        else:
            return
    # Only the bytes of the result's elements have changed.
    for i, (actual, wanted) in enumerate(zip(arguments, before)):
        assert i == written and resized or torch.equal(whole_storage(actual), whole_storage(wanted))
    operands = make(specs)
    assert_values(act, result, [operands[i] for i in read], **options)


@st.composite
def value_calls(draw):
    x = draw(tensors(0, draw(dtypes), draw(shapes())))
    form = draw(st.sampled_from(("functional", "in_place", "out", "out")))
    return form, (x, draw(targets(1, x.shape, (x,)))) if form == "out" else (x,)


@fuzzed
@given(call=value_calls(), whole_row=st.booleans())
def test_value_operators(act, device, call, whole_row):
    form, specs = call
    make = partial(build, device=device)
    functional, in_place, out = forms_of_pytorch(act, whole_row)
    if form == "functional":
        check(act, act.op, functional, specs, make)
    elif form == "in_place":
        check(act, act.op_, in_place, specs, make, written=0)
    else:
        # Some older operators of PyTorch refuse an out= of another type. FastAct's cast, as newer
        # ones do.
        if specs[0].dtype != specs[1].dtype:
            out = forms_of_pytorch(act, whole_row=False)[2]
        check(act, act.out, out, specs, make, written=1)


@st.composite
def derivative_calls(draw):
    """Draws the specs of k gradients and x, and sometimes of a grad_input."""
    order = draw(st.integers(1, TOP_ORDER))
    shape, dtype = draw(shapes()), draw(dtypes)
    specs = []
    for i in range(order + 1):
        if specs and draw(st.integers(0, 5)) == 0:
            specs.append(draw(st.sampled_from(specs)))
            continue
        other = draw(st.sampled_from((dtype, dtype, dtype, draw(dtypes))))
        specs.append(draw(tensors(i, other, draw(broadcastable(shape)))))
    if order == 1 and draw(st.booleans()):
        target = draw(targets(len(specs), shape, specs))
        if target.device and error_of(torch.broadcast_shapes, *(s.shape for s in specs)):
            target = replace(target, device=None)  # of two errors, either may be reported
        specs.append(target)
    return order, tuple(specs)


@fuzzed
@given(call=derivative_calls(), is_result=st.booleans())
def test_derivative_operators(act, device, call, is_result):
    """Compares with PyTorch's products, because its backward operators order operands
    differently."""
    order, specs = call
    options, transform = {}, None
    if is_result and act.takes_is_result and specs[order].dtype in DTYPES:
        options, transform = {"is_result": True}, {specs[order].storage: act.op}
    make = partial(build, device=device, transform=transform)
    if len(specs) == order + 1:
        theirs = partial(elementwise, act)
        check(act, partial(act.ladder, **options), theirs, specs, make, **options)
    else:

        def product(grad, x, grad_input):
            operands = (x, grad) if act.self_leads else (grad, x)
            return torch.mul(*operands, out=grad_input)

        ours = partial(act.grad_input, **options)
        check(act, ours, product, specs, make, written=2, **options)


# ---- Under autograd.

BASES = ("leaf", "computed", "detached", "no_grad", "inference")
VIEWS = {
    "itself": lambda t: t,
    "view": lambda t: t[...],
    "moved": lambda t: t.movedim(0, -1) if t.dim() else t,
    "stepped": lambda t: t[::2] if t.dim() else t,
    "unbound": lambda t: t.unbind(0)[0] if t.dim() and len(t) else t,
    "chunk": lambda t: t.chunk(2, -1)[0] if t.dim() else t,
    "expanded": lambda t: t.unsqueeze(0).expand(2, *t.shape),
}
MODES = {
    "grad": nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


@dataclass(frozen=True)
class Scenario:
    """How an argument is made of a leaf, and in which mode it is used."""

    leaf: Spec
    requires_grad: bool
    base: str
    view: str
    mode: str

    def link(self, leaf):
        """Returns the argument."""
        if self.base == "detached":
            leaf = leaf.detach()
        elif self.base in ("computed", "no_grad"):
            leaf = leaf * 1
        with torch.no_grad() if self.base == "no_grad" else nullcontext():
            return VIEWS[self.view](leaf)

    def make(self, device):
        """Returns a leaf and the argument."""
        with torch.inference_mode(self.base == "inference"):
            (leaf,) = build((self.leaf,), device)
            leaf.requires_grad_(self.requires_grad)
            return leaf, self.link(leaf)


@st.composite
def scenarios(draw):
    leaf = draw(tensors(0, draw(supported), draw(shapes())))
    if not well_defined((leaf,), 0):
        leaf = replace(leaf, strides=torch.empty(leaf.shape, device="meta").stride())
    return Scenario(
        leaf=leaf,
        requires_grad=draw(st.integers(0, 4)) > 0,
        base=draw(st.sampled_from(BASES)),
        view=draw(st.sampled_from(sorted(VIEWS))),
        mode=draw(st.sampled_from(sorted(MODES))),
    )


def graph_facts(t):
    version = None if t.is_inference() else t._version  # inference tensors have no version
    # A view whose base was changed without autograd raises an error instead of returning a node.
    node, error = attempt(lambda: t.grad_fn is not None, ())
    graph = t.requires_grad, node, type(error)
    return t.dtype, t.shape, t.stride(), version, t._is_view(), *graph


@fuzzed
@given(scenario=scenarios(), form=st.sampled_from(("functional", "in_place")), seed=seeds)
def test_autograd(act, device, scenario, form, seed):
    ours, theirs = (act.op, act.op_), forms_of_pytorch(act)
    ours, theirs = (f[("functional", "in_place").index(form)] for f in (ours, theirs))
    their_leaf, their_argument = scenario.make(device)
    leaf, argument = scenario.make(device)
    with MODES[scenario.mode]():
        expected, expected_error = attempt(theirs, (their_argument,))
        before = argument.detach().clone()
        result, error = attempt(ours, (argument,))
    if expected_error is not None:
        assert_same_error(act, error, expected_error)
        if scenario.base != "inference":  # PyTorch raises its error only after the change
            assert_same_bits(argument, before)
            assert argument._version == scenario.make(device)[1]._version
        return
    assert error is None, error
    for actual, wanted in ((result, expected), (argument, their_argument), (leaf, their_leaf)):
        assert graph_facts(actual) == graph_facts(wanted)
    assert (result is argument) == (form == "in_place")
    assert_within_contract(act, result, before)
    if not result.requires_grad or scenario.mode != "grad":
        return
    incoming = random_bits(result.numel(), result.dtype, seed).view(result.shape).to(device)
    wanted, expected_error = attempt(torch.autograd.grad, (expected, their_leaf, incoming))
    gradient, error = attempt(torch.autograd.grad, (result, leaf, incoming))
    if expected_error is not None:
        assert_same_error(act, error, expected_error)
        return
    (gradient,), (wanted,) = gradient, wanted
    assert (gradient.dtype, gradient.shape) == (wanted.dtype, wanted.shape)
    # The gradient that the operator returns, and the one that the leaf gets.
    from_result = form == "in_place" and act.takes_is_result
    options = {"is_result": True} if from_result else {}
    saved = result.detach() if from_result or act.takes_output else before
    direct = act.ladder(incoming, saved, **options)
    assert_within_contract(act, direct, incoming, saved, **options)
    fresh, fresh_argument = scenario.make(device)
    if fresh_argument is not fresh:
        (direct,) = torch.autograd.grad(fresh_argument, fresh, direct)
    assert_same_bits(gradient, direct)
    # In place, PyTorch chooses the layout. If gradient and input have different layouts, PyTorch's
    # own operators are inconsistent.
    assert form == "in_place" or gradient.stride() == direct.stride()

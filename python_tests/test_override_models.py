"""Whole models on FastAct's kernels, unedited: in inference and in training."""

import copy
import sys

import pytest
import torch

import fastact
from support import REPOSITORY, assert_same_bits

sys.path.append(str(REPOSITORY / "benchmarks"))

from networks import NETWORKS  # noqa: E402

WIDTH, SIDE, BATCH = 8, 16, 2
# The replaced operators' errors add up over a dozen layers; the rest of a model rounds alike.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 0.06}

networks = pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)


@pytest.fixture(scope="module", autouse=True)
def loaded():
    fastact.override_aten().undo()


@pytest.fixture(params=TOLERANCE, ids=lambda dtype: str(dtype).removeprefix("torch."))
def dtype(request):
    return request.param


def missed(function):
    """Calls of replaced operators that did not reach FastAct, and how many did."""
    kernels = {kernel.split()[0] for kernel in fastact.overridden_aten_kernels()}
    with torch.profiler.profile() as profile:
        function()
    calls = [event for event in profile.events() if event.name in kernels]
    served = [any(c.name.startswith("fastact::") for c in e.cpu_children) for e in calls]
    return [e.name for e, ours in zip(calls, served) if not ours], sum(served)


def train(model, x):
    """One step; the gradients of all parameters."""
    model.train().zero_grad()
    model(x).float().square().mean().backward()
    return [p.grad for p in model.parameters()]


@networks
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_inference(network, device, dtype):
    model, inputs = network.build(WIDTH, SIDE)
    model, x = model.to(device, dtype), inputs(BATCH).to(device, dtype)
    scripted = torch.jit.script(model)
    frozen = torch.jit.freeze(scripted)  # which joins convolutions with what follows: other bits
    forms = [scripted, torch.jit.trace(model, x), torch.export.export(model, (x,)).module()]
    with torch.no_grad():
        theirs = model(x)
        with fastact.override_aten():
            ours = model(x)
            for form in forms:
                assert_same_bits(form(x), ours)
            for form in (model, frozen, *forms):
                lost, served = missed(lambda form=form: form(x))
                assert lost == [] and served > 0
            from_frozen = frozen(x)
        for form in forms:
            assert_same_bits(form(x), theirs)
    for found in (ours, from_frozen):
        torch.testing.assert_close(found, theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@networks
def test_training(network, device, dtype):
    model, inputs = network.build(WIDTH, SIDE)
    model, x = model.to(device, dtype), inputs(BATCH).to(device, dtype)
    theirs = train(copy.deepcopy(model), x)
    with fastact.override_aten():
        lost, served = missed(lambda: train(copy.deepcopy(model), x))
        ours = train(model, x)
    assert lost == [] and served > 0
    for a, b in zip(ours, theirs):
        size = b.float().abs().max().item()
        torch.testing.assert_close(a, b, rtol=0, atol=4 * TOLERANCE[dtype] * max(size, 1e-3))


@networks
def test_operators_by_name_have_the_bits_of_an_override(network, device):
    """Where replace_ finds every activation, the two ways are one."""
    model, inputs = network.build(WIDTH, SIDE)
    model, x = model.to(device), inputs(BATCH).to(device)
    with torch.no_grad(), fastact.override_aten():
        expected = model(x)
    report = fastact.replace_(model)
    assert report.replaced and not report.left
    with torch.no_grad():
        assert_same_bits(model(x), expected)

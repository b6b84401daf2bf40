"""Unchanged models with FastAct's kernels, in inference and training."""

import copy
import sys

import pytest
import torch

import fastact
from support import REPOSITORY, assert_same_bits

sys.path.append(str(REPOSITORY / "benchmarks"))

from networks import NETWORKS, library_networks  # noqa: E402

WIDTH, SIDE, BATCH = 8, 16, 2
DTYPES = (torch.float32, torch.bfloat16)

EVERY = (*NETWORKS, *library_networks())
libraries = EVERY[len(NETWORKS) :] or (
    pytest.param(None, marks=pytest.mark.skip("no torchvision and timm"), id="torchvision, timm"),
)
networks = pytest.mark.parametrize(
    "network", (*NETWORKS, *libraries), ids=lambda network: network.name
)


def dtype_of(network, training):
    """Returns one type in inference and the other one in training. test_override.py tests each
    operator in each type; a network adds the calls that it makes."""
    return DTYPES[(EVERY.index(network) + training) % 2]


@pytest.fixture(scope="module", autouse=True)
def loaded():
    fastact.override_aten().undo()


def missed(function):
    """Returns the replaced operators' calls that missed FastAct, and how many reached it."""
    kernels = {kernel.split()[0] for kernel in fastact.overridden_aten_kernels()}
    with torch.profiler.profile() as profile:
        function()
    calls = [event for event in profile.events() if event.name in kernels]
    served = [any(c.name.startswith("fastact::") for c in e.cpu_children) for e in calls]
    return [e.name for e, ours in zip(calls, served) if not ours], sum(served)


def assert_as_near(ours, theirs, exact):
    """Asserts that FastAct's results are as near to the float64 model as PyTorch's, on average."""
    errors = [(result.double() - exact).norm().item() for result in (ours, theirs)]
    assert errors[0] <= 2 * errors[1], errors


def train(model, x):
    """Runs one step, and returns the gradients of all parameters in one tensor."""
    model.train().zero_grad()
    y = model(x)
    y.to(torch.promote_types(y.dtype, torch.float32)).square().mean().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@networks
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_inference(network, device):
    dtype = dtype_of(network, training=False)
    model, inputs = network.build(WIDTH, SIDE)
    model, x = model.to(device, dtype), inputs(BATCH).to(device, dtype)
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        scripted = torch.jit.script(model)
        frozen = torch.jit.freeze(scripted)  # folds batch norms: other bits
        traced = torch.jit.trace(model, x, check_trace=False)
        forms = [scripted, traced, torch.export.export(model, (x,)).module()]
        theirs = model(x)
        before = {form: form(x) for form in (frozen, *forms)}
        # torch.nn.MultiheadAttention uses a special kernel in eager inference.
        alike = [form for form in forms if torch.equal(before[form], theirs)]
        assert len(alike) >= 2
        with fastact.override_aten():
            ours = model(x)
            for form in alike:
                assert_same_bits(form(x), ours)
            for form in (model, *before):
                lost, served = missed(lambda form=form: form(x))
                assert lost == [] and served > 0
            after = {form: form(x) for form in before}
        expected = exact(x.double())
        for form, own in before.items():
            assert_same_bits(form(x), own)
            assert_as_near(after[form], own, expected)
    assert_as_near(ours, theirs, expected)


@networks
def test_training(network, device):
    dtype = dtype_of(network, training=True)
    model, inputs = network.build(WIDTH, SIDE)
    model, x = model.to(device, dtype), inputs(BATCH).to(device, dtype)
    theirs = train(copy.deepcopy(model), x)
    exact = train(copy.deepcopy(model).double(), x.double())
    with fastact.override_aten():
        lost, served = missed(lambda: train(copy.deepcopy(model), x))
        ours = train(model, x)
    assert lost == [] and served > 0
    assert_as_near(ours, theirs, exact)


@networks
@pytest.mark.parametrize("training", (False, True))
def test_the_backend(network, device, training):
    """All activations are FastAct's, and results are as near to float64's as PyTorch's."""
    torch._dynamo.reset()
    model, inputs = network.build(WIDTH, SIDE)
    model, x = model.to(device).train(training), inputs(BATCH).to(device)
    ours, theirs, exact = model, copy.deepcopy(model), copy.deepcopy(model).double()
    report = fastact.fuse_(ours)
    if training:
        results = [train(m, y) for m, y in ((ours, x), (theirs, x), (exact, x.double()))]
    else:
        with torch.no_grad():
            results = [m(y) for m, y in ((ours, x), (theirs, x), (exact, x.double()))]
    assert report.replaced and not [why for why in report.left.values() if "batch norm" not in why]
    assert_as_near(*results)

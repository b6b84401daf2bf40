"""Compares every way to use FastAct in models of transformers with eager and float64.

Needs transformers, which requirements.txt does not contain. docs/guides/existing-models.md shows
how to run these tests.
"""

import copy
import sys

import pytest
import torch

import fastact
from support import REPOSITORY
from test_override_models import assert_as_near

sys.path.append(str(REPOSITORY / "benchmarks"))

from architectures import architectures  # noqa: E402

every = architectures() or [
    pytest.param(None, marks=pytest.mark.skip("no transformers"), id="transformers")
]
# The names of PyTorch's activation kernels.
KERNELS = {
    f"aten::{name}"
    for name in (
        "relu",
        "silu",
        "gelu",
        "tanh",
        "sigmoid",
        "mish",
        "elu",
        "selu",
        "softplus",
        "glu",
    )
}


def results(model, x, training):
    """Returns the output, or in training the gradients of all parameters, as one tensor."""
    torch.manual_seed(1)
    model.train(training).zero_grad()
    if not training:
        with torch.no_grad():
            return model(x).flatten()
    y = model(x)
    y.square().mean().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def kept_by_pytorch(function):
    """Returns the activations that PyTorch's kernels compute, and the number of FastAct's calls."""
    with torch.profiler.profile() as profile:
        function()
    names = [event.name for event in profile.events()]
    ours = sum(name.startswith("fastact::") for name in names)
    return {name.removeprefix("aten::") for name in names if name in KERNELS}, ours


@pytest.mark.every_combination
@pytest.mark.parametrize("training", (False, True), ids=("inference", "training"))
@pytest.mark.parametrize("way", ("backend", "replace_", "override"))
@pytest.mark.parametrize("architecture", every, ids=lambda a: getattr(a, "name", None))
def test_an_architecture(architecture, way, training):
    torch._dynamo.reset()
    model, x = architecture.build(), architecture.inputs()
    theirs = results(copy.deepcopy(model), x, training)
    exact = results(copy.deepcopy(model).double(), x.double(), training)
    if way == "override":
        with fastact.override_aten():
            ours = results(model, x, training)
    else:
        report = fastact.fuse_(model) if way == "backend" else fastact.replace_(model)
        ours = results(model, x, training)
    assert_as_near(ours, theirs, exact)
    if way == "backend":
        kept, count = kept_by_pytorch(lambda: results(model, x, training))
        print(f"\n{architecture.name}, {way}:\n{report}")
        is_left = any("TorchDynamo leaves it to Python" in why for why in report.left.values())
        assert count > 0 and (is_left or all(name in str(report.left) for name in kept)), report

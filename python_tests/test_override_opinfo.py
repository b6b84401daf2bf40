"""PyTorch's samples and checks of its activations (OpInfo), run on FastAct's kernels.

Each call is also made without an override: the results are close, and all other properties equal.
"""

import copy
import warnings
from contextlib import contextmanager
from functools import cache

import pytest
import torch

import fastact
from support import error_of

# torch.testing's OpInfos import it. requirements.txt lists it.
pytest.importorskip("expecttest")

OPERATORS = (
    "nn.functional.relu", "nn.functional.selu", "nn.functional.elu", "nn.functional.celu",
    "nn.functional.leaky_relu", "nn.functional.hardtanh", "nn.functional.relu6",
    "nn.functional.threshold", "nn.functional.hardswish", "nn.functional.hardsigmoid",
    "sigmoid", "tanh", "nn.functional.silu", "nn.functional.gelu", "nn.functional.mish",
    "nn.functional.softplus", "nn.functional.logsigmoid", "nn.functional.softshrink",
    "nn.functional.hardshrink", "nn.functional.prelu", "nn.functional.tanhshrink",
    "nn.functional.softsign", "nn.functional.rrelu", "softmax", "log_softmax",
)  # fmt: skip
# These are composed of operators that are not replaced.
NOT_REPLACED = ("nn.functional.softsign",)

# PyTorch's 16-bit results lose more digits than assert_close() allows. The results are compared
# with PyTorch's float64 results, rounded.
ROUNDED = ("log_softmax",)

# The number of samples per operator for tests that compile.
COMPILED = 2

names = pytest.mark.parametrize("name", OPERATORS)


@cache
def operator_of(name):
    """Returns PyTorch's OpInfo of the operator. Importing them takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return next(op for op in op_db if op.name == name and not op.variant_test_name)


def samples(name, device, dtype, requires_grad=False):
    # A plain tensor in, a plain tensor out: random operators draw the same numbers again.
    found = operator_of(name).sample_inputs(device, dtype, requires_grad=requires_grad)
    return [s for s in found if not s.kwargs.get("training")]


@contextmanager
def overridden():
    with fastact.override_aten(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module", autouse=True)
def loaded():
    fastact.override_aten().undo()


def geometry(t):
    return t.shape, t.stride(), t.dtype, t.device, t.requires_grad, t._is_view()


def call(function, sample, **more):
    return function(sample.input, *sample.args, **sample.kwargs, **more)


def assert_alike(found, expected):
    assert geometry(found) == geometry(expected)
    torch.testing.assert_close(found, expected, equal_nan=True)


def forms(op):
    """Returns PyTorch's forms: function, method, in place, out=."""
    yield op.op
    if op.method_variant is not None:
        yield op.method_variant
    if op.inplace_variant is not None:
        yield lambda x, *args, **kwargs: op.inplace_variant(x.clone(), *args, **kwargs)
    if op.supports_out:
        yield lambda x, *args, **kwargs: op.op(x, *args, **kwargs, out=torch.empty_like(x))


@names
def test_samples(name, device, dtype):
    op = operator_of(name)
    for sample in samples(name, device, dtype):
        for function in forms(op):
            expected = call(function, sample)
            if name in ROUNDED:
                wide = sample.transform(lambda x: x.double() if torch.is_tensor(x) else x)
                expected.copy_(call(op.op, wide))
            with overridden():
                assert_alike(call(function, sample), expected)


@names
def test_samples_of_other_types(name, device):
    """If PyTorch supports integers or complex numbers, its kernel computes them."""
    op = operator_of(name)
    for dtype in sorted(op.supported_dtypes(device), key=str):
        if dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            continue
        for sample in samples(name, device, dtype):
            expected = call(op.op, sample)
            with overridden():
                found = call(op.op, sample)
            assert geometry(found) == geometry(expected)
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@names
def test_errors(name, device):
    op = operator_of(name)
    if op.error_inputs_func is None:
        return
    for error in op.error_inputs(device):
        with overridden(), pytest.raises(error.error_type, match=error.error_regex):
            call(op.op, error.sample_input)


@names
def test_gradients(name, device):
    """Checks both orders in reverse mode, forward mode and batched, by finite differences."""
    op = operator_of(name)
    for sample in samples(name, device, torch.float64, requires_grad=True):
        tensors = [sample.input, *(a for a in sample.args if isinstance(a, torch.Tensor))]
        others = [a for a in sample.args if not isinstance(a, torch.Tensor)]

        def function(*tensors, sample=sample, others=others):
            return op.op(*tensors, *others, **sample.kwargs)

        options = {
            "check_forward_ad": op.supports_forward_ad,
            "check_batched_grad": op.check_batched_grad,
            "nondet_tol": op.gradcheck_nondet_tol,
            "fast_mode": True,
        }
        with overridden():
            assert torch.autograd.gradcheck(function, tensors, **options)
            if op.supports_gradgrad:
                assert torch.autograd.gradgradcheck(function, tensors, fast_mode=True)


@names
def test_vmap(name, device):
    op = operator_of(name)
    for sample in samples(name, device, torch.float32):
        if sample.input.dim() == 0 or not len(sample.input):
            continue

        def one(x, sample=sample):
            return op.op(x, *sample.args, **sample.kwargs)

        mapped = torch.vmap(one)
        theirs = error_of(mapped, sample.input)
        with overridden():
            assert type(error_of(mapped, sample.input)) is type(theirs)
            if theirs is None:
                loop = torch.stack([one(x) for x in sample.input])
                torch.testing.assert_close(mapped(sample.input), loop, rtol=0, atol=0)


class Module(torch.nn.Module):
    """Calls each operator with its samples, whose first tensors are the arguments."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def forward(self, *inputs):
        return [
            function(x, *sample.args, **sample.kwargs)
            for (function, sample), x in zip(self.calls, inputs)
        ]


def test_compiled_and_exported(device, fresh_compiler):
    """Graphs of ATen's operators, traced with or without an override, run on FastAct's kernels. One
    graph contains all operators."""
    chosen = [(n, s) for n in OPERATORS for s in samples(n, device, torch.float32)[:COMPILED]]
    module = Module([(operator_of(n).op, copy.copy(s)) for n, s in chosen]).eval()
    inputs = tuple(sample.input for _, sample in chosen)
    before = torch.export.export(module, inputs).module()
    with overridden():
        expected = module(*inputs)
        within = torch.export.export(module, inputs).module()
        compiled = torch.compile(module, backend="aot_eager")
        for function in (before, within, compiled):
            for found, wanted, (name, _) in zip(function(*inputs), expected, chosen, strict=True):
                assert torch.equal(found, wanted), name


@names
def test_replaced_kernels_run(name, device):
    """Every call of a replaced operator, forward and backward, reaches FastAct."""
    op = operator_of(name)
    replaced = 0
    with overridden():
        kernels = {k.split()[0] for k in fastact.overridden_aten_kernels()}
        for sample in samples(name, device, torch.float32, requires_grad=True):
            with torch.profiler.profile(record_shapes=False) as profile:
                call(op.op, sample).sum().backward()
            events = profile.events()
            calls = [e for e in events if e.name in kernels]
            replaced += len(calls)
            for event in calls:
                below = [child.name for child in event.cpu_children]
                assert any(n.startswith("fastact::") for n in below), (event.name, below)
    assert (replaced > 0) == (name not in NOT_REPLACED)

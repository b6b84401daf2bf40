"""override_aten(): PyTorch's layer_norm and group_norm with FastAct's kernel.

The bits of values are FastAct's: a row has the same bits alone and in a batch. Everything else is
compared with the same call without an override.
"""

import pytest
import torch
from torch.nn import functional as F

import fastact as package
from rows import rows_of
from support import DTYPES, LAYOUTS, assert_same_bits, make
from test_override import assert_outcomes_are_atens, geometry, replaced, tensors_of_other_kinds
from test_override_compiled import Traced

fastact = torch.ops.fastact
aten = torch.ops.aten
# Which of weight and bias a call has.
PRESENT = ((), ("weight",), ("bias",), ("weight", "bias"))

every_set = pytest.mark.parametrize("present", PRESENT, ids=lambda p: "+".join(p) or "none")


@pytest.fixture(scope="module", autouse=True)
def loaded():
    package.override_aten().undo()


def vectors(present, shape, dtype=torch.float32, device="cpu"):
    generator = torch.Generator().manual_seed(len(present))
    numbers = torch.randn(len(present), *shape, generator=generator, dtype=torch.float64)
    return dict(zip(present, numbers.to(device, dtype)))


def value_and_gradients(call, *leaves):
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    y = call(*leaves)
    grad = torch.linspace(-1, 2, y.numel(), dtype=y.dtype, device=y.device).view(y.shape)
    return [y.detach(), *torch.autograd.grad(y, leaves, grad)]


# ---- Bits


@every_set
def test_bits_are_fastacts(present, dtype, device):
    for n in (1, 33, 1001):
        x = rows_of(n, dtype).to(device)
        operands = vectors(present, (n,), dtype, device)
        expected = fastact.layer_norm(x, (n,), **operands)
        with package.override_aten(), torch.profiler.profile() as profile:
            assert_same_bits(F.layer_norm(x, (n,), **operands), expected)
        (name,) = replaced(profile.key_averages())
        assert name.startswith("fastact::_layer_norm")


def test_a_row_has_the_same_bits_alone_and_in_a_batch(dtype, device):
    for n in (5, 129, 2000):
        x = torch.randn(64, n, dtype=torch.float64, device=device).to(dtype)
        norm = torch.nn.LayerNorm(n, dtype=dtype, device=device)
        with package.override_aten(), torch.no_grad():
            batch = norm(x)
            for i in (0, 41):
                assert_same_bits(norm(x[i]), batch[i])
                assert_same_bits(norm(x[i : i + 5]), batch[i : i + 5])
            assert_same_bits(norm(x.t().contiguous().t()), batch)


@every_set
def test_bits_of_group_norm_are_fastacts(present, dtype, device):
    """A sample has the same bits alone and in a batch."""
    for shape, groups in (((3, 6, 5), 3), ((4, 8, 9, 7), 2), ((2, 6), 2)):
        x = torch.randn(shape, dtype=torch.float64, device=device).to(dtype)
        operands = vectors(present, shape[1:2], dtype, device)
        expected = fastact.group_norm(x, groups, **operands)
        with package.override_aten(), torch.profiler.profile() as profile:
            assert_same_bits(F.group_norm(x, groups, **operands), expected)
            assert_same_bits(F.group_norm(x[1:], groups, **operands), expected[1:])
        (name,) = replaced(profile.key_averages())
        assert name.startswith("fastact::_layer_norm")


# ---- Semantics: those of the same call without an override


@every_set
def test_gradients_are_atens(present, dtype, device):
    """PyTorch's backward pass reads the statistics of FastAct's forward pass, also if the override
    has ended."""
    x = torch.randn(6, 3, 40, dtype=torch.float64, device=device).to(dtype)
    operands = vectors(present, (3, 40), dtype, device)

    def call(x, *leaves):
        return F.layer_norm(x, (3, 40), **dict(zip(present, leaves)))

    expected = value_and_gradients(call, x, *operands.values())
    with package.override_aten():
        found = value_and_gradients(call, x, *operands.values())
    leaf = x.clone().requires_grad_()
    with package.override_aten():
        y = call(leaf, *operands.values())
    after = torch.autograd.grad(y.sum(), leaf)[0]
    wanted = torch.autograd.grad(call(leaf, *operands.values()).sum(), leaf)[0]
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-4}.get(dtype, 5e-2)
    for ours, theirs in zip((*found, after), (*expected, wanted)):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("present", [present for present in PRESENT if present != ("bias",)])
def test_gradients_of_group_norm_are_atens(present, dtype, device):
    """With a bias and no weight, torch 2.11 has no gradient."""
    images = torch.randn(4, 6, 5, 3, dtype=torch.float64, device=device).to(dtype)
    operands = vectors(present, (6,), dtype, device)

    def call(x, *leaves):
        return F.group_norm(x, 2, **dict(zip(present, leaves)))

    tolerance = {torch.float64: 1e-12, torch.float32: 1e-4}.get(dtype, 1e-1)
    last = torch.channels_last
    for case, memory_format in ((images, None), (images, last), (images[..., :1, :1], last)):
        x = case.clone(memory_format=memory_format or torch.contiguous_format)
        expected = value_and_gradients(call, x, *operands.values())
        with package.override_aten():
            found = value_and_gradients(call, x, *operands.values())
        for ours, theirs in zip(found, expected):
            assert geometry(ours) == geometry(theirs)
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@every_set
def test_statistics_of_group_norm_are_atens(present, dtype, device):
    x = torch.randn(4, 6, 15, dtype=torch.float64, device=device).to(dtype)
    operands = vectors(present, (6,), dtype, device)
    arguments = x, operands.get("weight"), operands.get("bias"), 4, 6, 15, 3, 1e-5
    expected = aten.native_group_norm(*arguments)
    with package.override_aten():
        found = aten.native_group_norm(*arguments)
    for ours, theirs in zip(found, expected):
        assert geometry(ours) == geometry(theirs)
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


@every_set
def test_results_lie_as_atens(present, dtype, device):
    for layout in LAYOUTS:
        x = make(layout, device=device).to(dtype)
        for rank in range(1, x.dim() + 1):
            shape = x.shape[x.dim() - rank :]
            operands = vectors(present, shape, dtype, device)
            both = operands.get("weight"), operands.get("bias")
            expected = aten.native_layer_norm(x, shape, *both, 1e-5)
            with package.override_aten():
                found = aten.native_layer_norm(x, shape, *both, 1e-5)
            for ours, theirs in zip(found, expected):
                assert geometry(ours) == geometry(theirs), (layout, rank)
                torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2, equal_nan=True)


def test_errors_and_other_types_are_atens(device):
    x = torch.randn(4, 6, device=device)
    w = torch.ones(6, device=device)
    calls = {
        "no shape": lambda: F.layer_norm(x, ()),
        "other shape": lambda: F.layer_norm(x, (5,)),
        "too many dimensions": lambda: F.layer_norm(x, (1, 4, 6)),
        "shape of weight": lambda: F.layer_norm(x, (6,), w[:5]),
        "shape of bias": lambda: F.layer_norm(x, (6,), w, w[:, None]),
        "type of weight": lambda: F.layer_norm(x, (6,), w.double()),
        "mixed types": lambda: F.layer_norm(x.bfloat16(), (6,), w, w),
        "no rows": lambda: F.layer_norm(x[:0], (6,), w),
        "empty rows": lambda: F.layer_norm(x[:, :0], (0,)),
        "eps": lambda: F.layer_norm(x, (6,), eps=float("inf")),
    }
    images, channels = torch.randn(2, 6, 4, device=device), torch.ones(6, device=device)
    calls |= {
        "groups": lambda: F.group_norm(images, 4),
        "no groups": lambda: F.group_norm(images, 0),
        "channels": lambda: F.group_norm(images, 3, channels[:3]),
        "type of channels": lambda: F.group_norm(images, 3, channels.double()),
        "mixed channels": lambda: F.group_norm(images.bfloat16(), 3, channels, channels),
        "no images": lambda: F.group_norm(images[:0], 3, channels),
        "empty images": lambda: F.group_norm(images[..., :0], 3, channels),
        "eps of groups": lambda: F.group_norm(images, 3, eps=float("inf")),
        "other sizes": lambda: aten.native_group_norm(images, None, None, 2, 6, 5, 3, 1e-5),
    }
    for kind, other in tensors_of_other_kinds(x).items():
        calls[kind] = lambda other=other: F.layer_norm(other, (6,))
        calls[f"groups of {kind}"] = lambda other=other: F.group_norm(other, 3)

    assert_outcomes_are_atens(calls)


# ---- torch.compile


@pytest.mark.parametrize("dtype", DTYPES)
def test_compiled_graphs_call_fastacts_operators(dtype, device, fresh_compiler):
    x = torch.randn(5, 4, 30, device=device).to(dtype)
    weight = vectors(("weight", "bias"), (4, 30), dtype, device)

    def call(x, w, b):
        return F.layer_norm(x, (4, 30), w, b) + F.layer_norm(x, (4, 30), w) + F.layer_norm(x, (30,))

    traced = Traced()
    compiled = torch.compile(call, backend=traced, fullgraph=True)
    theirs = compiled(x, *weight.values())
    assert not traced.operators()
    with package.override_aten():
        expected = value_and_gradients(call, x, *weight.values())
        found = value_and_gradients(compiled, x, *weight.values())
    assert_same_bits(found[0], expected[0])
    tolerance = 5e-2 if dtype.itemsize == 2 else 1e-4
    for ours, wanted in zip(found, expected):
        torch.testing.assert_close(ours, wanted, rtol=tolerance, atol=tolerance)
    assert {*traced.operators()} == {
        "_layer_norm_with_statistics",
        "_layer_norm_without_bias_with_statistics",
    }
    assert_same_bits(compiled(x, *weight.values()), theirs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_compiled_graphs_call_fastacts_group_norm(dtype, device, fresh_compiler):
    x = torch.randn(2, 6, 4, 5, device=device).to(dtype)
    weight = vectors(("weight", "bias"), (6,), dtype, device)

    def call(x, w, b):
        return F.group_norm(x, 3, w, b) + F.group_norm(x, 2)

    traced = Traced()
    compiled = torch.compile(call, backend=traced, fullgraph=True)
    with package.override_aten():
        expected = value_and_gradients(call, x, *weight.values())
        found = value_and_gradients(compiled, x, *weight.values())
    assert_same_bits(found[0], expected[0])
    tolerance = 1e-1 if dtype.itemsize == 2 else 1e-4
    for ours, wanted in zip(found, expected):
        torch.testing.assert_close(ours, wanted, rtol=tolerance, atol=tolerance)
    assert {*traced.operators()} == {
        "_layer_norm_with_statistics",
        "_layer_norm_without_bias_with_statistics",
    }


def test_a_decomposition_takes_what_eager_code_takes(device):
    """Shapes that do not fit are ATen's, which raises its error."""
    from fastact._inductor.overriding import _decompose_layer_norm

    x = torch.randn(3, 2, 4, device=device)
    shapes = (([2, 4], (8,)), ([4, 2], (4, 2)), ([3], (3,)), ([], ()))
    for shape, of_weight in shapes:
        calls = []
        weight = torch.ones(of_weight, device=device)
        _decompose_layer_norm(lambda *args: calls.append(args), x, shape, weight, None, 1e-5)
        assert calls, shape


@pytest.mark.slow
def test_inductors_code_has_the_bits(device, fresh_compiler):
    """A row alone and in a batch, compiled, and eager have the same bits."""
    norm = torch.nn.LayerNorm(777, device=device)
    x = torch.randn(8, 777, device=device)
    compiled = torch.compile(norm, fullgraph=True)
    with package.override_aten():
        expected = norm(x)
        assert_same_bits(compiled(x), expected)
        assert_same_bits(compiled(x[3:4]), expected[3:4])

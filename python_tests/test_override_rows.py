"""override_aten(): PyTorch's softmax and log_softmax with FastAct's kernels.

The bits are FastAct's: a row has the same bits alone and in a batch. Everything else is compared
with the same call without an override.
"""

import pytest
import torch
from torch.nn import functional as F

import fastact as package
from rows import FINITE, rows_of
from support import LAYOUTS, assert_same_bits, error_of, make
from test_override import assert_outcomes_are_atens, geometry, replaced, tensors_of_other_kinds
from test_override_compiled import Traced

fastact = torch.ops.fastact
aten = torch.ops.aten
FUNCTIONS = {"softmax": torch.softmax, "log_softmax": torch.log_softmax}
KERNELS = {"softmax": aten._softmax, "log_softmax": aten._log_softmax}
GRADIENTS = {"softmax": aten._softmax_backward_data, "log_softmax": aten._log_softmax_backward_data}

every_operator = pytest.mark.parametrize("name", FUNCTIONS)


@pytest.fixture(scope="module", autouse=True)
def loaded():
    package.override_aten().undo()


def value_and_gradient(function, x, grad):
    leaf = x.detach().clone().requires_grad_()
    y = function(leaf)
    return y.detach(), torch.autograd.grad(y, leaf, grad.to(y.dtype))[0]


# ---- Bits


@every_operator
def test_bits_are_fastacts(name, dtype, device):
    op, backward = getattr(fastact, name), getattr(fastact, f"{name}_backward")
    for n in (1, 33, 1001):
        x, grad = rows_of(n, dtype).to(device), rows_of(n, dtype, seed=1).to(device)
        y = op(x, 1)
        gradient = backward(grad, y, 1)
        with package.override_aten():
            for found in value_and_gradient(lambda x: FUNCTIONS[name](x, 1), x, grad), (
                KERNELS[name].out(x, 1, False, out=torch.empty_like(x)),
                GRADIENTS[name].out(grad, y, 1, dtype, **{
                    "softmax": {"grad_input": torch.empty_like(x)},
                    "log_softmax": {"out": torch.empty_like(x)},
                }[name]),
            ):  # fmt: skip
                assert_same_bits(found[0], y)
                assert_same_bits(found[1], gradient)


@every_operator
def test_a_row_has_the_same_bits_alone_and_in_a_batch(name, dtype, device):
    """Also its gradient: of a batch of 1, of 5, of 64, of a batch with another layout, and for one
    thread."""
    functions = [
        lambda x: FUNCTIONS[name](x, -1),
        lambda x: getattr(x, name)(dim=-1),
        lambda x: getattr(F, name)(x, dim=x.dim() - 1),
        lambda x: getattr(torch.special, name)(x, -1),
    ]
    for n in (5, 129, 2000):
        x = torch.randn(64, n, dtype=torch.float64, device=device).to(dtype)
        grad = torch.randn_like(x)
        with package.override_aten():
            for function in functions:
                batch = value_and_gradient(function, x, grad)
                for i in (0, 41):
                    alone = value_and_gradient(function, x[i], grad[i])
                    some = value_and_gradient(function, x[i : i + 5], grad[i : i + 5])
                    for whole, one, five in zip(batch, alone, some):
                        assert_same_bits(one, whole[i])
                        assert_same_bits(five, whole[i : i + 5])
            other = value_and_gradient(functions[0], x.t().contiguous().t(), grad)
            torch.set_num_threads(1)
            try:
                serial = value_and_gradient(functions[0], x, grad)
            finally:
                torch.set_num_threads(2)
        for whole, *found in zip(batch, other, serial):
            for each in found:
                assert_same_bits(each, whole)


def test_what_calls_softmax_has_its_bits(device):
    """Losses, modules and attention that is composed of operators."""
    x = torch.randn(6, 300, device=device)
    target = torch.arange(6, device=device)
    with package.override_aten():
        assert_same_bits(torch.nn.Softmax(1)(x), fastact.softmax(x, 1))
        assert_same_bits(F.softmin(x, 1), fastact.softmax(-x, 1))
        loss = F.cross_entropy(x, target, reduction="none")
        assert_same_bits(loss, -fastact.log_softmax(x, 1).gather(1, target[:, None])[:, 0])
        math = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
        with math, torch.profiler.profile() as profile:
            F.scaled_dot_product_attention(*[x.view(1, 1, 6, 300)] * 3)
    assert replaced(profile.key_averages()) == {"fastact::_softmax": 1}


@every_operator
def test_half_to_float(name, cuda):
    """float16 in, float32 out: a GPU's kernel converts the input first, and the gradient last."""
    for n in (5, 300):
        x = rows_of(n, torch.float16).to(cuda)
        grad = torch.randn(x.shape, device=cuda)
        y = getattr(fastact, name)(x.float(), 1)
        gradient = getattr(fastact, f"{name}_backward")(grad, y, 1)
        with package.override_aten():
            found = value_and_gradient(
                lambda x: FUNCTIONS[name](x, 1, dtype=torch.float32), x, grad
            )
            out = KERNELS[name].out(x, 1, True, out=torch.empty_like(y))
        assert_same_bits(out, y)
        assert_same_bits(found[0], y)
        assert_same_bits(found[1], gradient.half())


# ---- Semantics: those of the same call without an override


@every_operator
def test_results_lie_as_atens(name, device):
    for layout in LAYOUTS:
        x = make(layout, device=device)
        grad = torch.randn_like(x)

        def results(x=x, grad=grad):
            found = []
            for dim in range(-max(x.dim(), 1), max(x.dim(), 1)):
                y, gradient = value_and_gradient(lambda x: FUNCTIONS[name](x, dim), x, grad)
                out = KERNELS[name].out(x, dim, False, out=x.new_empty(0))
                found += [y, gradient, out]
            return found

        expected = results()
        with package.override_aten():
            for ours, theirs in zip(results(), expected):
                assert geometry(ours) == geometry(theirs), layout
                torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@every_operator
def test_errors_and_other_types_are_atens(name, device):
    x = torch.ones(4, 6, device=device)
    kernel, gradient = KERNELS[name], GRADIENTS[name]
    calls = {
        "dim": lambda: kernel(x, 2, False),
        "dim of a scalar": lambda: kernel(x[0, 0], -2, False),
        "dim of a gradient": lambda: gradient(x, x, -3, torch.float32),
        "shapes": lambda: gradient(x, x[:1], 1, torch.float32),
        "types": lambda: gradient(x.double(), x, 1, torch.float32),
        "type of out": lambda: kernel.out(x, 1, False, out=torch.empty_like(x, dtype=torch.int32)),
        "wider out": lambda: kernel.out(x, 1, False, out=torch.empty_like(x).double()),
        "half to float": lambda: kernel(x, 1, True),
        "bfloat16 to float": lambda: kernel(x.bfloat16(), 1, True),
        "to float16 on a CPU": lambda: kernel(x.half().cpu(), 1, True),
        "input_dtype": lambda: gradient(x.double(), x.double(), 1, torch.float16),
        "to integers": lambda: FUNCTIONS[name](x, 1, dtype=torch.int64),
    }
    for kind, other in tensors_of_other_kinds(x).items():
        calls[kind] = lambda other=other: FUNCTIONS[name](other, 1)

    assert_outcomes_are_atens(calls)


@every_operator
def test_out_may_be_the_input_but_not_overlap_it_in_part(name, device):
    x = torch.randn(4, 6, device=device)
    expected = getattr(fastact, name)(x, 1)
    storage = torch.zeros(30, device=device)
    shifted = storage[3:27].view(4, 6).copy_(x)
    with package.override_aten():
        same = x.clone()
        assert_same_bits(KERNELS[name].out(same, 1, False, out=same), expected)
        # ATen does not check for this overlap.
        assert error_of(KERNELS[name].out, shifted, 1, False, out=storage[:24].view(4, 6)) is None


def test_the_list_names_both_passes():
    with package.override_aten():
        kernels = package.overridden_aten_kernels()
    for name in (
        "_softmax",
        "_log_softmax",
        "_softmax_backward_data",
        "_log_softmax_backward_data",
    ):
        assert {f"aten::{name} [CPU]", f"aten::{name}.out [CPU]"} <= set(kernels)


# ---- torch.compile


def both(x):
    return [torch.softmax(x, 1), F.log_softmax(x, 0), x.softmax(-1, dtype=torch.float64)]


def values_and_gradients(function, x):
    leaf = x.clone().requires_grad_()
    results = function(leaf)
    total = sum((y.double() * y.double().cos()).sum() for y in results)
    return [*(y.detach() for y in results), *torch.autograd.grad(total, leaf)]


def test_compiled_graphs_call_fastacts_operators(dtype, device):
    """Values have eager's bits, and the first gradient, of one call alone, too."""
    x = rows_of(50, dtype)[: len(FINITE)].to(device)
    traced = Traced()
    compiled = torch.compile(both, backend=traced, fullgraph=True)
    one = torch.compile(lambda x: torch.log_softmax(x, 1), backend=traced, fullgraph=True)
    grad = torch.randn_like(x)
    theirs = compiled(x)
    assert not traced.operators()
    with package.override_aten():
        expected = values_and_gradients(both, x)
        found = values_and_gradients(compiled, x)
        for a, b in zip(found[:3], expected[:3]):
            assert_same_bits(a, b)
        ours = value_and_gradient(one, x, grad)
        wanted = value_and_gradient(lambda x: torch.log_softmax(x, 1), x, grad)
        for a, b in zip(ours, wanted):
            assert_same_bits(a, b)
    names = traced.operators()
    assert {*names} == {"_softmax", "_log_softmax", "softmax_backward", "log_softmax_backward"}
    for a, b in zip(compiled(x), theirs):
        assert_same_bits(a, b)


@pytest.mark.slow
def test_inductors_code_has_the_bits(device, fresh_compiler):
    """A row alone and in a batch, compiled, and eager have the same bits; the gradient, too."""

    def f(x):
        return torch.log_softmax(x, 1)

    x = torch.randn(8, 777, device=device)
    grad = torch.randn_like(x)
    compiled = torch.compile(f, fullgraph=True)
    with package.override_aten():
        expected = value_and_gradient(f, x, grad)
        for a, b in zip(value_and_gradient(compiled, x, grad), expected):
            assert_same_bits(a, b)
        for a, b in zip(value_and_gradient(compiled, x[3:4], grad[3:4]), expected):
            assert_same_bits(a, b[3:4])

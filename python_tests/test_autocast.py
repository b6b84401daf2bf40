"""Under autocast, each operator has the types of PyTorch's operator of the same name."""

import contextlib

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from op_table import OPERATORS
from support import assert_same_bits, values
from test_layouts import theirs

EVERY_ACTIVATION = True
KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
IN_PYTORCH = {"gelu_tanh": "gelu"}
on_list = torch._C._dispatch_has_kernel_for_dispatch_key
# The activations of this build.
PRESENT = [act for act in OPERATORS if hasattr(torch.ops.fastact, act.name)]
LISTED = {
    device: [act for act in PRESENT if on_list(f"fastact::{act.name}", key)]
    for device, key in KEYS.items()
}
low_precision = pytest.mark.parametrize("low", (torch.bfloat16, torch.float16), ids=str)


@contextlib.contextmanager
def autocast(device, low):
    """Returns torch.autocast, which requires a GPU even for fake tensors on a GPU."""
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, low)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])
        torch.clear_autocast_cache()


@pytest.mark.parametrize("device", KEYS)
def test_lists_are_pytorchs(device):
    key = KEYS[device]
    for name in [act.name for act in OPERATORS] + ["prelu"]:
        for form in ("", "_", ".out", "_backward"):
            pytorchs = "aten::" + IN_PYTORCH.get(name, name) + form
            if torch._C._dispatch_has_kernel(pytorchs):
                assert on_list("fastact::" + name + form, key) == on_list(pytorchs, key), name
    listed = {act.name for act in LISTED[device]}
    assert listed == ({"softplus"} if device == "cuda" else set())


def result_type(function, x):
    return function(x).dtype


def gradient_type(function, x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(function(x).sum(), x)[0].dtype


def check_types(act, device, dtype, low, *queries):
    is_pytorchs = torch._C._dispatch_has_kernel("aten::" + IN_PYTORCH.get(act.name, act.name))
    x = torch.ones(3, 3, dtype=dtype, device=device)
    with autocast(device, low):
        after_product = x.float() @ x.float()
        assert after_product.dtype == low
        for query in queries:
            for operand in (x, after_product):
                # PyTorch's compositions have the types of their operators, which may be on a list.
                expected = query(theirs(act), operand) if is_pytorchs else operand.dtype
                assert query(act.op, operand) == expected
        assert act.ladder(x, x).dtype == act.op_(x.clone()).dtype == dtype
        assert act.ladder(after_product, x).dtype == torch.promote_types(low, dtype)
        assert act.out(x, torch.empty_like(x)).dtype == dtype


@low_precision
def test_types_are_pytorchs(act, device, dtype, low):
    check_types(act, device, dtype, low, result_type, gradient_type)


@low_precision
def test_types_are_pytorchs_without_a_gpu(act, dtype, low):
    """Uses fake tensors on a GPU. Backward would require a GPU."""
    with FakeTensorMode():
        check_types(act, "cuda", dtype, low, result_type)


@low_precision
def test_operators_on_a_list_compute_in_their_type(device, low):
    for act in LISTED[device]:
        x = values(3, 40, dtype=low, device=device).requires_grad_()
        with autocast(device, low):
            y = act.op(x)
        assert_same_bits(y, act.op(x.float()))
        g = values(3, 40, device=device)
        expected = act.gradient(g, x.detach().float()).to(low)
        assert_same_bits(torch.autograd.grad(y, x, g)[0], expected)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ("softplus", "prelu", "gelu"))
def test_compiled_as_eager(device, name):
    low = torch.bfloat16

    def f(x, w, other, *weights):
        with torch.autocast(device, low):
            op = getattr(torch.ops.fastact, name)
            return op(x @ w, *weights[:1]), op(other, *weights[1:])

    results = []
    for function in (f, torch.compile(f, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(0)
        shapes = ((4, 4),) * 3 + ((4,),) * (2 if name == "prelu" else 0)
        leaves = [values(*shape, device=device).requires_grad_() for shape in shapes]
        ys = function(*leaves)
        loss = sum(y.float().sum() for y in ys)
        results.append((*ys, *torch.autograd.grad(loss, leaves)))
    for ours, expected in zip(*results):
        assert_same_bits(ours, expected)

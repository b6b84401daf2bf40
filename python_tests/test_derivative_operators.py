"""The derivative operators called directly: promotion, grad_input and errors. test_combinations.py
tests what they share with other operators."""

import itertools

import pytest
import torch
from torch._subclasses import FakeTensorMode

from op_table import TOP_ORDER
from support import (
    DTYPES,
    LAYOUTS,
    assert_same_bits,
    error_of,
    first_line,
    make,
    untouched,
    values,
)
from test_semantics import SELF_OVERLAPPING, assert_our_error

orders = pytest.mark.parametrize("order", range(1, TOP_ORDER + 1))
# PyTorch's elementwise operators by number of operands: the oracle for shapes, types and strides.
ELEMENTWISE = {
    1: torch.mul,
    2: torch.addcmul,
    3: lambda g, h, i, x: g * h * i * x,
}


def elementwise(act, *tensors):
    """Returns a result with the layout of D_k(g1..gk, x), which the first operand determines."""
    return ELEMENTWISE[len(tensors) - 1](*(tensors[::-1] if act.self_leads else tensors))


def operands(order, *shapes, device="cpu", dtype=torch.float32):
    """Returns `order` gradients and an input, with the given shapes in turn."""
    return [
        values(*s, dtype=dtype, device=device)
        for s, _ in zip(itertools.cycle(shapes), range(order + 1))
    ]


@orders
def test_shapes_that_do_not_broadcast(act, device, order):
    tensors = operands(order, (3,), (4,), device=device)
    expected = error_of(torch.mul, *(tensors[::-1] if act.self_leads else tensors)[:2])
    error = error_of(act.ladder, *tensors)
    assert isinstance(error, RuntimeError) and first_line(error) == first_line(expected)


@pytest.mark.parametrize("pair", list(itertools.product(DTYPES, DTYPES)), ids=str)
def test_mixed_dtypes_promote(act, device, pair):
    grad, x = values(50, dtype=pair[0], device=device), values(50, dtype=pair[1], device=device)
    result = act.ladder(grad, x)
    assert result.dtype == act.aten_backward(grad, x).dtype == torch.promote_types(*pair)
    assert_same_bits(result, act.ladder(grad.to(result.dtype), x.to(result.dtype)))
    three = act.ladder(grad, grad, x)
    assert three.dtype == result.dtype
    assert_same_bits(
        three, act.ladder(grad.to(result.dtype), grad.to(result.dtype), x.to(result.dtype))
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_mixed_dtypes_lie_as_pytorchs(act, device, layout):
    """On a CPU, PyTorch converts operands before it chooses strides; on a GPU it does not."""
    x = make(layout, device=device)
    grads = [x.to(torch.bfloat16), values(*x.shape, device=device).to(torch.bfloat16)]
    if x.dim() == 4:  # expanded, next to channels-last with dimensions of 1
        x = x[:1, :2, :1, :1].to(memory_format=torch.channels_last)
        grads = [values(1, device=device).to(torch.bfloat16).expand_as(x)]
    for grad in grads:
        for operands in ((grad, x), (x, grad)):
            expected, result = elementwise(act, *operands), act.ladder(*operands)
            assert (result.shape, result.stride()) == (expected.shape, expected.stride())
            assert_same_bits(result, act.ladder(*(t.float() for t in operands)))
            with FakeTensorMode() as mode:
                fake = act.ladder(*map(mode.from_tensor, operands))
            assert (fake.shape, fake.stride()) == (expected.shape, expected.stride())


@pytest.mark.parametrize("out_dtype", DTYPES, ids=str)
def test_mixed_dtypes_are_written_to_any_dtype(act, device, out_dtype):
    """The result has the promoted dtype before it becomes that of grad_input."""
    wide, narrow = values(50, device=device), values(50, dtype=torch.bfloat16, device=device)
    for operands in ((wide, narrow), (narrow, wide)):
        out = torch.empty(50, dtype=out_dtype, device=device)
        act.grad_input(*operands, out)
        assert_same_bits(out, act.ladder(*operands).to(out_dtype))


def test_zero_dim_operand_does_not_widen(act, device):
    grad = torch.tensor(1.5, dtype=torch.float64, device=device)
    x = values(5, dtype=torch.float32, device=device)
    assert act.ladder(grad, x).dtype == act.aten_backward(grad, x).dtype == torch.float32
    assert act.ladder(x, grad).dtype == act.aten_backward(x, grad).dtype == torch.float32


@pytest.mark.parametrize("layout", LAYOUTS)
def test_grad_input_follows_pytorch(act, device, layout):
    target, theirs = make(layout, device=device), make(layout, device=device)
    grad, x = values(*target.shape, device=device), values(*target.shape, device=device)
    expected_error = error_of(torch.mul, grad, x, out=theirs)
    for options in act.derivative_options:
        if expected_error is not None:
            with untouched(grad, x, target), pytest.raises(RuntimeError) as raised:
                act.grad_input(grad, x, target, **options)
            assert first_line(raised.value) == first_line(expected_error)
        else:
            version = target._version
            assert act.grad_input(grad, x, target, **options) is target
            assert target._version == version + 1 and target.stride() == theirs.stride()
            if layout in SELF_OVERLAPPING:
                return
            assert_same_bits(target, act.ladder(grad, x, **options))


def test_grad_input_may_be_an_operand(act, device, dtype):
    for which in (0, 1):
        tensors = operands(1, (60,), device=device, dtype=dtype)
        expected = act.ladder(*tensors)
        act.grad_input(*tensors, tensors[which])
        assert_same_bits(tensors[which], expected)


def test_grad_input_of_another_floating_dtype(act, device):
    """The result is cast, as by PyTorch's operators with two operands."""
    grad, x = operands(1, (50,), device=device)
    for other in DTYPES:
        target = torch.empty(50, dtype=other, device=device)
        assert act.grad_input(grad, x, target) is target
        assert_same_bits(target, act.ladder(grad, x).to(other))


@pytest.mark.parametrize("dtypes", list(itertools.product(DTYPES[:2], DTYPES[:2])), ids=str)
def test_grad_input_overlap_is_found_whatever_the_dtypes(act, device, dtypes):
    """This also holds if the overlapping operand, or the result, is converted."""
    memory = values(12, dtype=dtypes[0], device=device)
    grad, target = memory[0], memory[:10]
    x = values(10, dtype=dtypes[1], device=device)
    expected = error_of(torch.mul, grad, x, out=target)
    with untouched(memory, x):
        error = error_of(act.grad_input, grad, x, target)
    assert isinstance(error, RuntimeError) and first_line(error) == first_line(expected)


def test_grad_input_errors(act, device):
    grad, x = operands(1, (4,), device=device)
    for wrong in (torch.bool, torch.int64):
        target = torch.zeros(4, dtype=wrong, device=device)
        assert error_of(torch.mul, grad, x, out=target) is not None
        with untouched(grad, x, target):
            assert_our_error(error_of(act.grad_input, grad, x, target), act)
    with untouched(grad, x):
        assert_our_error(error_of(act.grad_input, grad, x, torch.empty(4, device="meta")), act)
    base = values(10, device=device)
    expected = error_of(torch.mul, base[:4], x, out=base[1:5])
    with untouched(base):
        error = error_of(act.grad_input, base[:4], x, base[1:5])
    assert isinstance(error, RuntimeError) and first_line(error) == first_line(expected)


@orders
def test_one_unsupported_operand_is_an_error(act, device, order):
    for position in range(order + 1):
        tensors = operands(order, (4,), device=device)
        tensors[position] = torch.ones(4, dtype=torch.complex64, device=device)
        assert_our_error(error_of(act.ladder, *tensors), act, NotImplementedError)


def test_operands_on_two_devices(act, device):
    grad = torch.empty(4, device="meta")
    assert isinstance(error_of(act.ladder, grad, values(4, device=device)), RuntimeError)
    if device == "cuda":
        assert isinstance(error_of(act.ladder, values(4), values(4, device=device)), RuntimeError)

"""rrelu: leaky ReLU with random slopes. Compares bits with the definition, and tests statistics,
saved memory, in-place calls and errors. test_combinations.py tests what it shares with others."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fastact as package
from property_modes import saved_bytes
from support import assert_same_bits, error_of, first_line, untouched, values
from test_alpha_dropout import seed_on, words

fastact = torch.ops.fastact


def slopes(seed, shape, lower, upper, dtype, first=0):
    """Returns the slope of each element, with the roundings of ops/forms/rrelu.h."""
    number = torch.float64 if dtype == torch.float64 else torch.float32
    n = math.prod(shape)
    u = (words(seed, n, first) >> 8).double()
    low, step = (torch.tensor(t, dtype=number) for t in (lower, (upper - lower) * 2.0**-24))
    if number == torch.float32:  # exact in float64, because u has 24 bits
        return (u * step.double() + low.double()).to(number).reshape(shape)
    step, low = Fraction(step.item()), Fraction(low.item())
    sums = [float(Fraction(each) * step + low) for each in u.tolist()]
    return torch.tensor(sums, dtype=number).reshape(shape)


@pytest.mark.parametrize("bounds", ((0.125, 1 / 3), (-1.0, 2.0), (0.25, 0.25)))
@pytest.mark.parametrize("shape", ((1,), (7,), (33, 129), (2, 3, 1025)))
def test_bits(dtype, device, bounds, shape):
    x, g = values(*shape, dtype=dtype, device=device), values(*shape, dtype=dtype, device=device)
    key = seed_on(device, (1 << 62) + 12345)
    slope = slopes(key.item(), shape, *bounds, dtype).to(device)
    with untouched(x, g, key):
        result = fastact._rrelu(x, key, *bounds)
        gradient = fastact._rrelu_backward(g, x, key, *bounds)
    assert_same_bits(result, torch.where(x > 0, x, (slope * x.to(slope.dtype)).to(dtype)))
    assert_same_bits(gradient, torch.where(x > 0, g, (slope * g.to(slope.dtype)).to(dtype)))


def test_bits_do_not_depend_on_threads_or_length(dtype, device):
    x, key = values(300_007, dtype=dtype, device=device), seed_on(device)
    whole = fastact._rrelu(x, key, 0.1, 0.9)
    for length in (1, 1023, 1024, 4097, 20_000):
        assert_same_bits(fastact._rrelu(x[:length].clone(), key, 0.1, 0.9), whole[:length])
    far = slopes(7, (400,), 0.1, 0.9, dtype, first=200_000)
    ones = fastact._rrelu(-torch.ones_like(x), key, 0.1, 0.9)[200_000:200_400]
    assert_same_bits(ones.cpu(), -far.to(dtype))
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            assert_same_bits(fastact._rrelu(x, key, 0.1, 0.9), whole)
    finally:
        torch.set_num_threads(threads)


def test_statistics(device):
    """Mean and variance are those of a uniform distribution within five standard deviations.
    Neighbours, and separate calls, are uncorrelated."""
    n = 1 << 20
    found = [-fastact.rrelu(-torch.ones(n, device=device), 0.0, 1.0, True) for _ in range(2)]
    noise = [(s.double() - 0.5) * math.sqrt(12) for s in found]
    for each in noise:
        assert abs(each.mean().item()) < 5 / math.sqrt(n)
        assert abs(each.var().item() - 1) < 5 * math.sqrt(0.8 / n)  # the fourth moment is 1.8
    pairs = [(noise[0], noise[1])] + [(noise[0][k:], noise[0][:-k]) for k in (1, 2, 3, 4, 1024)]
    for a, b in pairs:
        assert abs((a * b).mean().item()) < 5 / math.sqrt(len(a))


def test_the_seed_is_torchs(device):
    x = torch.randn(1000, device=device)
    torch.manual_seed(3)
    first, second = (fastact.rrelu(x, training=True) for _ in range(2))
    torch.manual_seed(3)
    assert_same_bits(fastact.rrelu(x, training=True), first)
    assert not torch.equal(first, second)


def test_a_checkpoint_repeats_the_slopes(device):
    x = torch.randn(50, device=device, requires_grad=True)
    torch.manual_seed(1)
    plain = fastact.rrelu(x * 1, training=True)
    expected = torch.autograd.grad(plain.sum(), x)[0]
    torch.manual_seed(1)
    again = checkpoint(lambda t: fastact.rrelu(t * 1, training=True), x, use_reentrant=False)
    assert_same_bits(again, plain)
    assert_same_bits(torch.autograd.grad(again.sum(), x)[0], expected)


def test_evaluation_is_leaky_relu(dtype, device):
    x = values(50, dtype=dtype, device=device)
    assert_same_bits(fastact.rrelu(x, 0.25, 0.75), fastact.leaky_relu(x, 0.5))
    assert_same_bits(fastact.rrelu_(x.clone(), 0.25, 0.75), fastact.leaky_relu(x, 0.5))
    torch.testing.assert_close(fastact.rrelu(x), F.rrelu(x))


def test_special_values(dtype, device):
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0], dtype=dtype, device=device)
    result = fastact.rrelu(x, 0.5, 0.5, True)
    assert_same_bits(result[:1], fastact.relu(x[:1]))  # the library's NaN
    assert_same_bits(result[1:], x[1:])
    leaf = x.requires_grad_()
    (gradient,) = torch.autograd.grad(fastact.rrelu(leaf, 0.5, 0.5, True), leaf, torch.ones_like(x))
    assert_same_bits(gradient[:1], result[:1])
    assert gradient[1:].tolist() == [1, 0.5, 0.5, 0.5]
    # A NaN in the incoming gradient becomes the library's, and a slope of 0 gives +0.
    nan, inf = torch.full_like(x, -math.nan), torch.full_like(x, -math.inf)
    ones, key = torch.ones_like(nan), seed_on(device)
    found = fastact._rrelu_backward(nan, ones, key, 0.25, 0.75)
    assert_same_bits(found, result[:1].expand_as(found))
    assert_same_bits(fastact._rrelu_backward(inf, -ones, key, 0.0, 0.0), torch.zeros_like(inf))


def test_in_place(dtype, device):
    x = values(40, dtype=dtype, device=device)
    torch.manual_seed(5)
    expected = fastact.rrelu(x, training=True)
    torch.manual_seed(5)
    target = x.clone()
    assert fastact.rrelu_(target, training=True) is target
    assert_same_bits(target, expected)
    leaf = x.clone().requires_grad_()
    torch.manual_seed(5)
    result = package.functional.rrelu(leaf * 1, training=True, inplace=True)
    assert_same_bits(result, expected)
    (gradient,) = torch.autograd.grad(result, leaf, torch.ones_like(x))
    assert ((gradient == 1) == (x > 0)).all() and ((gradient < 0.34) == (x <= 0)).all()
    with pytest.raises(RuntimeError, match="leaf Variable"):
        fastact.rrelu_(x.clone().requires_grad_(), training=True)


def test_in_place_under_vmap(device):
    """The backward pass outside vmap needs the values that the call overwrites."""
    leaf = torch.randn(3, 5, device=device, requires_grad=True)
    call = torch.vmap(lambda t: fastact.rrelu_(t, training=True), randomness="different")
    (gradient,) = torch.autograd.grad(call(leaf * 1).sum(), leaf)
    assert ((gradient == 1) == (leaf > 0)).all() and ((gradient < 0.34) == (leaf <= 0)).all()


def test_only_the_seed_is_saved(device):
    x = torch.randn(1000, device=device, requires_grad=True)
    assert saved_bytes(lambda: fastact.rrelu(x, training=True)) == x.untyped_storage().nbytes() + 8


def test_module(device):
    x = torch.randn(100, device=device)
    module = package.nn.RReLU(0.25, 0.75)
    assert repr(module) == repr(torch.nn.RReLU(0.25, 0.75))
    torch.manual_seed(2)
    expected = fastact.rrelu(x, 0.25, 0.75, True)
    for each in (module, torch.jit.script(module)):
        torch.manual_seed(2)
        assert_same_bits(each(x), expected)
    assert_same_bits(module.eval()(x), fastact.leaky_relu(x, 0.5))


def test_replace_leaves_it():
    """The random slopes would be different ones."""
    model = torch.nn.Sequential(torch.nn.RReLU(), torch.nn.GLU())
    assert package.replace_(model).replaced == {"1": "fastact.nn.GLU"}


def test_opcheck(device):
    x = values(4, 6, dtype=torch.float64, device=device).requires_grad_()
    key = seed_on(device)
    for op, tensors in (
        (fastact._rrelu, (x, key)),
        (fastact._rrelu_backward, (torch.randn_like(x), x, key)),
    ):
        torch.library.opcheck(op.default, (*tensors, 0.25, 0.5))
        assert op(*(t.to("meta") for t in tensors), 0.25, 0.5).shape == x.shape


def test_errors(device):
    x, key = torch.randn(3, device=device), seed_on(device)
    for lower, upper in ((0.5, 0.25), (math.nan, 1.0), (0.0, math.inf), (-1e308, 1e308)):
        text = f"fastact::rrelu: expected lower <= upper, both finite, but got lower={lower:g}"
        for op, training in itertools.product((fastact.rrelu, fastact.rrelu_), (False, True)):
            error = error_of(op, x.clone(), lower, upper, training)
            assert type(error) is ValueError and first_line(error).startswith(text), error
        error = error_of(fastact._rrelu, x, key, lower, upper)
        assert type(error) is ValueError and "expected upper to be" in first_line(error), error
    error = error_of(fastact.rrelu, x.int(), training=True)
    assert type(error) is NotImplementedError and "self to be float32" in first_line(error)


# ---- a GPU


def test_a_gpu_gives_the_cpus_bits(cuda, dtype):
    for n in (1, 5, 4096, 300_007):
        x, g = values(n, dtype=dtype), values(n, dtype=dtype)
        key = seed_on("cpu", (1 << 61) + 99)
        for op, tensors in ((fastact._rrelu, (x, key)), (fastact._rrelu_backward, (g, x, key))):
            there = op(*(t.to(cuda) for t in tensors), 0.125, 1 / 3)
            assert_same_bits(there.cpu(), op(*tensors, 0.125, 1 / 3))

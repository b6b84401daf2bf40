"""selu_alpha_dropout: SELU and alpha dropout in one pass. Compares bits with the separate
operations, and tests which elements are dropped, statistics, saved memory, and errors.
test_combinations.py tests what it shares with other operators."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from property_modes import saved_bytes
from support import assert_same_bits, error_of, first_line, untouched, values

fastact = torch.ops.fastact
LAMBDA_ALPHA = 1.7580993408473768599402175208123


def factors(p):
    """Returns a and b for kept elements, and the value of dropped elements: the article's formulas,
    with the kernel's order of roundings."""
    kept = 1 - p
    a = 1 / math.sqrt((LAMBDA_ALPHA * LAMBDA_ALPHA * p + 1) * kept)
    return a, a * LAMBDA_ALPHA * p, -a * LAMBDA_ALPHA * kept


def words(seed, n, first=0):
    """Returns 32 bits for each of n elements, by Philox4x32-10 in integer arithmetic."""
    result = []
    low = 0xFFFFFFFF
    for counter in range(first // 4, (first + n + 3) // 4):
        c, k = [counter & low, counter >> 32, 0, 0], [seed & low, seed >> 32]
        for _ in range(10):
            first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [second >> 32 ^ c[1] ^ k[0], second & low, first >> 32 ^ c[3] ^ k[1], first & low]
            k = [k[0] + 0x9E3779B9 & low, k[1] + 0xBB67AE85 & low]
        result += c
    return torch.tensor(result[:n])


def seed_on(device, number=7):
    return torch.tensor([number], device=device)


def test_the_generator_of_random_bits():
    """Compares with the authors' first known answer."""
    known = torch.tensor([0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8])
    assert torch.equal(words(0, 4), known)


@pytest.mark.parametrize("p", (0.03, 0.5, 0.97))
@pytest.mark.parametrize("seed", (0, 7, (1 << 62) + 12345))
@pytest.mark.parametrize("shape", ((1,), (7,), (33, 129), (2, 3, 1025)))
def test_bits(dtype, device, p, seed, shape):
    """A kept element becomes a selu(x) + b, with the roundings of ops/forms/alpha_dropout.h."""
    x, g = values(*shape, dtype=dtype, device=device), values(*shape, dtype=dtype, device=device)
    number = torch.float64 if dtype == torch.float64 else torch.float32
    dropped = (words(seed, x.numel()) < int(p * 2**32)).reshape(shape).to(device)
    a, b, value = (torch.tensor(t, dtype=number, device=device) for t in factors(p))
    key = seed_on(device, seed)
    with untouched(x, g, key):
        result = fastact._selu_alpha_dropout(x, key, p)
        gradient = fastact._selu_alpha_dropout_backward(g, x, key, p)
        mask = fastact._alpha_dropout_mask(g, x, key, p)
    assert_same_bits(result[dropped], value.to(dtype).expand_as(result[dropped]))
    exact = a.double() * fastact.selu(x.double()) + b.double()
    eps = torch.finfo(dtype).eps
    error = (result.double() - exact).abs()[~dropped]
    # The rounding of selu(x) and, where the sum cancels, that of its terms.
    assert (error <= 2 * eps * (exact.abs()[~dropped] + b.item())).all()
    if dtype.itemsize > 2:
        scaled = fastact.selu_backward(g * a, x)
        assert_same_bits(gradient, torch.where(dropped, torch.zeros_like(scaled), scaled))
    exact = a.double() * fastact.selu_backward(g.double(), x.double())
    exact = torch.where(dropped, torch.zeros_like(exact), exact)
    least = torch.finfo(dtype).smallest_normal
    torch.testing.assert_close(gradient.double(), exact, rtol=2 * eps, atol=least)
    kept = torch.where(dropped, torch.zeros_like(g), (g.to(number) * a).to(dtype))
    assert_same_bits(mask, kept)


def test_bits_do_not_depend_on_threads_or_length(dtype, device):
    n = 300_007
    x, key = values(n, dtype=dtype, device=device), seed_on(device)
    whole = fastact._selu_alpha_dropout(x, key, 0.25)
    for length in (1, 1023, 1024, 4097, 20_000):
        part = fastact._selu_alpha_dropout(x[:length].clone(), key, 0.25)
        assert_same_bits(part, whole[:length])
    # Elements far from the first one have their own bits.
    mask = fastact._alpha_dropout_mask(torch.ones_like(x), x, key, 0.25)
    far = words(7, 400, first=200_000) < 2**30
    assert torch.equal(mask[200_000:200_400].cpu() == 0, far)
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            assert_same_bits(fastact._selu_alpha_dropout(x, key, 0.25), whole)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("p", (0.05, 0.5, 0.9))
def test_statistics(device, p):
    """The share of dropped elements, mean and variance are right within five standard deviations.
    Neighbours, and separate calls, are uncorrelated."""
    n = 1 << 20
    x = torch.randn(n, device=device)
    results = [fastact.selu_alpha_dropout(x, p, True) for _ in range(2)]
    value = torch.tensor(factors(p)[2], device=device)
    dropped = [r == value for r in results]
    deviation = math.sqrt(p * (1 - p) / n)
    for r, d in zip(results, dropped):
        assert abs(d.double().mean().item() - p) < 5 * deviation
        assert abs(r.double().mean().item()) < 5 / math.sqrt(n)
        # The fourth moment of alpha dropout's results is largest for a large p.
        spread = math.sqrt((r.double() ** 4).mean().item() / n)
        assert abs(r.double().var().item() - 1) < 5 * spread
    noise = [(d.double() - p) / math.sqrt(p * (1 - p)) for d in dropped]
    pairs = [(noise[0], noise[1])] + [(noise[0][k:], noise[0][:-k]) for k in (1, 2, 3, 4, 1024)]
    for a, b in pairs:
        assert abs((a * b).mean().item()) < 5 / math.sqrt(len(a))


def test_the_seed_is_torchs(device):
    """After manual_seed(), or with the same generator state, results repeat."""
    x = torch.randn(1000, device=device)
    torch.manual_seed(3)
    first, second = (fastact.selu_alpha_dropout(x, 0.5, True) for _ in range(2))
    torch.manual_seed(3)
    assert_same_bits(fastact.selu_alpha_dropout(x, 0.5, True), first)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        fastact.selu_alpha_dropout(x, 0.5, True)
    assert_same_bits(fastact.selu_alpha_dropout(x, 0.5, True), second)
    assert not torch.equal(first, second)


def test_without_dropout(dtype, device):
    x = values(50, dtype=dtype, device=device)
    for p, train in ((0.0, True), (0.0, False), (0.5, False), (1.0, False)):
        assert_same_bits(fastact.selu_alpha_dropout(x, p, train), fastact.selu(x))
    assert torch.equal(fastact.selu_alpha_dropout(x, 1.0, True), torch.zeros_like(x))


def test_special_values(device):
    """A dropped NaN or infinity has the same value as any other dropped element."""
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0], device=device)
    x = special.repeat(200).requires_grad_()
    result = fastact.selu_alpha_dropout(x, 0.5, True)
    (gradient,) = torch.autograd.grad(result, x, torch.ones_like(x))
    a, b, value = factors(0.5)
    dropped = result == torch.tensor(value)
    assert 300 < dropped.sum() < 700
    assert (gradient[dropped] == 0).all()
    by_kind, kept = result.detach().reshape(200, 5), ~dropped.reshape(200, 5)
    assert by_kind[:, 0][kept[:, 0]].isnan().all()
    assert (by_kind[:, 1][kept[:, 1]] == math.inf).all()
    for kind, number in ((2, b - a * LAMBDA_ALPHA), (3, b), (4, b)):
        found = by_kind[:, kind][kept[:, kind]]
        torch.testing.assert_close(found, torch.full_like(found, number))


def test_nothing_is_saved_but_a_seed(device):
    x = torch.randn(1000, device=device, requires_grad=True)
    saved = saved_bytes(lambda: fastact.selu_alpha_dropout(x, 0.5, True))
    assert saved == x.untyped_storage().nbytes() + 8


def test_opcheck_and_torchscript(device):
    x = values(4, 6, dtype=torch.float64, device=device).requires_grad_()
    g, key = torch.randn_like(x), seed_on(device)
    for op, tensors in (
        (fastact._selu_alpha_dropout, (x, key)),
        (fastact._selu_alpha_dropout_backward, (g, x, key)),
        (fastact._alpha_dropout_mask, (g, x, key)),
    ):
        torch.library.opcheck(op.default, (*tensors, 0.5))
        assert op(*(t.to("meta") for t in tensors), 0.5).shape == x.shape

    @torch.jit.script
    def scripted(x, p: float, train: bool):
        return torch.ops.fastact.selu_alpha_dropout(x, p, train)

    assert_same_bits(scripted(x, 0.5, False), fastact.selu(x))
    assert scripted(x, 0.5, True).shape == x.shape


def test_errors(device):
    x, key = torch.randn(3, device=device), seed_on(device)
    for function, arguments, kind, text in (
        (
            fastact.selu_alpha_dropout,
            (x, 1.5, True),
            ValueError,
            "p to be from 0 to 1, but got 1.5",
        ),
        (fastact.selu_alpha_dropout, (x, math.nan, True), ValueError, "to be from 0 to 1, but got"),
        (
            fastact._selu_alpha_dropout,
            (x, key, 0.0),
            ValueError,
            "expected p to be between 0 and 1",
        ),
        (fastact._selu_alpha_dropout, (x, key.int(), 0.5), RuntimeError, "seed to be one int64"),
        (fastact._selu_alpha_dropout, (x, x, 0.5), RuntimeError, "expected seed to be one int64"),
        (
            fastact._selu_alpha_dropout,
            (x.int(), key, 0.5),
            NotImplementedError,
            "self to be float32",
        ),
        (fastact._alpha_dropout_mask, (x[:2], x, key, 0.5), RuntimeError, "to have self's shape"),
        (fastact.selu_alpha_dropout, (x.int(), 0.5, True), NotImplementedError, "to be float32"),
    ):
        error = error_of(function, *arguments)
        assert type(error) is kind and text in first_line(error), error
        assert first_line(error).startswith("fastact::"), error
    error = error_of(fastact._selu_alpha_dropout, x, key.to("meta"), 0.5)
    assert "expected seed to be on" in first_line(error)


def test_one_pass():
    """In training, a call draws the seed and runs one kernel."""
    calls = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            calls.append(function._schema.name)
            return function(*arguments, **(keywords or {}))

    with Record():
        fastact.selu_alpha_dropout(torch.ones(8), 0.5, True)
    assert [c for c in calls if c.startswith("fastact")] == ["fastact::_selu_alpha_dropout"]
    assert [c for c in calls if not c.startswith("fastact")][1:] == ["aten::randint"]


# ---- a GPU


def test_a_gpu_gives_the_cpus_bits(cuda, dtype):
    for n in (1, 5, 4096, 300_007):
        x, g = values(n, dtype=dtype), values(n, dtype=dtype)
        key = seed_on("cpu", (1 << 61) + 99)
        for op, tensors in (
            (fastact._selu_alpha_dropout, (x, key)),
            (fastact._selu_alpha_dropout_backward, (g, x, key)),
            (fastact._alpha_dropout_mask, (g, x, key)),
        ):
            there = op(*(t.to(cuda) for t in tensors), 0.3)
            assert_same_bits(there.cpu(), op(*tensors, 0.3))
        shifted = torch.cat((x, x))[1 : n + 1]  # unaligned
        there = fastact._selu_alpha_dropout(
            torch.cat((x, x)).to(cuda)[1 : n + 1], key.to(cuda), 0.3
        )
        assert_same_bits(there.cpu(), fastact._selu_alpha_dropout(shifted, key, 0.3))


def test_a_cuda_graph_draws_a_new_seed(cuda):
    x = torch.randn(10_000, device=cuda)
    fastact.selu_alpha_dropout(x, 0.5, True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = fastact.selu_alpha_dropout(x, 0.5, True)
    value = torch.tensor(factors(0.5)[2], device=cuda)
    masks = []
    for _ in range(2):
        graph.replay()
        masks.append((result == value).cpu())
    assert not torch.equal(*masks)
    assert all(4500 < m.sum() < 5500 for m in masks)

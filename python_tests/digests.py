"""Digests of every operator's bits, for comparing processes and devices.

As a script, it first checks that lengths, offsets, strides and thread counts change no bit, for one
activation of each kind. Then it prints the digests of this process; with --short only some of them.
"""

import hashlib
import json
import sys

import torch

from drawn_parameters import FAMILIES, settings
from op_table import ACTIVATIONS, OPERATORS, REPRESENTATIVES, SUFFIXES, TOP_ORDER
from oracle import bits, from_bits
from selection import in_latin_square
from support import DTYPES, dtype_name, library_path

LENGTHS = 4200  # past every vector width, unrolling and tile
MANY = (1 << 20) + 13  # enough for several threads


def raw_values(dtype, count, seed):
    """Returns all bit patterns of a 16-bit type. For other types: random bits, ordinary and special
    values."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.itemsize == 2:
        return torch.randperm(1 << 16, generator=generator).to(torch.int16).view(dtype)[:count]
    integer = torch.int32 if dtype.itemsize == 4 else torch.int64
    low, high = torch.iinfo(integer).min, torch.iinfo(integer).max
    random = torch.randint(low, high, (count // 2,), dtype=integer, generator=generator).view(dtype)
    # The fractions come from integers, because a normal distribution uses the C library's
    # logarithm, whose last bits depend on the processor.
    fractions = torch.randint(-(1 << 52), 1 << 52, (count - count // 2,), generator=generator)
    ordinary = (fractions.double() * 2.0**-48).to(dtype)
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    everything = torch.cat([random, ordinary, special, from_bits([1, 2, 3], dtype)])
    return everything[torch.randperm(len(everything), generator=generator)][:count]


def cases(act):
    """Returns name, number of operands (gradients, then the input) and function of every form."""
    yield "value", 1, lambda x: act.op(x)
    yield "out", 1, lambda x: act.out(x, torch.empty_like(x))
    yield "in_place", 1, lambda x: act.op_(x.clone())
    for order in range(1, TOP_ORDER + 1):
        for options in act.derivative_options:
            name = f"derivative_{order}" + "_from_result" * bool(options)
            yield name, order + 1, lambda *t, options=options: act.ladder(*t, **options)


def operands(dtype, count, number, device):
    return [raw_values(dtype, count, seed=i).to(device) for i in range(number)]


def digest(t):
    return hashlib.sha256(bits(t).cpu().numpy().tobytes()).hexdigest()


def same(a, b):
    return torch.equal(bits(a), bits(b))


def digests(device="cpu", short=False):
    """Returns digests by activation, dtype and form: of all inputs for 16-bit types, and of a
    sample for the others. `short` includes only values and first gradients."""
    result = {}
    for act in OPERATORS if short else ACTIVATIONS:
        for dtype in DTYPES:
            count = 1 << 16 if dtype.itemsize == 2 else 1 << 13
            for name, number, function in cases(act):
                if short and name not in ("value", "derivative_1"):
                    continue
                key = f"{act.id} {dtype_name(dtype)} {name}"
                result[key] = digest(function(*operands(dtype, count, number, device)))
    for dtype in () if short else DTYPES:
        for setting in (setting for name in FAMILIES for setting in settings(name)):
            for order in range(TOP_ORDER + 1):
                operator = getattr(torch.ops.fastact, setting.name + SUFFIXES[order])
                tensors = operands(dtype, 1 << 13, order + 1, device)
                key = f"{setting} {dtype_name(dtype)} {order}"
                result[key] = digest(operator(*tensors, *setting.values))
    return result


def check_lengths(act, dtype, function, number, device, lengths):
    """Asserts that any length at any offset, dense and strided, gives the bits of the whole."""
    tensors = operands(dtype, 3 * LENGTHS + 200, number, device)
    whole = function(*tensors)
    for n in lengths:
        start = n % 67  # covers every offset within a cache line and a packet
        part = slice(start, start + n)
        assert same(function(*(t[part] for t in tensors)), whole[part]), ("dense", n, start)
        if n % 8 == 0:
            step = 2 + n % 2
            part = slice(start, start + step * n, step)
            assert same(function(*(t[part] for t in tensors)), whole[part]), ("strided", n, start)
    # Every operand has an offset of its own.
    room = [torch.empty(LENGTHS, dtype=dtype, device=device) for _ in tensors]
    for n in (1, 7, 33, 130, 1025):
        expected = function(*(t[:n] for t in tensors))
        for start in range(64):
            offsets = [start * (i + 1) % 64 for i in range(number)]
            shifted = [r[at : at + n] for r, at in zip(room, offsets)]
            for to, t in zip(shifted, tensors):
                to.copy_(t[:n])
            assert same(function(*shifted), expected), ("offsets", n, start)


def check_threads(act, dtype, function, number):
    tensors = [t.repeat(-(-MANY // len(t)))[:MANY] for t in operands(dtype, 1 << 16, number, "cpu")]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = function(*tensors)
    for threads in (2, 3, 7):
        torch.set_num_threads(threads)
        assert same(function(*tensors), expected), ("threads", threads)
        strided = function(*(t[::3] for t in tensors))
        assert same(strided, expected[::3]), ("strided threads", threads)
    torch.set_num_threads(before)


def check_everything(device="cpu", lengths=range(LENGTHS + 1)):
    """Checks a quarter of all combinations of activation, dtype and form: every pair of them."""
    for i, act in enumerate(REPRESENTATIVES):
        for j, dtype in enumerate(DTYPES):
            for k, (name, number, function) in enumerate(cases(act)):
                if not in_latin_square(4, i, j, k):
                    continue
                try:
                    check_lengths(act, dtype, function, number, device, lengths)
                    if device == "cpu":
                        check_threads(act, dtype, function, number)
                except AssertionError as error:
                    raise AssertionError(f"{act.id} {dtype} {name}: {error}") from error


if __name__ == "__main__":
    torch.ops.load_library(str(library_path()))
    short = sys.argv[1:] == ["--short"]
    if not short:
        check_everything(lengths=range(0, LENGTHS + 1, 23))
    report = {"build_info": torch.ops.fastact.build_info(), "digests": digests(short=short)}
    print(json.dumps(report))

"""Calls that run out of memory, and leaks: no call keeps memory."""

import ctypes
import gc
import itertools
from functools import partial
from pathlib import Path

import pytest
import torch

from calls import FORMS
from op_table import REPRESENTATIVES
from support import NIGHTLY, assert_same_bits, error_of, first_line, untouched, values

# More elements than any machine can store. The input is one expanded element.
IMPOSSIBLE = 1 << 48


def assert_still_works(act, device):
    x = values(1000, device=device)
    leaf = x.clone().requires_grad_()
    assert_same_bits(act.out(x, torch.empty_like(x)), act.op(x))
    (gradient,) = torch.autograd.grad(act.op(leaf).sum(), leaf)
    operand = act.op(x) if act.takes_output else x
    assert_same_bits(gradient, act.ladder(torch.ones_like(x), operand))


def test_impossible_allocation(act, device):
    """The error is that of PyTorch's operators. Afterwards calls work."""
    x = torch.ones((), device=device)
    vast = x.expand(IMPOSSIBLE)
    leaf = torch.ones((), device=device).requires_grad_()

    def empty():  # new each time, because PyTorch leaves it with a shape but without memory
        return torch.empty(0, device=device)

    calls = (
        (lambda: act.op(vast), lambda: torch.sigmoid(vast)),
        (lambda: act.op(leaf.expand(IMPOSSIBLE)), lambda: torch.sigmoid(vast)),
        (lambda: act.out(vast, empty()), lambda: torch.sigmoid(vast, out=empty())),
        (lambda: act.ladder(x, vast), lambda: torch.mul(x, vast)),
        (lambda: act.ladder(vast, x, x), lambda: torch.addcmul(vast, x, x)),
        (lambda: act.ladder(vast, x, x, x), lambda: torch.addcmul(vast, x, x)),
        (lambda: act.grad_input(x, vast, empty()), lambda: torch.mul(x, vast, out=empty())),
    )
    for ours, theirs in calls:
        expected = error_of(theirs)
        assert isinstance(expected, torch.OutOfMemoryError if device == "cuda" else RuntimeError)
        with untouched(x, vast, leaf):
            error = error_of(ours)
        assert type(error) is type(expected)
        assert first_line(error)[:40] == first_line(expected)[:40]
    assert_still_works(act, device)


def test_gpu_memory_that_runs_out(act, cuda):
    """On a full GPU forward and backward raise an error, and work when memory is free again."""
    x = values(1 << 26, device=cuda)
    leaf = x.clone().requires_grad_()
    grad, empty = torch.ones_like(x), torch.empty(0, device=cuda)
    y = act.op(leaf)
    torch.cuda.empty_cache()
    used = torch.cuda.memory_reserved() / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(used)
    try:
        calls = (
            lambda: act.op(x),
            lambda: act.out(x, empty),
            lambda: act.ladder(grad, x),
            lambda: torch.autograd.grad(y, leaf, grad, retain_graph=True),
        )
        for call in calls:
            assert isinstance(error_of(call), torch.OutOfMemoryError)
        act.op_(x)  # needs none
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    (gradient,) = torch.autograd.grad(y, leaf, grad)
    assert_same_bits(gradient, act.gradient(grad, leaf.detach()))
    assert_same_bits(x, y.detach())


# ---- Leaks.

# The number of calls of each form of each activation.
CALLS = 1_000_000 if NIGHTLY else 20_000
REPEATS = CALLS // (len(REPRESENTATIVES) * len(FORMS))
# Bytes per call. The smallest heap block has 32 bytes, a leaked tensor hundreds.
TOLERATED = 16
HEAP_USE = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class HeapUse(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in HEAP_USE.split()]


def heap_bytes():
    """Returns the bytes in use in the C library's heap; resident memory only counts pages."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("no mallinfo2: the C library is not glibc 2.33 or newer")
    gc.collect()
    library.mallinfo2.restype = HeapUse
    use = library.mallinfo2()
    return use.uordblks + use.hblkhd


def resident_bytes():
    """Returns resident anonymous bytes, without pages of libraries. Trims the heap first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    (line,) = (s for s in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in s)
    return int(line.split()[1]) << 10


def growth(measure, call):
    """Returns by how many bytes some thousand calls increase the memory in use, after a warm-up."""
    for _ in range(100):
        call()
    before = measure()
    for _ in range(REPEATS):
        call()
    return measure() - before


def least_growth(measure, call):
    """Returns the least of several growths, for memory that other processes or threads use as well,
    such as those of CUDA."""
    return min(growth(measure, call) for _ in range(5))


def test_the_heap_is_measured(few_objects):
    """Tests the measurement: it finds a leaked tensor with one element."""
    kept = []
    assert growth(heap_bytes, lambda: kept.append(torch.empty(1))) > 64 * REPEATS
    assert growth(heap_bytes, lambda: torch.empty(1)) < TOLERATED * REPEATS


def test_no_call_keeps_memory(act, few_objects):
    x, grad = values(100), values(100)
    for form in FORMS:
        assert growth(heap_bytes, partial(form, act, x, grad)) < TOLERATED * REPEATS, form


def test_process_does_not_grow(few_objects):
    """Calls all forms, and measures resident memory."""
    x, grad = values(100), values(100)

    def every_call():
        for act, form in itertools.product(REPRESENTATIVES, FORMS):
            form(act, x, grad)

    calls = REPEATS * len(REPRESENTATIVES) * len(FORMS)
    assert growth(resident_bytes, every_call) < 2 * TOLERATED * calls  # pages are coarse


def test_no_call_keeps_gpu_memory(act, cuda, few_objects):
    x, grad = values(100, device=cuda), values(100, device=cuda)

    def gpu_bytes():
        torch.cuda.synchronize()
        gc.collect()
        return torch.cuda.memory_allocated()

    def driver_bytes():
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    for form in FORMS:
        call = partial(form, act, x, grad)
        assert growth(gpu_bytes, call) == 0, form
        assert least_growth(driver_bytes, call) < 16 << 20, form
        assert least_growth(heap_bytes, call) < TOLERATED * REPEATS, form

"""Threads, forked processes, loading while computing, and many CUDA streams."""

import itertools
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch

from calls import FORMS
from op_table import REPRESENTATIVES
from support import DTYPES, NIGHTLY, assert_same_bits, run_python, values

THREADS = 16
SECONDS = 60 if NIGHTLY else 3
# Less than a vector, one thread's share, and work shared by PyTorch's threads.
COUNTS = (7, 1000, 40_001)


def mixed_calls(device, counts=COUNTS):
    """Returns calls of every form of every activation in every type, which can be repeated."""
    calls = []
    for dtype, count in itertools.product(DTYPES, counts):
        x, grad = (values(count, dtype=dtype, device=device) for _ in range(2))
        calls += [partial(form, act, x, grad) for act in REPRESENTATIVES for form in FORMS]
    return calls


def test_many_threads_give_the_same_bits(device):
    calls = mixed_calls(device)
    expected = [call() for call in calls]
    start, end = threading.Barrier(THREADS), time.monotonic() + SECONDS

    def work(number):
        order = random.Random(number)
        start.wait()
        made = 0
        while time.monotonic() < end:
            i = order.randrange(len(calls))
            assert_same_bits(calls[i](), expected[i])
            made += 1
        return made

    with ThreadPoolExecutor(THREADS) as pool:
        assert min(pool.map(work, range(THREADS))) > 0


def test_eight_streams_at_once(cuda):
    """Eight streams work at the same time, and each call reads its own stream's input."""
    calls = mixed_calls(cuda, counts=(1_000_003,))
    expected = [call() for call in calls]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(8)]
    results = []
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
    for i, call in enumerate(calls):
        with torch.cuda.stream(streams[i % len(streams)]):
            results.append(call())
    torch.cuda.synchronize()
    for result, wanted in zip(results, expected):
        assert_same_bits(result, wanted)


def run_script(script):
    """Returns the output of a script, which can import the tests' modules."""
    return run_python("-c", script, cwd=Path(__file__).parent, timeout=120).strip()


@pytest.mark.slow
@pytest.mark.newest
def test_first_calls_of_many_threads():
    """The first call looks up operators and detects the processor. Here all calls are first
    ones."""
    script = f"""
import threading
from concurrent.futures import ThreadPoolExecutor
import conftest, torch
from support import assert_same_bits
from test_concurrency import mixed_calls

torch.manual_seed(0)
calls = mixed_calls("cpu", counts=(33,))
start = threading.Barrier({THREADS}, timeout=30)

def together(call):
    start.wait()
    return call()

with ThreadPoolExecutor({THREADS}) as pool:
    results = list(pool.map(lambda _: [together(call) for call in calls], range({THREADS})))
for result in results:
    for tensor, call in zip(result, calls):
        assert_same_bits(tensor, call())
print("same")
"""
    assert run_script(script) == "same"


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("loaders", (1, 2))
def test_loading_while_other_threads_compute(loaders):
    script = f"""
import threading
from concurrent.futures import ThreadPoolExecutor
import torch
from op_table import REPRESENTATIVES
from support import library_path

def load():
    act = REPRESENTATIVES[0]
    start.wait()
    torch.ops.load_library(str(library_path()))
    x = torch.linspace(-2, 2, 100, requires_grad=True)
    (gradient,) = torch.autograd.grad(act.op(x).sum(), x)
    return gradient.equal(act.ladder(torch.ones_like(x), x.detach()))

def compute():
    x = torch.linspace(-2, 2, 5000, requires_grad=True)
    expected = torch.autograd.grad(torch.selu(x).sum(), x)[0]
    start.wait()
    same = True
    while not loaded.is_set():
        same &= torch.autograd.grad(torch.selu(x).sum(), x)[0].equal(expected)
    return same

start, loaded = threading.Barrier({loaders} + 4), threading.Event()
with ThreadPoolExecutor({loaders} + 4) as pool:
    computing = [pool.submit(compute) for _ in range(4)]
    loading = [pool.submit(load) for _ in range({loaders})]
    try:
        print(all(task.result() for task in loading))
    finally:
        loaded.set()
    print(all(task.result() for task in computing))
"""
    assert run_script(script).split() == ["True", "True"]


# Runs `first` in a process and `then` in its fork, and prints for each operator how the child
# ended. An alarm ends a child that waits for threads which did not survive the fork.
FORK = """
import os, signal, sys
import conftest, torch
from op_table import REPRESENTATIVES
from support import assert_same_bits

torch.set_num_threads({threads})

def forward(operator):
    return operator(x.detach())

def backward(operator):
    return torch.autograd.grad(operator(x), x, torch.ones_like(x))[0]

x = torch.linspace(-3, 3, {count}, requires_grad=True)
for act in REPRESENTATIVES[:{activations}]:
    for operator in (act.op, act.aten)[:{libraries}]:
        {first}(operator)
        wanted = {wanted}
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            signal.alarm({patience})
            try:
                result = {then}(operator)
                if operator == act.op:
                    assert_same_bits(result, wanted)
                os._exit(0)
            except RuntimeError as error:
                os._exit(2 if "fork-based multiprocessing" in str(error) else 1)
            finally:
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
FORWARD = "act.op(x.detach())"
BACKWARD = "act.ladder(torch.ones_like(x), act.op(x.detach()) if act.takes_output else x.detach())"


def ends_of_forks(first, then, wanted, **options):
    """Returns how the children ended that called FastAct's and, with libraries=2, PyTorch's
    operators."""
    settings = {"threads": 1, "count": 40_001, "activations": len(REPRESENTATIVES), "patience": 30}
    settings |= {"libraries": 1} | options
    ends = run_script(FORK.format(first=first, then=then, wanted=wanted, **settings)).split()
    libraries = settings["libraries"]
    assert len(ends) == libraries * settings["activations"]
    return ends if libraries == 1 else (ends[::2], ends[1::2])


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("then", ("forward", "backward"))
def test_fork_after_use(then):
    wanted = FORWARD if then == "forward" else BACKWARD
    assert set(ends_of_forks("forward", then, wanted)) == {"0"}


@pytest.mark.slow
@pytest.mark.newest
def test_fork_after_backward():
    """PyTorch then forbids a backward pass in the child. Forward works."""
    ours, theirs = ends_of_forks("backward", "backward", BACKWARD, libraries=2)
    assert ours == theirs
    assert set(ends_of_forks("backward", "forward", FORWARD)) == {"0"}


@pytest.mark.slow
@pytest.mark.newest
def test_fork_after_use_of_several_threads():
    """FastAct's operators work in the child as PyTorch's do: both use one thread there."""
    shared = {"threads": 2, "count": 200_000, "activations": 1, "patience": 3, "libraries": 2}
    ours, theirs = ends_of_forks("forward", "forward", FORWARD, **shared)
    assert ours in (theirs, ["0"])
    ours = ends_of_forks("forward", "forward", FORWARD, threads=2, count=1000)
    assert set(ours) == {"0"}

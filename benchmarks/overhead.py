"""Measures the overhead of a call: FastAct's and PyTorch's operators on 8 numbers.

The operators are called through each door: Python (`torch.ops.fastact.selu` and
`torch.ops.aten.selu`), TorchScript (a scripted chain of calls in the profiling interpreter, without
the fuser) and C++ (`fastact::selu` and `at::selu`, in a separate program). `torch.selu` is also
timed: PyTorch generates this binding only for its own operators, and it is faster than any call
through torch.ops.

Every figure is the minimum of many rounds, in which FastAct and PyTorch take turns.
"""

import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from op_table import Activation
from support import library_path

ELEMENTS = 8
CALLS = 100  # per round
CHAIN = 16  # calls per scripted function
FEWEST_ROUNDS = 3  # TorchScript profiles its first runs
# The largest ratio FastAct / PyTorch through the same door.
TARGET = 1.03
PROGRAM = "fastact_call_overhead"

Block = Callable[[], Callable[[], object]]


def least(blocks: dict[str, Block], clock: Callable[[], float], seconds: float, calls: int) -> dict:
    """Returns the nanoseconds per call: the minimum of the rounds that fit into the time. Each
    block is a new function, whose calls are timed together."""
    best = dict.fromkeys(blocks, float("inf"))
    end = time.perf_counter() + seconds
    for done in itertools.count():
        if done >= FEWEST_ROUNDS and time.perf_counter() >= end:
            break
        for name, block in blocks.items():
            function = block()
            repeats = itertools.repeat(None, calls)
            start = clock()
            for _ in repeats:
                function()
            best[name] = min(best[name], (clock() - start) / calls)
    return {name: 1e9 * value for name, value in best.items()}


def clock_of(device: str) -> Callable[[], float]:
    """Returns a clock of the caller's time. The clock does not wait for work queued on a GPU, but a
    round begins with an empty queue."""
    if device == "cpu":
        return time.perf_counter
    ticks = itertools.count()

    def clock() -> float:
        if next(ticks) % 2 == 0:
            torch.cuda.synchronize()
        return time.perf_counter()

    return clock


def cases(device: str) -> dict[str, Callable[[Callable, bool], Block]]:
    """Returns functions by name that make a block of calls from an operator."""

    def x(requires_grad: bool = False) -> torch.Tensor:
        return torch.randn(ELEMENTS, device=device, requires_grad=requires_grad)

    grad = torch.ones(ELEMENTS, device=device)

    def round_trip(function, leaf):
        return torch.autograd.grad(function(leaf), leaf, grad)

    return {
        "forward": lambda f: lambda: partial(f, x()),
        "forward, with grad": lambda f: lambda: partial(f, x(requires_grad=True)),
        "forward + backward": lambda f: lambda: partial(round_trip, f, x(requires_grad=True)),
        "in-place": lambda f: lambda: partial(f, x()),
        "in-place, with grad": lambda f: lambda: partial(f, x(requires_grad=True) * 1),
    }


def python_door(act: Activation, case: str) -> dict[str, Callable]:
    """Returns the operators of torch.ops, and PyTorch's own binding."""
    name = act.name + ("_" if case.startswith("in-place") else "")
    found = {
        "ours": getattr(torch.ops.fastact, name),
        "peer": getattr(torch.ops.aten, name, None),
        "own": getattr(torch, name, None),
    }
    return {
        who: partial(f, **act.parameters) if act.parameters else f
        for who, f in found.items()
        if f is not None
    }


def script_door(act: Activation, case: str) -> dict[str, Callable]:
    """Returns scripted functions of CHAIN calls, each on the previous call's result."""
    name = act.name + ("_" if case.startswith("in-place") else "")
    parameters = "".join(f", {key}={value!r}" for key, value in act.parameters.items())
    found = {}
    for who, namespace in (("ours", "fastact"), ("peer", "aten")):
        if hasattr(getattr(torch.ops, namespace), name):
            chain = f"    x = torch.ops.{namespace}.{name}(x{parameters})\n" * CHAIN
            unit = torch.jit.CompilationUnit(f"def f(x):\n{chain}    return x\n")
            found[who] = unit.f
    return found


DOORS = {"Python": (python_door, CALLS, 1), "TorchScript": (script_door, CALLS // 10, CHAIN)}


@contextmanager
def without_fuser() -> Iterator[None]:
    """Disables TorchScript's fuser, because the interpreter is measured. With the fuser, which is
    only used on GPUs by default, two runs hung in a chain of PyTorch's relu."""
    before = torch._C._jit_texpr_fuser_enabled()
    torch._C._jit_set_texpr_fuser_enabled(False)
    try:
        yield
    finally:
        torch._C._jit_set_texpr_fuser_enabled(before)


def measure(acts: list[Activation], device: str, seconds: float) -> list[dict]:
    """Returns a row for each activation, door and case, measured for `seconds` each."""
    rows = []
    clock = clock_of(device)
    with without_fuser():
        for act in acts:
            for door, (functions, calls, chain) in DOORS.items():
                for case, block in cases(device).items():
                    contestants = functions(act, case)
                    blocks = {who: block(f) for who, f in contestants.items()}
                    with torch.set_grad_enabled("grad" in case or "backward" in case):
                        least(blocks, clock, 0, calls)  # warms up
                        times = least(blocks, clock, seconds, calls)
                    rows.append(
                        row(act.id, door, case, device, {k: v / chain for k, v in times.items()})
                    )
                    print(line(rows[-1]), flush=True)
    for found in program(device, seconds, {act.id for act in acts}):
        rows.append(row(found["op"], "C++", found["case"], device, found["times"]))
        print(line(rows[-1]), flush=True)
    return rows


def row(op: str, door: str, case: str, device: str, times: dict) -> dict:
    return {"op": op, "door": door, "case": case, "device": device, "ns": times}


def program_path() -> Path:
    """Returns the program in the build's bin/, next to lib/."""
    return library_path().parent.parent / "bin" / PROGRAM


def program(device: str, seconds: float, ops: set[str]) -> list[dict]:
    path = program_path()
    if not path.is_file():
        print(f"no C++ door: {path} is not built, see FASTACT_BUILD_BENCHMARKS")
        return []
    done = subprocess.run(
        [path, device, str(seconds), str(CALLS)], capture_output=True, text=True, timeout=3600
    )
    if done.returncode != 0:
        print(f"no C++ door: {PROGRAM}: {done.stderr.strip().splitlines()[-1:]}")
        return []
    return [found for found in json.loads(done.stdout) if found["op"] in ops]


def ratio(found: dict) -> float | None:
    """Returns FastAct / PyTorch through the same door; the target is at most TARGET."""
    return found["ns"]["ours"] / found["ns"]["peer"] if "peer" in found["ns"] else None


def line(found: dict) -> str:
    times, value = found["ns"], ratio(found)
    numbers = "".join(f"{times[who]:10.0f}" if who in times else f"{'-':>10}" for who in ORDER)
    above = "  ABOVE" if value and value > TARGET else ""
    text = "-" if value is None else f"{value:.3f}"
    return f"{found['op']:16}{found['door']:13}{found['case']:22}{numbers}{text:>9}{above}"


ORDER = ("ours", "peer", "own")
COLUMNS = f"{'':51}{'ours':>10}{'PyTorch':>10}{'torch.*':>10}{'ratio':>9}   (ns a call)"

"""The contestants of a cell: FastAct, PyTorch, torch.compile, the plain kernel and the copy.

The copy moves the bytes that the cell's form moves, contiguously: one stream in and one out, or two
in and one out for backward. It allocates its output if the form does. On a CPU it is the fastest of
several ways to copy. Tensor.copy_ into ordinary pages is not the fastest: it reads each cache line
that it overwrites, and causes a page fault every 4 KiB.
"""

import ctypes
import mmap
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import torch
from _timing import Contestant

from cells import Cell
from op_table import Activation
from support import REPOSITORY

SOURCES = {
    "copy": REPOSITORY / "benchmarks" / "copy.cu",
    "plain": REPOSITORY / "examples" / "kernelbench" / "plain.cu",
}
NAMES = {
    "fastact": "FastAct",
    "pytorch": "PyTorch",
    "compile": "torch.compile",
    "plain": "plain kernel",
    "copy": "copy",
}
# The description of the copy, for the report.
COPY = {"cpu": "the fastest of several ways to copy", "cuda": "benchmarks/copy.cu"}
# Rounds that choose the fastest way to copy.
CALIBRATION_ROUNDS = 3


class Absent(Exception):
    """The reason why a contestant cannot take part, in one line."""


@cache
def kernels(name: str) -> ctypes.CDLL:
    """Compiles the CUDA file of this name for this GPU, and returns the library."""
    beside_torch = sorted(Path(torch.__file__).parents[1].glob("nvidia/cu*/bin/nvcc"))
    places = [os.environ.get("CUDACXX"), *beside_torch, shutil.which("nvcc")]
    nvcc = next((place for place in places if place), None)
    if nvcc is None:
        raise Absent("no nvcc was found")
    library = Path(tempfile.mkdtemp(prefix="fastact-bench-")) / f"lib{name}.so"
    major, minor = torch.cuda.get_device_capability()
    command = [nvcc, "-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC"]
    command += [f"--gpu-architecture=sm_{major}{minor}", SOURCES[name], "-o", library]
    built = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if built.returncode != 0:
        raise Absent(f"nvcc cannot build {SOURCES[name].name}: {built.stderr.strip()[:200]}")
    return ctypes.CDLL(str(library))


def call_kernel(library: ctypes.CDLL, function: str, tensors: tuple, count: int) -> None:
    arguments = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    # The function returns an error code or text; 0 and null mean success.
    if getattr(library, function)(*arguments, ctypes.c_int64(count), stream):
        raise RuntimeError(f"{function} failed")


def backward_of_aten(act: Activation, x: torch.Tensor) -> Callable | None:
    """Returns ATen's backward operator, or None if only autograd computes the backward pass."""
    if act.name == "log_sigmoid":  # the operator needs a buffer that the forward pass writes
        _, buffer = torch.ops.aten.log_sigmoid_forward(x)
        return lambda grad, x: torch.ops.aten.log_sigmoid_backward(grad, x, buffer)
    return None if act.is_backward_by_autograd else act.aten_backward


class Operands:
    """The tensors of a cell and ATen's backward operator, shared by its contestants."""

    def __init__(self, cell: Cell) -> None:
        self.x = cell.tensor()
        self.z = cell.tensor() if cell.form in ("in-place", "out") else None  # is written
        self.grad = cell.tensor() if cell.form in ("backward", "training") else None
        self.leaf = None if self.grad is None else self.x.detach().requires_grad_()
        is_backward = cell.form == "backward"
        self.aten_backward = backward_of_aten(cell.act, self.x) if is_backward else None

    def restore(self) -> None:
        """Restores the numbers that in-place forms overwrite."""
        self.z.copy_(self.x)

    def backward(self, forward):
        """Runs the forward pass once, and returns a call of its backward pass."""
        with torch.enable_grad():
            y = forward(self.leaf)
        return lambda: torch.autograd.grad(y, self.leaf, self.grad, retain_graph=True)[0]

    def training(self, forward):
        def call():
            return torch.autograd.grad(forward(self.leaf), self.leaf, self.grad)

        return call


def of_operators(cell: Cell, t: Operands, functional, in_place, out, backward) -> Contestant:
    """Returns a library's contestant, composed of its operators. Where ATen has no backward
    operator, both libraries are timed through autograd, so that both times include the autograd
    engine."""
    calls = {
        "forward": lambda: functional(t.x),
        "in-place": lambda: in_place(t.z),
        "out": lambda: out(t.x, t.z),
        "backward": lambda: backward(t.grad, t.x),
        "training": t.training(functional),
    }
    by_autograd = cell.form == "backward" and t.aten_backward is None
    call = t.backward(functional) if by_autograd else calls[cell.form]
    return Contestant(call, t.restore if cell.form == "in-place" else None)


def through_ops(namespace, name: str, act: Activation, otherwise=None):
    """Returns the operator of torch.ops, with the activation's parameters and no Python wrapper."""
    packet = getattr(namespace, name, None)
    return partial(packet, **act.parameters) if packet else otherwise


def fastact(cell: Cell, t: Operands) -> Contestant:
    act, ops = cell.act, torch.ops.fastact
    functional, in_place, backward = (
        through_ops(ops, act.name + suffix, act) for suffix in ("", "_", "_backward")
    )
    out = partial(getattr(ops, act.name).out, **act.parameters)
    return of_operators(cell, t, functional, in_place, lambda x, z: out(x, out=z), backward)


def pytorch(cell: Cell, t: Operands) -> Contestant:
    """Returns PyTorch's contestant, through torch.ops if PyTorch has an operator of this name."""
    act, ops = cell.act, torch.ops.aten
    functional = through_ops(ops, act.name, act, act.aten)
    in_place = through_ops(ops, act.name + "_", act, act.aten_)
    return of_operators(cell, t, functional, in_place, act.aten_out, t.aten_backward)


def compiled(cell: Cell, t: Operands) -> Contestant:
    """Returns PyTorch's operators compiled for this cell only, so that neither the recompilation
    limit nor dynamic shapes interfere."""
    torch._dynamo.reset()
    act = cell.act
    functions = (act.aten, act.aten_, act.aten_out, t.aten_backward)
    # torch.compile does not compile built-in functions directly.
    wrapped = [torch.compile(_function(f), dynamic=False) for f in functions]
    try:
        contestant = of_operators(cell, t, *wrapped)
        contestant.call()
    except Exception as error:
        line = next((text for text in str(error).splitlines() if text.strip()), "")
        raise Absent(f"{type(error).__name__}: {line.strip()[:200]}") from error
    return contestant


def _function(operator):
    return lambda *tensors: operator(*tensors)


def plain(cell: Cell, t: Operands) -> Contestant | None:
    """Returns the plain kernel, or None if there is none."""
    if cell.device != "cuda" or cell.dtype != "float32" or cell.layout != "contiguous":
        return None
    library = kernels("plain")
    forward = f"plain_{cell.op}"
    if not hasattr(library, forward):
        return None

    def run(function, *tensors):
        call_kernel(library, function, tensors, cell.elements)
        return tensors[-1]

    def training():
        run(forward, t.x, torch.empty_like(t.x))
        run(f"{forward}_backward", t.grad, t.x, torch.empty_like(t.x))

    calls = {
        "forward": lambda: run(forward, t.x, torch.empty_like(t.x)),
        "in-place": lambda: run(forward, t.z, t.z),
        "out": lambda: run(forward, t.x, t.z),
        "backward": lambda: run(f"{forward}_backward", t.grad, t.x, torch.empty_like(t.x)),
        "training": training,
    }
    return Contestant(calls[cell.form], t.restore if cell.form == "in-place" else None)


def copy(cell: Cell, t: Operands) -> Contestant:
    size = -(-cell.bytes_of_tensor // 16) * 16
    a, b, out = (torch.zeros(size // 8, dtype=torch.int64, device=cell.device) for _ in range(3))
    if cell.device == "cuda":
        library = kernels("copy")

        def copied(source, target):
            call_kernel(library, "copy_bytes", (source, target), size)

        def merged(target):
            call_kernel(library, "merge_bytes", (a, b, target), size)

        calls = {
            "forward": [lambda: copied(a, torch.empty_like(a))],
            "in-place": [lambda: copied(out, out)],
            "out": [lambda: copied(a, out)],
            "backward": [lambda: merged(torch.empty_like(a))],
        }
    else:
        calls = copies_of_a_cpu(a, b, out, cell.threads)
    if cell.form == "training":
        forward, backward = (fastest(calls[form]) for form in ("forward", "backward"))
        return Contestant(lambda: (forward(), backward()))
    return Contestant(fastest(calls[cell.form]))


def copies_of_a_cpu(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, threads: int) -> dict:
    """Returns ways to move the bytes of each form: into new memory, with and without huge pages; by
    the C library, which uses non-temporal stores for large blocks; and in place."""

    def moved(source, target):
        libc.memmove(target.data_ptr(), source.data_ptr(), source.numel() * source.itemsize)
        return target

    def with_huge_pages():
        target = torch.empty_like(a)
        start = -(-target.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        end = target.data_ptr() + target.numel() * target.itemsize
        libc.madvise(start, max(end - start, 0) // mmap.PAGESIZE * mmap.PAGESIZE, huge)
        return target

    libc, huge = ctypes.CDLL(None), getattr(mmap, "MADV_HUGEPAGE", None)
    libc.memmove.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    news = [lambda: torch.empty_like(a)] + ([with_huge_pages] if huge is not None else [])
    copied = [lambda source, target: target.copy_(source)] + ([moved] if threads <= 1 else [])
    return {
        "forward": [lambda c=c, new=new: c(a, new()) for c in copied for new in news],
        "in-place": [out.bitwise_not_],
        "out": [lambda c=c: c(a, out) for c in copied],
        "backward": [lambda new=new: torch.bitwise_xor(a, b, out=new()) for new in news],
    }


def fastest(calls: list[Callable]) -> Callable:
    """Returns the fastest call, according to a few samples of each."""

    def seconds(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    if len(calls) == 1:
        return calls[0]
    rounds = [[seconds(call) for call in calls] for _ in range(CALIBRATION_ROUNDS)]
    return calls[min(range(len(calls)), key=lambda i: min(times[i] for times in rounds))]


def contestants(cell: Cell) -> tuple[dict[str, Contestant], dict[str, str]]:
    """Returns the contestants of a cell, and the reasons why others are absent."""
    t = Operands(cell)
    makers = {"fastact": fastact, "pytorch": pytorch, "plain": plain, "copy": copy}
    if cell.compiled:
        makers["compile"] = compiled
    present, absent = {}, {}
    for name, maker in makers.items():
        try:
            if contestant := maker(cell, t):
                present[name] = contestant
        except Absent as reason:
            absent[name] = str(reason)
    return present, absent

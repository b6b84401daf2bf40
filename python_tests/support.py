"""Shared by the tests: the library's path, tensors of every layout, comparisons of bits."""

import atexit
import functools
import inspect
import itertools
import json
import os
import platform
import re
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from oracle import bits

REPOSITORY = Path(__file__).resolve().parent.parent
# Whether tests that repeat calls run for minutes (`make fuzz`) instead of seconds.
NIGHTLY = bool(os.environ.get("FASTACT_NIGHTLY"))
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def library_path():
    """Returns the library under test: FASTACT_LIBRARY, or that of the Makefile's build folder."""
    default = REPOSITORY / "build" / "lib" / "libfastact.so"
    return Path(os.environ.get("FASTACT_LIBRARY", default)).resolve()


def package_path():
    """Returns the Python package of the library's build."""
    return library_path().parents[1] / "python" / "fastact"


def build_info():
    """Returns the lines of the loaded library's build_info() by key."""
    lines = torch.ops.fastact.build_info().splitlines()
    return dict(line.split(": ", 1) for line in lines)


def processor():
    """Returns the name of this machine's CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((t.split(": ", 1)[1] for t in lines if t.startswith("model name")), "")


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def in_one_case(**axes):
    """Decorates a test to run for every combination of these values in one case, because pytest and
    its fixtures need more time for a case than a cheap test. A failure names its combination."""

    def decorate(test):
        @functools.wraps(test)
        def every_combination(**fixtures):
            for chosen in itertools.product(*axes.values()):
                named = dict(zip(axes, chosen))
                torch.manual_seed(0)
                try:
                    test(**fixtures, **named)
                except Exception as error:
                    raise AssertionError(f"{named}: {error}") from error

        parameters = inspect.signature(test).parameters
        every_combination.__signature__ = inspect.Signature(
            [parameter for name, parameter in parameters.items() if name not in axes]
        )
        return every_combination

    return decorate


def values(*shape, dtype=torch.float32, device="cpu"):
    """Returns random values of both signs, some of them large, the same on every device."""
    return (torch.randn(shape, dtype=torch.float64) * 3).to(dtype).to(device)


def smooth_values(act, *shape, dtype=torch.float64, device="cpu", requires_grad=True):
    """Returns random values at least 0.2 away from the kinks, for finite differences."""
    x = torch.randn(shape, dtype=torch.float64)
    for kink in act.kinks:
        x = torch.where((x - kink).abs() < 0.2, kink + 0.2 + (x - kink).abs(), x)
    return x.to(dtype).to(device).requires_grad_(requires_grad)


# Every layout of a tensor. f(*shape) makes a contiguous tensor to view.
LAYOUTS = {
    "contiguous": lambda f: f(3, 4, 5),
    "channels_last": lambda f: f(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "channels_last_3d": lambda f: f(2, 3, 2, 4, 5).to(memory_format=torch.channels_last_3d),
    "channels_last_one_channel": lambda f: f(2, 1, 4, 5).to(memory_format=torch.channels_last),
    "channels_last_one_pixel": lambda f: f(2, 3, 1, 1).to(memory_format=torch.channels_last),
    "permuted": lambda f: f(3, 4, 5).permute(2, 0, 1),
    "permuted_large": lambda f: f(17, 33, 65).permute(1, 2, 0),
    "transposed": lambda f: f(7, 5).t(),
    "every_second": lambda f: f(150)[::2],
    "every_second_column": lambda f: f(9, 66)[:, ::2],
    "every_third_row": lambda f: f(9, 33)[::3],
    "sliced_transposed": lambda f: f(40, 30)[1:, 3:-2].t(),
    "chunk_first_half": lambda f: f(6, 70).chunk(2, 1)[0],
    "chunk_second_half": lambda f: f(6, 70).chunk(2, 1)[1],
    "diagonal": lambda f: f(37, 37).diagonal(),
    "expanded_rows": lambda f: f(1, 35).expand(4, 35),
    "expanded_columns": lambda f: f(35, 1).expand(35, 4),
    "expanded_middle": lambda f: f(3, 1, 5).expand(3, 4, 5),
    "expanded_scalar": lambda f: f().expand(3, 4),
    "overlapping_windows": lambda f: f(10).as_strided((4, 4), (1, 1)),
    "zero_dim": lambda f: f(),
    "zero_dim_of_vector": lambda f: f(7)[3],
    "empty": lambda f: f(0),
    "empty_strange_strides": lambda f: f(60).as_strided((0, 3, 2), (5, 17, 3)),
    "empty_permuted": lambda f: f(2, 0, 3).permute(2, 0, 1),
    "one_element_strange_strides": lambda f: f(9).as_strided((1, 1, 1), (7, 3, 9)),
    "size_one_strange_stride": lambda f: f(60).as_strided((3, 1, 5), (5, 77, 1)),
    "offset_1": lambda f: f(1025)[1:],
    "offset_3": lambda f: f(4, 257)[:, 3:],
    "offset_odd_ends": lambda f: f(1000)[7:-5],
    "gap_in_strides": lambda f: f(400).as_strided((3, 4, 5), (100, 10, 2)),
}


def make(layout, dtype=torch.float32, device="cpu", seed=0):
    """Returns a tensor of the named layout with reproducible values."""
    torch.manual_seed(seed)
    return LAYOUTS[layout](lambda *shape: values(*shape, dtype=dtype, device=device))


def whole_storage(t):
    """Returns a copy of all bytes of a tensor's storage."""
    return torch.tensor((), dtype=torch.uint8, device=t.device).set_(t.untyped_storage()).clone()


def assert_same_bits(actual, expected):
    """Asserts equal shape, dtype and bits. The message shows the first difference."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, (
        actual.dtype, actual.shape, expected.dtype, expected.shape,
    )  # fmt: skip
    a, b = bits(actual.cpu()), bits(expected.cpu())
    if not torch.equal(a, b):
        where = (a != b).nonzero()
        i = tuple(where[0].tolist())
        raise AssertionError(
            f"{len(where)} of {a.numel()} differ, first at {i}: "
            f"{actual[i].item()!r} ({a[i].item():#x}), "
            f"expected {expected[i].item()!r} ({b[i].item():#x})"
        )


def error_of(function, *args, **kwargs):
    """Returns the exception that a call raises, or None."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        return error
    return None


def first_line(error):
    """Returns an error's message without the stack information that PyTorch appends."""
    return str(error).split("\n")[0]


@contextmanager
def untouched(*tensors):
    """Asserts that the tensors keep their bits, geometry and version in the block."""

    def state(t):
        return t.shape, t.stride(), t.storage_offset(), t._version, t.untyped_storage().nbytes()

    before = [(state(t), whole_storage(t)) for t in tensors]
    yield
    for t, (geometry, memory) in zip(tensors, before):
        assert state(t) == geometry
        assert torch.equal(whole_storage(t), memory)


# Makes glibc choose its functions for processors without FMA.
WITHOUT_FMA = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4"}


def form_of_fma(environment):
    """Returns the address of the fma() that the C library chooses."""
    script = (
        "import ctypes; f = ctypes.CDLL('libm.so.6').fma;"
        "print(ctypes.cast(f, ctypes.c_void_p).value % 4096)"
    )
    return int(run_python("-c", script, environment=environment))


class Calls(TorchDispatchMode):
    """Records the operators that are called below autograd."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.name())
        return function(*args, **(kwargs or {}))


@contextmanager
def no_vmap_fallback():
    """Makes a missing batching rule an error instead of a slow loop."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        torch._C._functorch._set_vmap_fallback_enabled(True)


# Variables that are not read before torch is imported, nor by its import.
READ_LATER = re.compile(r"FASTACT_\w+|PYTHONPATH|\w+_CACHE_DIR")


@functools.cache
def fork_server():
    """Starts fork_server.py, once."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    server = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("fork_server.py")], env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    atexit.register(server.communicate)
    return server


def run_fork(arguments, env, cwd, timeout):
    """Runs Python in a fork of a process that has imported torch. Like subprocess.run()."""
    server = fork_server()
    with tempfile.TemporaryDirectory() as folder:
        streams = {name: Path(folder, name) for name in ("stdout", "stderr")}
        for file in streams.values():
            file.touch()
        command = {"arguments": arguments, "environment": env, "cwd": str(cwd or Path.cwd()),
                   **{name: str(file) for name, file in streams.items()}}  # fmt: skip
        server.stdin.write(json.dumps(command) + "\n")
        server.stdin.flush()
        child = int(server.stdout.readline())
        if not select.select([server.stdout], [], [], timeout)[0]:
            os.kill(child, signal.SIGKILL)
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(
            arguments, code, *(streams[name].read_text() for name in ("stdout", "stderr"))
        )


def python(*arguments, environment=None, cwd=None, timeout=300):
    """Runs this interpreter with the library's path in its environment, and returns what
    subprocess.run() returns. The process has imported torch already, unless `environment` has
    variables that torch or the interpreter reads when it starts."""
    env = {**os.environ, "FASTACT_LIBRARY": str(library_path()), **(environment or {})}
    arguments = [str(argument) for argument in arguments]
    if all(map(READ_LATER.fullmatch, environment or ())):
        return run_fork(arguments, env, cwd, timeout)
    return subprocess.run(
        [sys.executable, *arguments],
        env=env, cwd=cwd, timeout=timeout, capture_output=True, text=True,
    )  # fmt: skip


def run_python(*arguments, **settings):
    """Runs python(...), which must succeed, and returns its output."""
    done = python(*arguments, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

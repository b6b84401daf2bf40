"""A table of this machine's speed in about a minute: FastAct, PyTorch and a copy, in turn."""

from collections.abc import Callable, Iterator

import torch

from fastact import _info, functional
from fastact._timing import Contestant, CpuClock, CudaClock, Times, in_turn

DTYPES = (torch.bfloat16, torch.float32)
# Elements: so few that only the call takes time, what a cache holds, and what no cache does.
SIZES = {"cpu": (8, 1 << 16, 1 << 24), "cuda": (8, 1 << 20, 1 << 28)}


def _quick_gelu(x: torch.Tensor) -> torch.Tensor:
    """As models write it, since PyTorch has no function of this name."""
    return x * torch.sigmoid(1.702 * x)


PYTORCH: dict[str, Callable] = {
    "selu": torch.nn.functional.selu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
    "quick_gelu": _quick_gelu,
    "mish": torch.nn.functional.mish,
}


def _contestants(name: str, x: torch.Tensor) -> dict[str, Contestant]:
    ours, theirs = getattr(functional, name), PYTORCH[name]
    return {
        "FastAct": Contestant(lambda: ours(x)),
        "PyTorch": Contestant(lambda: theirs(x)),
        "copy": Contestant(lambda: x.clone()),
    }


def _spread(times: Times) -> str:
    """The median in microseconds, and how far the 10th and the 90th percentile are from it."""
    low, high = times.low / times.median - 1, times.high / times.median - 1
    return f"{1e6 * times.median:9.1f} {100 * low:+4.0f}{100 * high:+4.0f} %"


def cells(device: str, seconds: float, sizes: tuple[int, ...]) -> Iterator[dict]:
    """The times of every cell, of which each takes its share of the seconds."""
    clock = CudaClock() if device == "cuda" else CpuClock()
    share = seconds / (len(DTYPES) * len(sizes) * len(PYTORCH))
    for dtype in DTYPES:
        for size in sizes:
            # Not torch.randn: its last bits depend on the processor.
            x = torch.linspace(-6, 6, size, dtype=torch.float32, device=device).to(dtype)
            for name in PYTORCH:
                found = in_turn(_contestants(name, x), clock, share)
                yield {"name": name, "dtype": dtype, "size": size, "times": found}


def run(device: str, seconds: float, sizes: tuple[int, ...] | None = None) -> int:
    threads = f", {torch.get_num_threads()} threads" if device == "cpu" else ""
    print(f"{_info.processor(device)}{threads}, torch {torch.__version__}")
    print("Microseconds a call: the median, and how far the 10th and the 90th percentile are off.")
    titles = ("FastAct", "PyTorch", "copy")
    print(f"{'':31}" + "".join(f"{t:>21}" for t in titles) + "   times PyTorch   of a copy")
    for cell in cells(device, seconds, sizes or SIZES[device]):
        times = cell["times"]
        dtype = str(cell["dtype"]).removeprefix("torch.")
        ours, theirs, copy = (times[title].median for title in titles)
        print(
            f"{cell['name']:10} {dtype:8} {cell['size']:>11,}"
            + "".join(f"{_spread(times[title]):>21}" for title in titles)
            + f"{theirs / ours:16.2f}{copy / ours:12.2f}",
            flush=True,
        )
    print("times PyTorch: PyTorch's time by FastAct's; of a copy: a copy's time by FastAct's.")
    return 0

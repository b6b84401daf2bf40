"""Times FastAct, PyTorch and a memory copy in turn, in about a minute, and prints a table."""

from collections.abc import Callable, Iterator

import torch

from fastact import _info, functional
from fastact._timing import Contestant, CpuClock, CudaClock, Times, in_turn

DTYPES = (torch.bfloat16, torch.float32)
# Elements: a size dominated by the call, one that fits a cache, and one that fits no cache.
SIZES = {"cpu": (8, 1 << 16, 1 << 24), "cuda": (8, 1 << 20, 1 << 28)}


def _quick_gelu(x: torch.Tensor) -> torch.Tensor:
    """The formula that models write, because PyTorch has no function of this name."""
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
    """Returns the median in microseconds, and how far the 10th and 90th percentiles are from it."""
    low, high = times.low / times.median - 1, times.high / times.median - 1
    return f"{1e6 * times.median:9.1f} {100 * low:+4.0f}{100 * high:+4.0f} %"


def cells(device: str, seconds: float, sizes: tuple[int, ...]) -> Iterator[dict]:
    """Yields the times of every cell. The cells share the seconds equally."""
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
    print("Microseconds per call: the median, and the deviation of the 10th and 90th percentiles.")
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
    print("times PyTorch: PyTorch's time / FastAct's; of a copy: a copy's time / FastAct's.")
    return 0

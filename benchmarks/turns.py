"""The table of fused.py and rows.py: FastAct's time, and the times of the others divided by it."""

import torch
from _timing import Times


def print_head(device: str, elements: int) -> None:
    where = (
        torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
    )
    print(
        f"{where}, torch {torch.__version__}, {elements} elements; median ms, times over FastAct's"
    )
    print(f"{'':44}{'ms':>9} {'10..90 %':>17} {'copy':>7} {'PyTorch':>8} {'compile':>8}")


def print_line(name: str, times: dict[str, Times]) -> None:
    """Prints one line. `times` contains fastact, pytorch, copy, and possibly compile."""
    ours = times["fastact"]
    ratios = {k: times[k].median / ours.median for k in times}
    compiled = f"{ratios['compile']:8.2f}" if "compile" in times else f"{'':>8}"
    spread = f"{ours.low * 1e3:.3f}..{ours.high * 1e3:.3f}"
    print(
        f"{name:44}{ours.median * 1e3:9.3f} {spread:>17}"
        f" {ratios['copy']:7.3f} {ratios['pytorch']:8.2f} {compiled}",
        flush=True,
    )

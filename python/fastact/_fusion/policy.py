"""Where a fused operator is faster than PyTorch's operations."""

import torch

# What stays PyTorch's on a CPU: the library's list, registration/jit/not_faster.h.
_NOT_FASTER_ON_CPU = frozenset(torch.ops.fastact.not_faster_on_cpu())
#: A call from Python takes longer than PyTorch's two: with fewer elements they stay on a CPU. Batch
#: norm's own call takes longer than both.
FEWEST_ON_CPU = 1 << 16


def is_faster(device: torch.device, name: str) -> bool:
    return device.type != "cpu" or name not in _NOT_FASTER_ON_CPU


def takes_norm_alone(device: torch.device) -> bool:
    """Whether to fuse a batch norm that no activation follows: on a GPU, as its small kernels wait
    for Python, where batch norm's call takes the longest."""
    return device.type == "cuda"

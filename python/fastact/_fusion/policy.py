"""Decides where a fused operator is faster than PyTorch's operations."""

import torch

# Activations that are not fused on a CPU: the list of registration/jit/not_faster.h.
_NOT_FASTER_ON_CPU = frozenset(torch.ops.fastact.not_faster_on_cpu())
#: On a CPU, fusing pays from this number of elements on, because our call from Python takes longer
#: than PyTorch's two. With batch norm it always pays, because batch norm's own call takes longer.
FEWEST_ON_CPU = 1 << 16


def is_faster(device: torch.device, name: str) -> bool:
    return device.type != "cpu" or name not in _NOT_FASTER_ON_CPU


def takes_norm_alone(device: torch.device) -> bool:
    """True if a batch norm is fused that no activation follows. On a GPU that pays, because small
    kernels wait for Python, and batch norm's call takes longest there."""
    return device.type == "cuda"

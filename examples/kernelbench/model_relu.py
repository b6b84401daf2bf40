"""The ReLU problem: `Model` is PyTorch's answer, `ModelNew` is FastAct's."""

import torch
from torch import nn

SHAPES = {"cuda": (4096, 393216), "cpu": (1024, 4096)}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


class ModelNew(nn.Module):
    """Needs `torch.ops.load_library(".../libfastact.so")` before its first call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.fastact.relu(x)


def get_inputs(device: str = "cpu", rows: int | None = None) -> list[torch.Tensor]:
    """Normal numbers, so that both branches of the function run."""
    shape = (rows or SHAPES[device][0], SHAPES[device][1])
    generator = torch.Generator(device).manual_seed(0)
    return [torch.randn(shape, device=device, generator=generator)]


def get_init_inputs() -> list:
    return []

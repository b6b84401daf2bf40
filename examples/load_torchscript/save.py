"""Save a network that calls FastAct: python save.py PREFIX/lib/libfastact.so network.pt"""

import sys

import torch

torch.ops.load_library(sys.argv[1])


class Network(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.fastact.selu(x)


torch.jit.script(Network()).save(sys.argv[2])

"""Saves a network with PyTorch's own operators: python save.py network.pt"""

import sys

import torch
from torch import nn

torch.manual_seed(0)
network = nn.Sequential(
    nn.Linear(64, 32), nn.SELU(), nn.Linear(32, 32), nn.Mish(), nn.GELU(), nn.Tanh()
)
torch.jit.script(network.eval()).save(sys.argv[1])

"""FastAct in a model that exists: python fuse.py"""

import torch
from torch import nn

import fastact


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + nn.functional.mish(self.linear(x))


model = nn.Sequential(nn.Linear(8, 8), nn.GELU("tanh"), Block(), nn.Linear(8, 4), nn.PReLU())
print(fastact.fuse_(model, torch.ones(8)))
print(model(torch.ones(8)).tolist())
fastact.restore_(model)

"""FastAct in a model that exists: python replace.py"""

import torch
from torch import nn

import fastact

model = nn.Sequential(nn.Linear(8, 8), nn.GELU("tanh"), nn.Linear(8, 4), nn.PReLU())

for name, module in model.named_modules():
    kind = type(module).__name__
    if kind in fastact.nn.__all__ and type(module) is getattr(nn, kind, None):
        module.__class__ = getattr(fastact.nn, kind)  # a subclass: settings and weights stay
        print(f"{name}: fastact.nn.{module}")

print(model(torch.ones(8)).tolist())

"""FastAct in Python: python load.py PREFIX/lib/libfastact.so"""

import sys

import torch

torch.ops.load_library(sys.argv[1])

x = torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0], requires_grad=True)
y = torch.ops.fastact.selu(x)
y.sum().backward()
print("selu    ", y.tolist())
print("gradient", x.grad.tolist())

"""FastAct in Python: python activations.py"""

import torch

import fastact

x = torch.linspace(-2, 2, 5, requires_grad=True)
y = fastact.functional.gelu(x, approximate="tanh")  # as torch.nn.functional.gelu
y.sum().backward()
print("gradient", x.grad.tolist())

network = torch.nn.Sequential(torch.nn.Linear(5, 3), fastact.nn.SELU())  # as torch.nn.SELU
print("network", network(x).tolist())

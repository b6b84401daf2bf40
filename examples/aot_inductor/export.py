"""Compile a network ahead of time: python export.py network.pt2"""

import sys

import torch

import fastact

network = torch.nn.Sequential(torch.nn.Linear(8, 16), fastact.nn.SiLU(), torch.nn.Linear(16, 4))
x = torch.linspace(-2, 2, 16).reshape(2, 8)
program = torch.export.export(network.eval(), (x,))
package = torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1])
for number in torch._inductor.aoti_load_package(package)(x).flatten().tolist():
    print(number.hex())  # every bit

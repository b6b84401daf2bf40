"""Digests of the fused operators' bits over fixed sets of operands, and the recorded digests.

As a script, it prints the digests of this process. With --record it writes them to
fused_digests.json; do this on a machine where test_fused.py passes.
"""

import hashlib
import itertools
import json
import sys
from pathlib import Path

import torch

from op_table import ACTIVATIONS
from oracle import bits
from support import DTYPES, build_info, dtype_name, library_path

RECORD = Path(__file__).with_suffix(".json")
INPUTS = ("scale", "bias", "residual", "gate")
SETS = [names for n in range(5) for names in itertools.combinations(INPUTS, n)]
# Rows with a remainder, and images with scaled channels.
SHAPES = (((37, 53), -1), ((3, 5, 6, 7), 1))


def numbers(shape, dtype, seed):
    """Returns numbers from -7.99 to 7.99, made of integers without functions of the C library."""
    n = torch.Size(shape).numel()
    whole = (torch.arange(n, dtype=torch.int64) * 7919 + seed * 104729 + 17) % 65521 - 32760
    return (whole.double() / 4100).to(dtype).reshape(shape)


def call(act, tensors, names, dim):
    parameters = {f"output_{n}" if n in INPUTS else n: v for n, v in act.parameters.items()}
    operator = getattr(torch.ops.fastact, f"fused_{act.name}")
    return operator(tensors[0], **dict(zip(names, tensors[1:])), **parameters, dim=dim)


def digests(device="cpu"):
    """Returns digests by activation and type: of the values for every set of operands, and of all
    gradients. The gradients of scale and bias are sums."""
    result = {}
    for act in ACTIVATIONS:
        for dtype in DTYPES:
            values, gradients = hashlib.sha256(), hashlib.sha256()

            def add(to, t):
                to.update(bits(t.detach().contiguous()).cpu().numpy().tobytes())

            for shape, dim in SHAPES:
                for names in SETS:
                    shapes = [
                        shape[dim : dim + 1 or None] if n in INPUTS[:2] else shape for n in names
                    ]
                    shapes = [shape, *shapes]
                    tensors = [numbers(s, dtype, i).to(device) for i, s in enumerate(shapes)]
                    add(values, call(act, tensors, names, dim))
                    leaves = [t.requires_grad_() for t in tensors]
                    incoming = numbers(shape, dtype, 9).to(device)
                    for t in torch.autograd.grad(call(act, leaves, names, dim), leaves, incoming):
                        add(gradients, t)
            result[f"{act.id} {dtype_name(dtype)}"] = {
                "values": values.hexdigest()[:16],
                "gradients": gradients.hexdigest()[:16],
            }
    return result


def main(arguments):
    torch.ops.load_library(str(library_path()))
    found = digests()
    if arguments == ["--record"]:
        RECORD.write_text(json.dumps(found, indent=1) + "\n")
        return
    key = "cpu instruction set in use"
    print(json.dumps({key: build_info()[key], "digests": found}))


if __name__ == "__main__":
    main(sys.argv[1:])

"""The formulas as PTX, for the kernels that Inductor writes in Triton for NVIDIA's GPUs.

The build extracts assembly.json from the formulas' own headers; scripts/codegen/inline_assembly.py
describes its contents. ptxas contracts and reorders none of its instructions, so the bits are those
of the operators' own kernels.
"""

import functools
import json
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch._inductor.virtualized import ops

from fastact._inductor.operators import Call, chosen

_FILE = Path(__file__).parent / "assembly.json"
# What ops/codegen/one_element.cu is compiled for: cvt.rn.bf16x2 and max.NaN.
_LEAST_CAPABILITY = (8, 0)


@functools.cache
def _assembly() -> dict | None:
    """None in a package without GPU code."""
    return json.loads(_FILE.read_text()) if _FILE.is_file() else None


def is_built() -> bool:
    """Whether the package has GPU code."""
    return _assembly() is not None


def index_of(device: torch.device) -> int:
    """A GPU's index; torch.device("cuda") stands for the current device."""
    return torch.cuda.current_device() if device.index is None else device.index


# The arithmetic, "fast" or "ieee", of each GPU that has compared.
_found: dict[int, str] = {}


def arithmetic(device: int) -> str:
    """Which arithmetic serves on a GPU: "fast" if its approximate instructions have passed the
    comparison with IEEE's, which a kernel's first use on the device makes, else "ieee".

    A GPU cannot compare during a capture, and uses "ieee" until it has compared. That answer is
    therefore not cached."""
    if device in _found:
        return _found[device]
    with torch.utils._python_dispatch._disable_current_modes():
        torch.ops.fastact.gelu(torch.zeros(1, dtype=torch.bfloat16, device=f"cuda:{device}"))
    lines = dict(line.split(": ", 1) for line in torch.ops.fastact.build_info().splitlines())
    in_use = lines["cuda arithmetic in use"]
    if in_use.endswith(", as FASTACT_CUDA_MATH says"):
        said = in_use
    else:
        beginning = f"device {device} "
        parts = [part for part in in_use.split("; ") if part.startswith(beginning)]
        if not parts:
            return "ieee"
        said = parts[0].split("): ", 1)[1]
    _found[device] = "fast" if said.startswith("fast, as ") else "ieee"
    return _found[device]


def arithmetic_of(devices: Iterable[int]) -> str:
    """The arithmetic of each of these GPUs; "none" if code cannot be inlined for any GPU."""
    if not is_built() or not torch.cuda.is_initialized():
        return "none"
    return ", ".join(f"{device}: {arithmetic(device)}" for device in sorted(devices)) or "none"


def _number(value: float) -> str:
    """A float64 as PTX writes it."""
    return "0d" + struct.pack(">d", value).hex().upper()


def element(call: Call, dtype: torch.dtype, device: torch.device) -> Callable | None:
    """A function of Inductor's values: one element of the call's result from one of each operand,
    in their type or, of 16 bits, in float32. None where the call is not to be inlined."""
    index = index_of(device)
    if not is_built() or torch.cuda.get_device_capability(index) < _LEAST_CAPABILITY:
        return None
    # An approximate value of 16 bits has been compared for elements alone: where operands may be
    # any numbers, the operators' own kernels have IEEE arithmetic. Else it is reciprocals that are
    # approximate, which have been compared for every number.
    is_compared = call.of_elements or dtype.itemsize > 2 or call.form != 0
    for kind in (arithmetic(index) if is_compared else "ieee", "ieee"):
        found = _assembly()[kind]
        if key := chosen(call, dtype, found["kernels"], found["ordinary"]):
            break
    else:
        return None
    kernel = found["kernels"][key]
    text = kernel["assembly"]
    for i, value in enumerate(call.parameters):
        text = text.replace(f"@{i};", f"{_number(value)};")
    if "table" in kernel:
        # Each block declares its own: blocks for 2, 4 and 8 elements were as fast (H100).
        words = _assembly()["ieee"]["tables"][kernel["table"]]
        values = ", ".join(f"0x{word}" for word in words)
        text = f"{{ .global .align 16 .b64 fastact_table[{len(words)}] = {{{values}}}; {text} }}"
    letter, compute_dtype = ("d", dtype) if dtype == torch.float64 else ("f", torch.float32)
    constraints = ",".join([f"={letter}"] + [letter] * kernel["operands"])

    def evaluate(*operands):
        if dtype != compute_dtype:
            operands = [ops.to_dtype(x, compute_dtype) for x in operands]
        return ops.inline_asm_elementwise(
            *operands, asm=text, constraints=constraints, dtype=compute_dtype
        )

    return evaluate

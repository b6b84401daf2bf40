"""The formulas as PTX, for the Triton kernels that Inductor generates for NVIDIA GPUs.

The build extracts assembly.json from the formulas' own headers; scripts/codegen/inline_assembly.py
describes its contents. ptxas neither contracts nor reorders its instructions, so the bits are those
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
# The target of ops/codegen/one_element.cu, which needs cvt.rn.bf16x2 and max.NaN.
_LEAST_CAPABILITY = (8, 0)


@functools.cache
def _assembly() -> dict | None:
    """Returns the contents of assembly.json, or None in a package without GPU code."""
    return json.loads(_FILE.read_text()) if _FILE.is_file() else None


def is_built() -> bool:
    """Returns whether the package has GPU code."""
    return _assembly() is not None


def index_of(device: torch.device) -> int:
    """Returns a GPU's index. torch.device("cuda") means the current device."""
    return torch.cuda.current_device() if device.index is None else device.index


# The arithmetic, "fast" or "ieee", of each GPU that has made its comparison.
_found: dict[int, str] = {}


def arithmetic(device: int) -> str:
    """Returns the arithmetic that a GPU uses: "fast" if its approximate instructions have passed
    the comparison with IEEE arithmetic at a kernel's first use on the device, otherwise "ieee".

    A GPU cannot compare during a capture, and uses "ieee" until it has compared. That result is
    not cached."""
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
    """Returns the arithmetic of each of these GPUs, or "none" if no GPU can inline code."""
    if not is_built() or not torch.cuda.is_initialized():
        return "none"
    return ", ".join(f"{device}: {arithmetic(device)}" for device in sorted(devices)) or "none"


def _number(value: float) -> str:
    """Returns a float64 in PTX's notation."""
    return "0d" + struct.pack(">d", value).hex().upper()


def element(call: Call, dtype: torch.dtype, device: torch.device) -> Callable | None:
    """Returns a function of Inductor's values that computes one element of the call's result from
    one element of each operand, in their type or, for 16-bit types, in float32. Returns None if the
    call is not inlined."""
    index = index_of(device)
    if not is_built() or torch.cuda.get_device_capability(index) < _LEAST_CAPABILITY:
        return None
    # An approximate 16-bit value was compared only for 16-bit inputs. If operands may be any
    # numbers, the operators' own kernels use IEEE arithmetic. All other fast kernels approximate
    # only reciprocals, which were compared for every number.
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
        # Each block declares its own table: blocks for 2, 4 and 8 elements were as fast (H100).
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

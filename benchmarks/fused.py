"""Times the fused operators, PyTorch's separate operations, torch.compile, and a copy of the same
bytes. The contestants take turns, one sample each in every round.

    python benchmarks/fused.py                      on the GPU if there is one, 3 minutes at most
    python benchmarks/fused.py --device cpu --threads 1 --size 22
    python benchmarks/fused.py --op silu --dtype bfloat16 --seconds 2
    python benchmarks/fused.py --backward           the gradients of all operands
    python benchmarks/fused.py --training           values, with all operands requiring gradients:
                                                    a residual without a scale also saves z
    python benchmarks/fused.py --quick              SiLU's values and gradients in three types, for
                                                    rows and channels of many sizes, without
                                                    torch.compile: 2 minutes on a GPU
"""

import argparse
import itertools
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "python_tests"))  # the table of activations
sys.path.append(str(ROOT / "python" / "fastact"))  # the turns of contestants

import torch  # noqa: E402
import torch._functorch.config  # noqa: E402
from _timing import Contestant, CpuClock, CudaClock, in_turn  # noqa: E402

from op_table import OPERATORS  # noqa: E402
from support import library_path  # noqa: E402
from turns import print_head, print_line  # noqa: E402

COLUMNS = 4096
CHANNELS = 64
# The operands besides self, and the number of tensors of its size that are read and written.
FORMS = {
    "bias": (("bias",), 2),
    "residual": (("residual",), 3),
    "gate": (("gate",), 3),
    "residual and gate": (("residual", "gate"), 4),
    "scale and bias": (("scale", "bias"), 2),
    "all four": (("scale", "bias", "residual", "gate"), 4),
    "halves": (("gate",), 3),
    "channels": (("scale", "bias"), 2),
    "channels_last": (("scale", "bias"), 2),
}
# Sizes of self, without the first dimension, for scale and bias along rows and channels.
ROWS = (128, 512, 2048, 4096, 16384)
IMAGES = {3: 224, 64: 112, 256: 56, 512: 28, 2048: 7}
SIZES = {f"rows of {columns}": (columns,) for columns in ROWS} | {
    f"{name} {channels}": (channels, side, side)
    for name in ("channels", "channels_last")
    for channels, side in IMAGES.items()
}
FORMS_OF_SIZES = dict.fromkeys(SIZES, (("scale", "bias"), 2))
EVERY_FORM = FORMS | FORMS_OF_SIZES


def operands(form: str, elements: int, dtype: torch.dtype, device: str):
    """Returns self, the other operands, and the dimension of the vectors."""

    def fresh(*shape):
        return torch.randn(shape, device=device, dtype=torch.float32).to(dtype)

    names, _ = EVERY_FORM[form]
    if form == "halves":
        packed = fresh(elements // COLUMNS, 2 * COLUMNS)
        x, gate = packed.chunk(2, -1)
        return x, {"gate": gate}, -1
    if form.startswith("channels"):
        own = SIZES.get(form, (CHANNELS, 32, 32))
        x = fresh(elements // math.prod(own), *own)
        if form.startswith("channels_last"):
            x = x.to(memory_format=torch.channels_last)
        return x, {name: fresh(own[0]) for name in names}, 1
    if form in SIZES:
        (columns,) = SIZES[form]
        x = fresh(elements // columns, columns)
        return x, {name: fresh(columns) for name in names}, -1
    shape = (elements // COLUMNS, COLUMNS)
    sizes = {"scale": shape[1:], "bias": shape[1:]}
    return fresh(*shape), {name: fresh(*sizes.get(name, shape)) for name in names}, -1


def one_by_one(act, x, vectors, dim):
    """Computes with separate PyTorch operations, like a program without fused operators."""
    shaped = {
        name: t.view(-1, 1, 1) if dim == 1 and name in ("scale", "bias") else t
        for name, t in vectors.items()
    }

    def call(x):
        if "scale" in shaped:
            x = x * shaped["scale"]
        if "bias" in shaped:
            x = x + shaped["bias"]
        if "residual" in shaped:
            x = x + shaped["residual"]
        y = act.aten(x)
        return y * shaped["gate"] if "gate" in shaped else y

    return call


def gradients(function, tensors):
    """Returns a call that computes the gradients of all tensors."""
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in tensors]
        result = function(*leaves)
        incoming = torch.randn_like(result)
    return lambda: torch.autograd.grad(result, leaves, incoming, retain_graph=True)


def backward_contestants(
    act, form: str, elements: int, dtype: torch.dtype, device: str, compiles: bool
):
    x, vectors, dim = operands(form, elements, dtype, device)
    op = getattr(torch.ops.fastact, f"fused_{act.name}")

    def eager(x, *others):
        return one_by_one(act, x, dict(zip(vectors, others)), dim)(x)

    def fused(x, *others):
        return op(x, **dict(zip(vectors, others)), dim=dim)

    tensors = (x, *vectors.values())
    large = sum(t.numel() == x.numel() for t in tensors)
    # Without a scale, the gradients of residual and self are the same tensor.
    written = large - ("residual" in vectors and "scale" not in vectors)
    source = torch.zeros((1 + large + written) * x.numel() // 2, dtype=dtype, device=device)
    target = torch.zeros_like(source)
    present = {
        "fastact": Contestant(gradients(fused, tensors)),
        "pytorch": Contestant(gradients(eager, tensors)),
        "copy": Contestant(lambda: target.copy_(source)),
    }
    if compiles:
        torch._dynamo.reset()
        present["compile"] = Contestant(gradients(torch.compile(eager), tensors))
    return present


def contestants(act, form: str, elements: int, dtype: torch.dtype, device: str, compiles: bool):
    """With gradients enabled, for the forward pass of training."""
    x, vectors, dim = operands(form, elements, dtype, device)
    training = torch.is_grad_enabled()
    for t in (x, *vectors.values()):
        t.requires_grad_(training)
    op = getattr(torch.ops.fastact, f"fused_{act.name}")
    eager = one_by_one(act, x, vectors, dim)
    writes_preactivation = training and "residual" in vectors and "scale" not in vectors
    # As many bytes as the operands. The copy reads half of them and writes half.
    size = (EVERY_FORM[form][1] + writes_preactivation) * x.numel() // 2
    source = torch.zeros(size, dtype=dtype, device=device)
    target = torch.zeros_like(source)
    present = {
        "fastact": Contestant(lambda: op(x, **vectors, dim=dim)),
        "pytorch": Contestant(lambda: eager(x)),
        "copy": Contestant(lambda: target.copy_(source)),
    }
    if compiles:
        torch._dynamo.reset()
        compiled = torch.compile(eager)
        present["compile"] = Contestant(lambda: compiled(x))
    return present


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    named = {act.name: act for act in OPERATORS if act.name != "prelu" and not act.parameters}
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--op", action="append", choices=sorted(named))
    parser.add_argument("--dtype", action="append", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--form", action="append", choices=EVERY_FORM)
    parser.add_argument("--size", type=int, help="2^N elements (default: 26 on a GPU, else 22)")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--backward", action="store_true", help="gradients instead of values")
    parser.add_argument("--training", action="store_true", help="values, with gradients enabled")
    parser.add_argument("--quick", action="store_true", help="see above")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--seconds", type=float, help="per line (default: 1, with --quick 0.5)")
    chosen = parser.parse_args()
    quick = chosen.quick
    compiles = not (quick or chosen.no_compile)
    seconds = chosen.seconds or (0.5 if quick else 1.0)
    names = chosen.op or (("silu",) if quick else ("relu", "selu", "silu", "gelu"))
    dtypes = chosen.dtype or ("float32", "bfloat16", *(("float16",) if quick else ()))
    forms = chosen.form or (EVERY_FORM if quick else FORMS)
    directions = (False, True) if quick and not chosen.backward else (chosen.backward,)
    device = chosen.device or ("cuda" if torch.cuda.is_available() else "cpu")
    elements = 1 << (chosen.size or (26 if device == "cuda" else 22))
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    torch.ops.load_library(str(library_path()))
    # Permits a repeated backward pass of torch.compile.
    torch._functorch.config.donated_buffer = False
    print_head(device, elements)
    clock = CudaClock() if device == "cuda" else CpuClock()
    with torch.set_grad_enabled(chosen.training):
        for backward, name, dtype, form in itertools.product(directions, names, dtypes, forms):
            make = backward_contestants if backward else contestants
            present = make(named[name], form, elements, getattr(torch, dtype), device, compiles)
            pass_ = " backward" if backward else " training" if chosen.training else ""
            print_line(f"{name}{pass_} {dtype} {form}", in_turn(present, clock, seconds))


if __name__ == "__main__":
    main()

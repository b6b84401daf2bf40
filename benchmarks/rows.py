"""Times softmax, log-softmax, RMSNorm and LayerNorm of rows, and their gradients, GroupNorm, all
gradients of the three norms, RMSNorm and LayerNorm of a sum, cross_entropy, and logsumexp, sum,
mean and var_mean: FastAct, PyTorch, torch.compile, and a copy of the same bytes. The contestants
take turns, one sample each in every round.

    python benchmarks/rows.py                      half a minute per operator; a GPU if there is one
    python benchmarks/rows.py --device cpu --threads 1 --size 20
    python benchmarks/rows.py --row 4096 --row 50257 --dtype bfloat16 --no-compile
"""

import argparse
import itertools
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "python_tests"))
sys.path.append(str(ROOT / "python" / "fastact"))  # the turns of contestants

import torch  # noqa: E402
from _timing import Contestant, CpuClock, CudaClock, in_turn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

from support import library_path  # noqa: E402
from turns import print_head, print_line  # noqa: E402

ROWS = (32, 64, 128, 1001, 1024, 4095, 4096, 16384, 50257, 128256)
SOFTMAX = {"softmax": torch.softmax, "log_softmax": torch.log_softmax}
NORMS = ("rms_norm", "layer_norm")
# Read a row and return a number, or two.
REDUCTIONS = {
    "logsumexp": torch.logsumexp,
    "sum": torch.sum,
    "mean": torch.mean,
    "var_mean": torch.var_mean,
}
# The second one computes the gradient too.
LOSSES = ("cross_entropy", "cross_entropy_and_backward")
OPERATORS = [f"{name}{suffix}" for suffix in ("", "_backward") for name in (*SOFTMAX, *NORMS)]
# All gradients (input, weight, bias), through autograd.
GRADIENTS = tuple(f"{name}_gradients" for name in (*NORMS, "group_norm"))
# Norms of a sum, which they also return.
ADDED = tuple(f"add_{name}" for name in NORMS)
OPERATORS += ["group_norm", *ADDED, *GRADIENTS, *REDUCTIONS, *LOSSES]


def softmax_calls(name, x):
    """Returns our call, PyTorch's, and the tensors that both take."""
    forward = name.removesuffix("_backward")
    ours = getattr(torch.ops.fastact, name)
    if name == forward:
        return (lambda x: ours(x, -1)), (lambda x: SOFTMAX[name](x, -1)), (x,)
    theirs = getattr(torch.ops.aten, f"_{name}_data")
    tensors = torch.randn_like(x), SOFTMAX[forward](x, -1)
    return (lambda g, y: ours(g, y, -1)), (lambda g, y: theirs(g, y, -1, x.dtype)), tensors


def norm_calls(name, x):
    """The same for a norm with a weight and, for LayerNorm, a bias. The gradient is that of the
    input. LayerNorm's, and PyTorch's, have statistics from the forward pass."""
    shape, eps = x.shape[1:], 1e-5
    w, b = torch.randn(2, *shape, dtype=x.dtype, device=x.device)
    aten, ours = torch.ops.aten, torch.ops.fastact
    g = torch.randn_like(x)
    if name == "rms_norm":
        return (
            (lambda x: ours.rms_norm(x, shape, w, eps)),
            (lambda x: aten.rms_norm(x, shape, w, eps)),
            (x,),
        )
    if name == "layer_norm":
        return (
            (lambda x: ours.layer_norm(x, shape, w, b, eps)),
            (lambda x: aten.layer_norm(x, shape, w, b, eps)),
            (x,),
        )
    backward, statistics = getattr(ours, f"_{name}"), []
    if name == "layer_norm_backward":
        _, mean, root = aten.native_layer_norm(x, shape, w, b, eps)
        _, *statistics = ours._layer_norm_with_statistics(x, w, b, eps, -1)
        theirs = lambda x, g: aten.native_layer_norm_backward(  # noqa: E731
            g, x, shape, mean, root, w, b, [True, False, False]
        )[0]
    elif x.is_cuda:
        _, root = aten._fused_rms_norm(x, shape, w, eps)
        theirs = lambda x, g: aten._fused_rms_norm_backward(  # noqa: E731
            g, x, shape, root, w, [True, False]
        )[0]
    else:  # PyTorch has no kernel
        leaf = x.detach().requires_grad_()
        y = aten.rms_norm(leaf, shape, w, eps)
        theirs = torch._dynamo.disable(
            lambda x, g: torch.autograd.grad(y, leaf, g, retain_graph=True)[0]
        )
    return (lambda x, g: backward(x, g, w, *statistics, eps, -1)), theirs, (x, g)


def in_groups(x):
    """Returns the rows as groups of up to 8 channels, and the number of groups of an image."""
    rows, n = x.shape
    groups, of_group = math.gcd(rows, 32), max(k for k in range(1, 9) if n % k == 0)
    return x.view(rows // groups, groups * of_group, n // of_group), groups


def group_norm_calls(name, x):
    """The same for GroupNorm."""
    images, groups = in_groups(x)
    vectors = torch.randn(2, images.shape[1], dtype=x.dtype, device=x.device)
    ours, theirs = torch.ops.fastact.group_norm, torch.nn.functional.group_norm
    return (lambda x: ours(x, groups, *vectors)), (lambda x: theirs(x, groups, *vectors)), (images,)


def added_calls(name, x):
    """The same for a norm of the sum of two tensors. PyTorch adds first."""
    shape, norm = x.shape[1:], name.removeprefix("add_")
    vectors = torch.randn(1 if norm == "rms_norm" else 2, *shape, dtype=x.dtype, device=x.device)
    ours, theirs = getattr(torch.ops.fastact, name), getattr(torch.nn.functional, norm)

    def one_after_the_other(x, residual):
        total = x + residual
        return theirs(total, shape, *vectors, eps=1e-5), total

    ours_of = lambda x, r: ours(x, r, shape, *vectors, eps=1e-5)  # noqa: E731
    return ours_of, one_after_the_other, (x, torch.randn_like(x))


def gradients_calls(name, x):
    """The same for all gradients of a norm."""
    norm = name.removesuffix("_gradients")
    first, groups = in_groups(x) if norm == "group_norm" else (x, x.shape[1:])
    vectors = torch.randn(
        1 if norm == "rms_norm" else 2, first.shape[1], dtype=x.dtype, device=x.device
    )
    leaves = [tensor.detach().requires_grad_() for tensor in (first, *vectors)]

    def backward_of(functions):
        result = getattr(functions, norm)(leaves[0], groups, *leaves[1:])
        return lambda g: torch.autograd.grad(result, leaves, g, retain_graph=True)

    g = torch.randn_like(first)
    return backward_of(torch.ops.fastact), backward_of(torch.nn.functional), (g,)


def reduction_calls(name, x):
    """The same for a reduction of rows."""
    ours, theirs = getattr(torch.ops.fastact, name), REDUCTIONS[name]
    return (lambda x: ours(x, -1)), (lambda x: theirs(x, -1)), (x,)


def loss_calls(name, x):
    """The same for cross-entropy."""
    ours = torch.ops.fastact
    target = torch.randint(x.shape[1], x.shape[:1], device=x.device)
    if name == "cross_entropy":
        return (lambda x: ours.cross_entropy(x, target)), (lambda x: cross_entropy(x, target)), (x,)
    x.requires_grad_()
    return (
        (lambda x: torch.autograd.grad(ours.cross_entropy(x, target), x)),
        (lambda x: torch.autograd.grad(cross_entropy(x, target), x)),
        (x,),
    )


def traffic(name: str, tensors: tuple) -> int:
    """Returns how many tensors are read or written."""
    if name == "cross_entropy_and_backward" or name in GRADIENTS:
        return 3
    if name in ADDED:
        return 4
    return len(tensors) + (name not in (*REDUCTIONS, *LOSSES))


def contestants(name: str, n: int, elements: int, dtype: torch.dtype, device: str, compiles: bool):
    """Returns the contestants for a tensor of rows of n elements, with about `elements` in all."""
    x = torch.randn(max(elements // n, 1), n, dtype=dtype, device=device)
    calls = (
        reduction_calls if name in REDUCTIONS
        else loss_calls if name in LOSSES
        else softmax_calls if "softmax" in name
        else group_norm_calls if name == "group_norm"
        else gradients_calls if name in GRADIENTS
        else added_calls if name in ADDED
        else norm_calls
    )  # fmt: skip
    ours, eager, tensors = calls(name, x)
    # The copy reads half of the bytes and writes half.
    source = torch.zeros(traffic(name, tensors) * x.numel() // 2, dtype=dtype, device=device)
    target = torch.zeros_like(source)
    present = {
        "fastact": Contestant(lambda: ours(*tensors)),
        "pytorch": Contestant(lambda: eager(*tensors)),
        "copy": Contestant(lambda: target.copy_(source)),
    }
    if compiles and name not in GRADIENTS:
        torch._dynamo.reset()
        compiled = torch.compile(eager)
        present["compile"] = Contestant(lambda: compiled(*tensors))
    return present


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--op", action="append", choices=OPERATORS)
    parser.add_argument("--dtype", action="append", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--row", action="append", type=int, help="elements of a row (repeatable)")
    parser.add_argument("--size", type=int, help="2^N elements (default: 27 on a GPU, else 20)")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--seconds", type=float, default=1.0, help="per line (default: 1)")
    chosen = parser.parse_args()
    device = chosen.device or ("cuda" if torch.cuda.is_available() else "cpu")
    elements = 1 << (chosen.size or (27 if device == "cuda" else 20))
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    torch.ops.load_library(str(library_path()))
    print_head(device, elements)
    clock = CudaClock() if device == "cuda" else CpuClock()
    dtypes = chosen.dtype or ("float32", "bfloat16")
    for name, dtype, n in itertools.product(chosen.op or OPERATORS, dtypes, chosen.row or ROWS):
        of_dtype = getattr(torch, dtype)
        present = contestants(name, n, elements, of_dtype, device, not chosen.no_compile)
        print_line(f"{name} {dtype} {n}", in_turn(present, clock, chosen.seconds))


if __name__ == "__main__":
    main()

"""Calls FastAct's operators with DTensors on every rank of a group. test_distributed.py runs it.

    python distributed_cases.py gloo 4 FOLDER

starts 4 processes on this machine, which make the same calls on the same meshes. Each process
compares the bits of its part of a result with the same part of the result of one process, and
counts collectives. FOLDER/RANK.json lists failures. FOLDER/table.json contains the number of
collectives of FastAct's and PyTorch's operators, for each operator and placement.
"""

import functools
import itertools
import json
import os
import socket
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import support
from op_table import GRADIENT_NAMES, OPERATORS, REPRESENTATIVES, SUFFIXES

torch.ops.load_library(str(support.library_path()))
sys.path.append(str(support.package_path().parent))

from torch.distributed.tensor import (  # noqa: E402
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    init_device_mesh,
)
from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402

import fastact  # noqa: E402

ops = torch.ops.fastact
REPLICATED, SUM = Replicate(), Partial()
# PyTorch's elementwise operators of one, two, ... tensors: their collectives are the limit.
THEIRS = (
    torch.relu,
    lambda g, x: torch.ops.aten.threshold_backward(g, x, 0),
    torch.addcmul,
)
# Placements on a two-dimensional mesh, for each activation and for pairs of tensors.
ON_GRIDS = ((Shard(0), Shard(2)), (Shard(0), Shard(0)), (REPLICATED, Shard(2)), (SUM, Shard(0)))
PAIRED_ON_GRIDS = (
    (Shard(0), Shard(1)),
    (Shard(1), Shard(1)),
    (Shard(0), REPLICATED),
    (REPLICATED, REPLICATED),
    (REPLICATED, SUM),
    (SUM, Shard(0)),
)
# Equal parts; parts of 2 and 1; fewer rows than ranks; one row; no element; a scalar.
SHAPES = ((8, 4), (5, 7, 3), (3, 2), (1, 6), (0, 4), ())


def numbers(*shape, dtype=torch.float32):
    """Returns eighths, the same on every rank. Their sums over a mesh are exact in every type."""
    return (torch.randint(-24, 25, shape) / 8).to(dtype)


class Ranks:
    """This process: its device, the meshes, and its findings."""

    def __init__(self, rank, world, device):
        self.rank, self.world, self.device = rank, world, device
        kind = device.type
        self.failures, self.passed, self.table, self.known = [], 0, {}, {}
        self.line = init_device_mesh(kind, (world,))
        shape = (2, 2) if world == 4 else (1, world)
        self.grid = init_device_mesh(kind, shape, mesh_dim_names=("rows", "columns"))
        self.meshes = {f"{world}": self.line, "x".join(map(str, shape)): self.grid}
        if world == 4:  # meshes of two processes, too
            self.meshes["2"] = self.grid["columns"]

    def check(self, name, function, *arguments):
        try:
            function(*arguments)
            self.passed += 1
        except Exception:
            self.failures.append(f"{name}: {traceback.format_exc(limit=-4)}")

    def place(self, x, mesh, placements):
        """Makes a DTensor of a tensor that all ranks have. For a partial sum, splits it into
        summands."""
        x = x.to(self.device, copy=True)
        if not any(isinstance(p, Partial) for p in placements):
            return distribute_tensor(x, mesh, placements, src_data_rank=None)
        for mesh_dim, placement in enumerate(placements):
            if isinstance(placement, Partial):
                n, i = mesh.size(mesh_dim), mesh.get_local_rank(mesh_dim)
                x = x * (0.5 ** min(i + 1, n - 1) if n > 1 else 1)
        whole = [REPLICATED if isinstance(p, Partial) else p for p in placements]
        local = distribute_tensor(x, mesh, whole, src_data_rank=None).to_local()
        return DTensor.from_local(
            local, mesh, placements, run_check=False, shape=x.shape, stride=x.stride()
        )

    def theirs(self, order, mesh, *how):
        """Calls PyTorch's operator of as many tensors. Returns the result's placement and the
        collectives."""
        key = (order, mesh.shape, *how)
        if key not in self.known:
            self.known[key] = self.call_theirs(order, mesh, *how)
        return self.known[key]

    def call_theirs(self, order, mesh, shape, dtype, placements):
        tensors = [self.place(numbers(*shape, dtype=dtype), mesh, placements)] * (order + 1)
        result, count = counted(THEIRS[order], *tensors)
        return result.placements, count

    def assert_is(self, result, expected):
        """Asserts that this rank's part of the result has the bits of the expected tensor."""
        assert isinstance(result, DTensor) and result.shape == expected.shape, result
        assert not any(isinstance(p, Partial) for p in result.placements), result.placements
        part = self.place(expected, result.device_mesh, result.placements)
        support.assert_same_bits(result.to_local(), part.to_local())


def counted(function, *arguments, **keywords):
    with CommDebugMode() as mode:
        result = function(*arguments, **keywords)
    return result, mode.get_total_counts()


def placements_of(mesh, ndim):
    """Returns all placements of a tensor with `ndim` dimensions on a mesh. On a two-dimensional
    mesh only the first and last tensor dimension are sharded."""
    dims = range(ndim) if mesh.ndim == 1 else sorted({0, max(ndim - 1, 0)} & set(range(ndim)))
    one = [REPLICATED, *map(Shard, dims), SUM]
    return list(itertools.product(one, repeat=mesh.ndim))


def text(placements):
    return "".join(
        f"S{p.dim}" if isinstance(p, Shard) else "P" if isinstance(p, Partial) else "R"
        for p in placements
    )


# ---- activations


def every_form(ranks, act, mesh, shape, dtype, placements):
    """Calls the value, in-place and out= forms, and three derivatives, with equal placements."""
    x = numbers(*shape, dtype=dtype)
    partial = any(isinstance(p, Partial) for p in placements)
    key = f"{text(placements)} on {'x'.join(map(str, mesh.shape))}"
    for order, suffix in enumerate(SUFFIXES):
        tensors = [numbers(*shape, dtype=dtype) for _ in GRADIENT_NAMES[order]] + [x]
        expected = act.ladder(*tensors)
        placed = [ranks.place(t, mesh, placements) for t in tensors]
        result, count = counted(act.ladder, *placed)
        ranks.assert_is(result, expected)
        if order < len(THEIRS):
            theirs, allowed = ranks.theirs(order, mesh, shape, dtype, placements)
            # For a partial sum, some versions of PyTorch return shards and others replicate.
            assert partial or result.placements == theirs, (result.placements, theirs)
        else:
            allowed = count if partial else 0
        assert count <= allowed, f"{count} collectives, where PyTorch's own takes {allowed}"
        row = ranks.table.setdefault(act.name + suffix, {})
        row[key] = max(row.get(key, [0, 0]), [count, allowed])
    if partial:
        return
    expected, target = act.op(x), ranks.place(x, mesh, placements)
    result, count = counted(act.op_, target)
    assert result is target and count == 0
    ranks.assert_is(target, expected)
    source, target = (ranks.place(x, mesh, placements) for _ in range(2))
    result, count = counted(act.out, source, target)
    assert result is target and count == 0
    ranks.assert_is(target, expected)
    g = numbers(*shape, dtype=dtype)
    placed, target = ranks.place(g, mesh, placements), ranks.place(x, mesh, placements)
    _, count = counted(act.grad_input, placed, source, target)
    assert count == 0
    ranks.assert_is(target, act.ladder(g, x))


def through_autograd(ranks, act, mesh, dtype, placements):
    """Computes gradients of the first to fourth order. The fourth uses PyTorch's operators."""
    x, g = (numbers(8, 4, dtype=dtype) for _ in range(2))

    def gradients(x, g):
        x.requires_grad_()
        y, found = act.op(x), []
        for _ in range(4):
            if not y.requires_grad:
                break
            (y,) = torch.autograd.grad(y, x, g, create_graph=True)
            found.append(y.detach())
        return found

    for i, (result, expected) in enumerate(
        zip(
            gradients(ranks.place(x, mesh, placements), ranks.place(g, mesh, placements)),
            gradients(x.to(ranks.device), g.to(ranks.device)),
            strict=True,
        )
    ):
        if i < 3:
            ranks.assert_is(result, expected)
        else:
            torch.testing.assert_close(result.full_tensor(), expected)


def mixed(ranks, mesh, shape, placements):
    """Calls backward() with different placements, and compares the collectives with PyTorch's."""
    g, x = numbers(*shape), numbers(*shape)
    placed = [ranks.place(t, mesh, p) for t, p in zip((g, x), placements)]
    result, count = counted(ops.silu_backward, *placed)
    ranks.assert_is(result, ops.silu_backward(g, x))
    _, allowed = counted(torch.ops.aten.silu_backward, *placed)
    assert count <= allowed, f"{count} collectives, where PyTorch's own takes {allowed}"


def in_strides(ranks):
    """Strided shards, which FSDP makes of tensor-parallel weights, keep their placement."""
    mesh = ranks.grid
    local = numbers(2, 3).to(ranks.device)
    shape = (local.shape[0] * ranks.world, 3)
    placements = (_StridedShard(0, split_factor=mesh.size(1)), Shard(0))
    x = DTensor.from_local(
        local, mesh, placements, run_check=False, shape=shape, stride=local.stride()
    )
    for function in (ops.gelu, lambda x: ops.gelu_backward(x, x)):
        result, count = counted(function, x)
        assert count == 0 and tuple(result.placements) == placements, result.placements
        support.assert_same_bits(result.to_local(), function(local))


# ---- prelu


def prelu(ranks, mesh, x_placements, w_placements, of_all):
    x, g = numbers(8, 4, 3), numbers(8, 4, 3)
    w = torch.tensor([0.25, 0.5, -0.125, 2.0][: 1 if of_all else 4])

    def gradients(x, w, g):
        x.requires_grad_()
        w.requires_grad_()
        y = fastact.functional.prelu(x, w)
        return y.detach(), *torch.autograd.grad(y, (x, w), g)

    placed = [
        ranks.place(t, mesh, p)
        for t, p in zip((x, w, g), (x_placements, w_placements, x_placements))
    ]
    results = gradients(*placed)
    expected = gradients(*(t.to(ranks.device) for t in (x, w, g)))
    for result, exact in zip(results[:2], expected[:2]):
        ranks.assert_is(result, exact)
    # Each rank has the sum over its part of x. Eighths add up exactly.
    assert results[2].shape == w.shape
    for p, of_x in zip(results[2].placements, results[0].placements):
        summed = isinstance(of_x, Shard) and (of_all or of_x.dim != 1)
        assert isinstance(p, Partial) == summed, (results[2].placements, results[0].placements)
    support.assert_same_bits(results[2].full_tensor(), expected[2])


def prelu_backwards(ranks, mesh, placements):
    w, x, g, h = (numbers(8, 4, 3) for _ in range(4))
    for op, tensors in (
        (ops._prelu, (w, x)),
        (ops._prelu_backward, (g, w, x)),
        (ops._prelu_weight_backward, (g, x)),
        (ops._prelu_weight_double_backward, (h, g, x)),
    ):
        result, count = counted(op, *(ranks.place(t, mesh, placements) for t in tensors))
        ranks.assert_is(result, op(*tensors))
        assert count == 0


# ---- errors


def raises(kind, words, function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"expected {kind.__name__}")


def refused(ranks):
    mesh = ranks.line
    x = numbers(8, 4)
    sharded, partial = ranks.place(x, mesh, [Shard(0)]), ranks.place(x, mesh, [SUM])
    before = sharded.to_local().clone()
    raises(
        RuntimeError, "fastact::selu_: expected self, which is written to, to be replicated or a "
        "shard", ops.selu_, partial,
    )  # fmt: skip
    raises(
        RuntimeError, "fastact::selu: expected out, which is written to", ops.selu, sharded,
        out=partial,
    )  # fmt: skip
    raises(
        RuntimeError, "fastact::selu: expected out to have the result's shape (8, 4), because "
        "DTensors are not resized, but got (8, 2)", ops.selu, sharded,
        out=ranks.place(x[:, :2], mesh, [Shard(0)]),
    )  # fmt: skip
    other = init_device_mesh(ranks.device.type, (1, ranks.world))
    raises(
        RuntimeError, "fastact::selu_backward: expected all tensors on the device mesh",
        ops.selu_backward, sharded, ranks.place(x, other, [REPLICATED, Shard(0)]),
    )  # fmt: skip
    raises(RuntimeError, "mixed torch.Tensor and DTensor", ops.selu_backward, sharded, x)
    raises(RuntimeError, "fastact::celu: expected alpha to be", ops.celu, sharded, 0.0)
    support.assert_same_bits(sharded.to_local(), before)


def out_of_another_placement(ranks):
    """The placement of out decides: PyTorch redistributes the inputs to it."""
    x, mesh = numbers(8, 4), ranks.line
    for source, target in ((Shard(0), REPLICATED), (REPLICATED, Shard(1)), (Shard(1), Shard(0))):
        out = ranks.place(x, mesh, [target])
        result = ops.selu(ranks.place(x, mesh, [source]), out=out)
        assert result is out and tuple(out.placements) == (target,)
        ranks.assert_is(out, ops.selu(x))


# ---- rows


def rows(ranks):
    """Shards that keep rows whole stay as they are; a tensor cut along the rows is gathered. The
    gradients of weight and bias add the sums of all ranks."""
    x, g = numbers(8, 6), numbers(8, 6)
    vectors = numbers(6), numbers(6)
    calls = {
        "softmax": lambda x: ops.softmax(x, 1),
        "log_softmax": lambda x: ops.log_softmax(x, 1),
        "logsumexp": lambda x: ops.logsumexp(x, 1, True).expand(8, 6),
        "sum": lambda x: ops.sum(x, 1, True).expand(8, 6),
        "var_mean": lambda x: sum(ops.var_mean(x, 1, keepdim=True)).expand(8, 6),
        "rms_norm": lambda x, w: ops.rms_norm(x, (6,), w),
        "layer_norm": lambda x, w, b: ops.layer_norm(x, (6,), w, b),
        "group_norm": lambda x, w, b: ops.group_norm(x, 3, w, b),
    }
    for name, call in calls.items():
        given = vectors[: call.__code__.co_argcount - 1]
        plain = [t.clone().requires_grad_() for t in (x, *given)]
        expected = call(*plain)
        expected.backward(g)
        for placement in (Shard(0), Shard(1), REPLICATED):
            if name == "group_norm" and placement == Shard(1):
                continue  # in torch 2.11, DTensor cannot split channels that are sharded
            leaves = [ranks.place(x, ranks.line, [placement]).requires_grad_()]
            leaves += [ranks.place(v, ranks.line, [REPLICATED]).requires_grad_() for v in given]
            result, count = counted(call, *leaves)
            ranks.assert_is(result.detach(), expected.detach())
            assert (count == 0) == (placement != Shard(1)), (name, placement, count)
            result.backward(ranks.place(g, ranks.line, [placement]))
            gradient = leaves[0].grad
            if placement == Shard(1) and name in ("sum", "var_mean"):
                # The ranks have parts of the sum that expand() adds in the backward pass. When
                # they are added depends on the version of torch.
                torch.testing.assert_close(gradient.full_tensor(), plain[0].grad.to(ranks.device))
            else:
                ranks.assert_is(gradient, plain[0].grad)
            for ours, leaf in zip(leaves[1:], plain[1:]):
                torch.testing.assert_close(ours.grad.full_tensor(), leaf.grad.to(ranks.device))


def cross_entropy(ranks):
    """The losses of rows stay where the rows are. A vocabulary that is cut is gathered."""
    x, target, g = numbers(8, 6), torch.arange(8) % 6, numbers(8)
    leaf = x.clone().requires_grad_()
    expected = ops.cross_entropy(leaf, target, reduction=0)
    expected.backward(g)
    for placement in (Shard(0), Shard(1), REPLICATED):
        rows = [REPLICATED if placement == Shard(1) else placement]
        logits = ranks.place(x, ranks.line, [placement]).requires_grad_()
        result = ops.cross_entropy(logits, ranks.place(target, ranks.line, rows), reduction=0)
        ranks.assert_is(result.detach(), expected.detach())
        result.backward(ranks.place(g, ranks.line, rows))
        ranks.assert_is(logits.grad, leaf.grad)


# ---- other ways to call


def inference(ranks):
    x, w = numbers(8, 4), numbers(4)
    with torch.inference_mode():
        placed = [ranks.place(x, ranks.line, [Shard(0)]), ranks.place(w, ranks.line, [REPLICATED])]
        ranks.assert_is(ops.gelu(placed[0]), ops.gelu(x))
        ranks.assert_is(ops.prelu(*placed), ops.prelu(x, w))


def compiled(ranks):
    """Compiles with dynamic sizes."""
    function = torch.compile(lambda x: ops.mish(x) * 2, backend="aot_eager", fullgraph=True)
    for rows in (8, 12):
        x = numbers(rows, 4)
        leaf = ranks.place(x, ranks.line, [Shard(0)]).requires_grad_()
        y = function(leaf)
        ranks.assert_is(y.detach(), ops.mish(x) * 2)
        y.sum().backward()
        ranks.assert_is(leaf.grad, ops.mish_backward(torch.full_like(x, 2), x))


def in_a_graph(ranks):
    """Records a CUDA graph, and replays it with other numbers."""
    x = ranks.place(numbers(8, 4), ranks.line, [Shard(0)])
    ops.gelu(x)  # the first call on a device checks its arithmetic
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ops.gelu(x)
    again = numbers(8, 4)
    x.to_local().copy_(ranks.place(again, ranks.line, [Shard(0)]).to_local())
    graph.replay()
    ranks.assert_is(y, ops.gelu(again))


# ---- forms with several tensors: operators defined here, with the schemas of such forms


def scaled(self, scale=None, bias=None, residual=None, dim=-1):
    """Computes selu(self * scale + bias + residual) with scale and bias along dim."""
    shape = [1] * self.dim()
    shape[dim] = self.shape[dim]
    for factor, add in ((scale, False), (bias, True), (residual, True)):
        if factor is None:
            continue
        factor = factor.reshape(shape) if factor.dim() == 1 else factor
        self = self + factor if add else self * factor
    return ops.selu(self)


def packed(self, gate_first=True):
    gate, value = self.chunk(2, -1) if gate_first else self.chunk(2, -1)[::-1]
    return ops.silu(gate) * value


def packed_backward(grad_output, self):
    gate, value = self.chunk(2, -1)
    return torch.cat(
        [ops.silu_backward(grad_output * value, gate), grad_output * ops.silu(gate)], -1
    )


def gradients_of_sum(grad_output, self, bias):
    """Returns the gradients of selu(self + bias): of self, and the summed one of bias."""
    both = ops.selu_backward(grad_output, self + bias)
    return both, both.sum_to_size(bias.shape)


FORMS = {
    "test_scaled(Tensor self, Tensor? scale=None, Tensor? bias=None, Tensor? residual=None, "
    "int dim=-1) -> Tensor": scaled,
    "test_packed(Tensor self, bool gate_first=True) -> Tensor": packed,
    "test_packed_backward(Tensor grad_output, Tensor self) -> Tensor": packed_backward,
    "test_sums(Tensor grad_output, Tensor self, Tensor bias) -> (Tensor, Tensor)": gradients_of_sum,
}


@functools.cache
def library():
    """Returns the library. It is kept alive, because its operators disappear with it."""
    made = torch.library.Library("fastact", "FRAGMENT")
    for schema, function in FORMS.items():
        made.define(schema)
        made.impl(schema.split("(")[0], function, "CompositeExplicitAutograd")
    return made


def reductions(mesh, placements):
    """Returns the number of reductions of partial sums: none along a mesh dimension of size 1."""
    return sum(isinstance(p, Partial) and mesh.size(i) > 1 for i, p in enumerate(placements))


def forms(ranks, mesh, placements):
    where = (mesh, placements)
    size = {-1: 5, 1: 5, 0: 8}
    for dim in size:
        x = numbers(8, 5, 5) if dim == 1 else numbers(8, 5)
        vector, same = numbers(size[dim]), numbers(*x.shape)
        vector_placed = ranks.place(vector, mesh, [REPLICATED] * mesh.ndim)
        for names in (("scale",), ("bias",), ("scale", "bias", "residual"), ("residual",), ()):
            given = {n: same if n == "residual" else vector for n in names}
            there = {
                n: ranks.place(same, *where) if n == "residual" else vector_placed for n in names
            }
            result, count = counted(ops.test_scaled, ranks.place(x, *where), **there, dim=dim)
            ranks.assert_is(result, scaled(x, **given, dim=dim))
            sums = reductions(mesh, placements) * (1 + ("residual" in names))
            assert count == sums, (dim, names, count, sums)


def packed_forms(ranks, mesh, placements):
    where = (mesh, placements)
    x, g = numbers(8, 3, 12), numbers(8, 3, 6)
    split = any(
        isinstance(p, Shard) and p.dim == 2 and mesh.size(i) > 1 for i, p in enumerate(placements)
    )
    sums = reductions(mesh, placements)
    result, count = counted(ops.test_packed, ranks.place(x, *where))
    ranks.assert_is(result, packed(x))
    assert count > sums if split else count == sums, count
    result, count = counted(
        ops.test_packed_backward, ranks.place(g, *where), ranks.place(x, *where)
    )
    ranks.assert_is(result, packed_backward(g, x))
    assert count > sums if split else count == 2 * sums, count


def sums(ranks, mesh, placements, bias_shape):
    g, x, bias = numbers(8, 4), numbers(8, 4).abs() + 4, numbers(*bias_shape)  # selu' is constant
    result, count = counted(
        ops.test_sums, ranks.place(g.sign(), mesh, placements), ranks.place(x, mesh, placements),
        ranks.place(bias, mesh, [REPLICATED] * mesh.ndim),
    )  # fmt: skip
    both, summed = gradients_of_sum(g.sign(), x, bias)
    assert count == 0
    ranks.assert_is(result[0], both)
    for p, of_x in zip(result[1].placements, placements):
        broadcast = bias_shape != (8, 4) and (of_x == Shard(0) or bias_shape == ())
        cut = isinstance(of_x, Shard) and broadcast
        assert isinstance(p, Partial) == cut, result[1].placements
    torch.testing.assert_close(result[1].full_tensor().cpu(), summed)


# ---- all of them


def run(ranks):
    # Activations of a kind have the same rules, so the first of each kind runs with every placement
    # on every mesh, and the others with two placements on one mesh.
    kinds = {act.name for act in REPRESENTATIVES} | {"silu", "gelu"}
    for act in OPERATORS:
        is_first = act.name in kinds
        # Every shape for one of them, and a three-dimensional one for the others.
        whole_table = act.name == "silu"
        dtype = torch.bfloat16 if act.name == "tanh" else torch.float32
        for size, mesh in ranks.meshes.items():
            if mesh is not ranks.line and not is_first:
                continue
            for shape in SHAPES if whole_table else SHAPES[1:2]:
                for placements in placements_of(mesh, len(shape)):
                    if mesh.ndim == 2 and not whole_table and placements not in ON_GRIDS:
                        continue
                    if not is_first and placements not in ((Shard(0),), (SUM,)):
                        continue
                    name = f"{act.name} {shape} {text(placements)} on {size}"
                    ranks.check(name, every_form, ranks, act, mesh, shape, dtype, placements)
        for placements in ((Shard(0),), (Shard(1),), (REPLICATED,), (SUM,)):
            if act.name != "gelu" and placements != (Shard(0),):
                continue
            name = f"{act.name}, autograd, {text(placements)}"
            where = (ranks.line, torch.float64, placements)
            ranks.check(name, through_autograd, ranks, act, *where)
    for size, mesh in ranks.meshes.items():
        of_two = placements_of(mesh, 2)
        paired = of_two if mesh.ndim == 1 else PAIRED_ON_GRIDS
        for pair in itertools.product(paired, repeat=2):
            for shape in ((8, 4), (3, 5)) if mesh.ndim == 1 else ((8, 4),):
                name = f"mixed {shape} {' '.join(map(text, pair))} on {size}"
                ranks.check(name, mixed, ranks, mesh, shape, pair)
        whole = (REPLICATED,) * mesh.ndim
        for placements in placements_of(mesh, 3):
            name = f"{text(placements)} on {size}"
            partial = SUM in placements
            ranks.check(f"packed {name}", packed_forms, ranks, mesh, placements)
            for of_all in (True, False):
                if not partial:
                    ranks.check(f"prelu {name}", prelu, ranks, mesh, placements, whole, of_all)
            if not partial:
                ranks.check(f"prelu's {name}", prelu_backwards, ranks, mesh, placements)
        for placements in of_two:
            name = f"{text(placements)} on {size}"
            ranks.check(f"forms {name}", forms, ranks, mesh, placements)
            if SUM not in placements:
                for shape in ((4,), (1, 4), (), (8, 4)):
                    ranks.check(f"sums {shape} {name}", sums, ranks, mesh, placements, shape)
    shard_of_weight = (ranks.line, (Shard(1),), (Shard(0),), False)
    ranks.check("prelu, a shard of its weight", prelu, ranks, *shard_of_weight)
    if ranks.device.type == "cuda":
        ranks.check("in a CUDA graph", in_a_graph, ranks)
    for function in (in_strides, refused, out_of_another_placement, rows, inference, compiled):
        ranks.check(function.__name__, function, ranks)


def main(rank, backend, world, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    # Limits the time for which a rank waits for a failed one.
    dist.init_process_group(backend, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    torch.manual_seed(0)
    from fastact._distributed import operators, sharding

    rules = len(operators.overloads())  # before the forms of this file
    library()
    for schema in FORMS:
        sharding.register_operator(getattr(ops, schema.split("(")[0]).default)
    ranks = Ranks(rank, world, device)
    run(ranks)
    found = {
        "passed": ranks.passed,
        "failures": ranks.failures,
        "status": fastact._distributed.status,
        "rules": rules,
    }
    (folder / f"{rank}.json").write_text(json.dumps(found))
    if rank == 0:
        (folder / "table.json").write_text(json.dumps(ranks.table))
    dist.destroy_process_group()
    # A normal exit may abort in gloo's threads after the work is done (with torch 2.11 and
    # torch.relu alone: 3 of 8 runs).
    os._exit(0)


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    backend, world, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    torch.multiprocessing.spawn(main, (backend, world, port, folder), nprocs=world)

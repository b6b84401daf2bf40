"""Lowerings of FastAct's operators, which inline one element of a result into Inductor's kernels.

An operator is called instead if it has nothing to fuse with, or if inlining would change bits.
"""

import functools
import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from operator import getitem
from pathlib import Path

import torch
from torch._functorch import partitioners
from torch._inductor import codecache, config, lowering
from torch._inductor.virtualized import V
from torch.utils._pytree import tree_leaves

from fastact._aten import DTYPES
from fastact._build import ACTIVATIONS, VERSION
from fastact._changes import Change, undone_on_error
from fastact._inductor import assembly, composed, fused, vectors
from fastact._inductor.operators import Call, Operator, operators


def _cpu_element(call: Call, dtype: torch.dtype, device: torch.device) -> Callable | None:
    # As on a GPU. If no formula can be inlined, composed operations are the fallback.
    own = composed.element(call, dtype, device)
    return (own if call.is_rounded else None) or vectors.element(call, dtype, device) or own


def _gpu_element(call: Call, dtype: torch.dtype, device: torch.device) -> Callable | None:
    # PTX is shorter for a result that is not rounded: relu is one instruction.
    own = composed.element(call, dtype, device) if call.is_rounded else None
    return own or assembly.element(call, dtype, device)


# For each type of device: element(call, dtype, device), which returns a function of Inductor's
# values or None.
BACKENDS = {"cuda": _gpu_element, "cpu": _cpu_element}

_aten = torch.ops.aten
# The operators that Inductor fuses with elementwise operators, besides those tagged pointwise.
_FUSIBLE = {
    _aten.amax, _aten.amin, _aten.any, _aten.all, _aten.argmax, _aten.argmin, _aten.cat,
    _aten.clone, _aten.constant_pad_nd, _aten.copy_, _aten.mean, _aten.native_layer_norm,
    _aten.prod, _aten.sum, _aten.var, _aten.var_mean, _aten._to_copy,
    torch.ops.prims.convert_element_type,
}  # fmt: skip
# Operators whose results are elements of their operands, possibly negated. Rounding may come before
# or after them.
_SELECTIONS = {
    _aten.abs, _aten.amax, _aten.amin, _aten.cat, _aten.clamp, _aten.clamp_max, _aten.clamp_min,
    _aten.clone, _aten.constant_pad_nd, _aten.masked_fill, _aten.maximum, _aten.minimum, _aten.neg,
    _aten.relu, _aten.where,
}  # fmt: skip

# The operators that have a lowering here.
_operators: dict[torch._ops.OpOverload, Operator] = {}

# The size of a result, in bytes, from which FastAct's own kernel is faster on a CPU than an
# Inductor loop that contains only this operator. Below it, the call costs more: 5 us of 30 with
# 2^12 elements. Time called / time inlined, for eight activations (five for 2^15, 2^17 and 2^21),
# one thread of a Xeon (model 207), AVX-512 and AVX2: float32 1.12 to 1.20 (2^12), .94 to 1.08
# (2^21), .57 to 1.16, mean .88 (2^22); bfloat16, which the operator converts faster, .96 to 1.15
# (2^15), .91 to 1.13 (2^16), .73 to 1.08 (2^17). From 32 MiB on, glibc gets memory from the system
# for each result.
_CALLED_FROM = 16 << 20
_CALLED_FROM_16_BITS = 128 << 10
_FUSED_CALLED_FROM = 32 << 20


def _packet(node: torch.fx.Node) -> object:
    """Returns the operator that a node calls, without the overload."""
    return getattr(node.target, "overloadpacket", node.target)


def _is_view(node: torch.fx.Node) -> bool:
    """Returns whether a node has no kernel of its own."""
    views = (_aten._unsafe_view, getitem)
    return getattr(node.target, "is_view", False) or _packet(node) in views


def _neighbours(
    node: torch.fx.Node, step: Callable, beyond: Collection[str] = ()
) -> Iterator[torch.fx.Node]:
    """Yields the node's neighbours on one side. Looks through views and the operators in `beyond`.
    `step` returns a node's direct neighbours on that side."""
    found = list(step(node))
    for neighbour in found:  # which grows
        if _is_view(neighbour) or _packet(neighbour) in beyond:
            found += [each for each in step(neighbour) if each not in found]
        else:
            yield neighbour


def _is_written(node: torch.fx.Node) -> bool:
    """Returns whether a node is part of a kernel that Inductor generates."""
    return _packet(node) in _FUSIBLE or torch.Tag.pointwise in getattr(node.target, "tags", ())


def _ends_in_a_sum(node: torch.fx.Node) -> bool:
    """Returns whether a node is a convolution whose bias Inductor adds itself, as on a GPU."""
    if _packet(node) is not _aten.convolution or len(node.args) < 3 or node.args[2] is None:
        return False
    value = node.meta.get("val")
    return value is not None and value.device.type != "cpu"


def is_alone(node: torch.fx.Node) -> bool:
    """Returns whether Inductor has nothing to fuse the node with."""
    before = _neighbours(node, lambda n: n.all_input_nodes)
    after = _neighbours(node, lambda n: n.users)
    if any(_is_written(n) or _ends_in_a_sum(n) for n in before):
        return False
    return not any(map(_is_written, after))


def _computes(node: torch.fx.Node) -> bool:
    """Returns whether a node computes in the same kernel as its fused operand."""
    if not _is_written(node) or _packet(node) is _aten.copy_:
        return False
    operator = _operators.get(node.target)
    if operator is None:
        is_lowered = node.target in lowering.lowerings and node.target not in lowering.fallbacks
        return is_lowered or _packet(node) in _FUSIBLE
    bound = operator.bind(node.args, node.kwargs)
    return bound is not None and _element(operator, *bound, _kind_of_node) is not None


def is_rounded(node: torch.fx.Node) -> bool:
    """Returns whether a node's 16-bit result is rounded before it is used: because of Inductor's
    setting, or because the result, or a selection from it, is a result of the graph or an operand
    of another kernel."""
    return config.emulate_precision_casts or not all(
        map(_computes, _neighbours(node, lambda n: n.users, _SELECTIONS))
    )


def _is_faster_alone(operator: Operator, operands: list) -> bool:
    """Returns whether an Inductor kernel with only this operator is faster than FastAct's
    kernel."""
    if operands[0].get_device().type != "cpu":
        return False
    x = lowering.broadcast_tensors(*operands)[0]
    itemsize = x.get_dtype().itemsize
    if operator.is_fused:  # on a CPU, its own loops pass z through the cache
        end = _FUSED_CALLED_FROM
    else:
        end = _CALLED_FROM_16_BITS if itemsize == 2 else _CALLED_FROM
    return V.graph.sizevars.statically_known_lt(math.prod(x.get_size()) * itemsize, end)


def _kind_of_node(node: torch.fx.Node) -> tuple[torch.dtype, torch.device]:
    return node.meta["val"].dtype, node.meta["val"].device


def _element(operator: Operator, arguments: list, call: Call, kind: Callable) -> Callable | None:
    """Returns a function of Inductor's values, or None if the operator is called. `kind` returns an
    operand's type and device."""
    kinds = [kind(x) for x in arguments if x is not None]
    dtype, device = kinds[0]
    backend = BACKENDS.get(device.type)
    # A fused operator with 16-bit tensors accepts float32 vectors.
    dtypes = (dtype, torch.float32) if operator.is_fused and dtype.itemsize == 2 else (dtype,)
    if (
        backend is None
        or dtype not in DTYPES
        or any(own not in dtypes or place != device for own, place in kinds)
    ):
        return None
    if operator.is_fused:
        are_there = tuple(x is not None for x in arguments)
        return fused.element(backend, call, are_there, dtype, device)
    return backend(call, dtype, device)


def _lower(operator: Operator, call_operator, *args, **kwargs):
    bound = operator.bind(args, kwargs)
    if bound is None:
        return call_operator(*args, **kwargs)
    arguments, call = bound
    operands = [x for x in arguments if x is not None]
    if is_alone(V.graph.current_node) and not _is_faster_alone(operator, operands):
        return call_operator(*args, **kwargs)
    if not operator.is_fused:
        call = replace(call, is_rounded=is_rounded(V.graph.current_node))
    element = _element(operator, arguments, call, lambda x: (x.get_dtype(), x.get_device()))
    if element is None:
        return call_operator(*args, **kwargs)
    # make_pointwise() rounds 16-bit operands and results where Inductor does for PyTorch's
    # operators.
    return lowering.make_pointwise(element)(*lowering.broadcast_tensors(*operands))


@functools.cache
def _sources() -> str:
    """Returns a digest of this package's code and of its assembly."""
    folder = Path(__file__).parent
    files = sorted([*folder.glob("*.py"), *folder.glob("*.json")])
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def digest(devices: Iterable[int] = ()) -> str:
    """Returns a digest of everything that determines the code inlined for these GPUs. Inductor's
    caches must not return a kernel with the formulas of another build."""
    parts = (VERSION, _sources(), assembly.arithmetic_of(devices), vectors.file_digest())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _gpus(graph: torch.fx.GraphModule | None, inputs: Iterable) -> set[int]:
    """Returns the GPUs that a graph is compiled for: those of its tensors, not the current GPU."""
    found = [*inputs]
    for module in graph.modules() if graph is not None else ():
        if isinstance(module, torch.fx.GraphModule):
            # Metadata before and after AOTAutograd: Inductor makes keys for both graphs.
            found += (node.meta.get("example_value") for node in module.graph.nodes)
            found += (node.meta.get("val") for node in module.graph.nodes)
    devices = {x.device for x in tree_leaves(found) if isinstance(x, torch.Tensor)}
    return {assembly.index_of(device) for device in devices if device.type == "cuda"}


def _cache_keys() -> Change:
    """Returns the change that adds the digest to Inductor's cache keys."""
    details = codecache.FxGraphHashDetails
    initialize = details.__init__

    @functools.wraps(initialize)
    def with_digest(self, gm, example_inputs, *args, **kwargs):
        initialize(self, gm, example_inputs, *args, **kwargs)
        self.fastact = digest(_gpus(gm, example_inputs))

    return details, "__init__", with_digest


def _partition() -> Change:
    """Returns the change that tells the partitioner of training graphs that FastAct's operators are
    elementwise, so that it may recompute them. Otherwise it would save their results, and also
    their operands, for which a view may be copied."""
    packets = [overload.overloadpacket for overload in _operators]
    theirs = partitioners.pointwise_ops
    return partitioners, "pointwise_ops", lambda: theirs() + packets


def register() -> str:
    """Registers the lowerings with Inductor, completely or not at all. Returns the status text."""
    _operators.update((operator.overload, operator) for operator in operators(list(ACTIVATIONS)))
    changed = [*vectors.changes(), _cache_keys()]
    places = []
    if assembly.is_built():
        places.append("GPUs of compute capability 8.0 and newer")
    if vectors.is_built():
        places.append("CPUs with AVX2")
    if places:
        changed.append(_partition())
    with undone_on_error() as changes:
        changes.will_change(lowering.lowerings)
        for overload, operator in _operators.items():
            call_operator = lowering.fallback_handler(overload, add_to_fallback_set=False)
            lower = functools.partial(_lower, operator, call_operator)
            lowering.register_lowering(overload, type_promotion_kind=None)(lower)
        for change in changed:
            changes.make(change)
    if not places:
        return "calls the operators, because this build contains no code for compilers"
    return f"fuses the operators on {' and '.join(places)}, and calls them elsewhere"

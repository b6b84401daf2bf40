"""override_aten() in compiled code: replaces ATen's operators before Inductor lowers them.

Inductor traces a program with a table of decompositions. While an override is active, the table
contains FastAct's operators for the calls whose kernels the override replaces.
"""

import functools
import math
import threading
from collections.abc import Callable

import torch
from torch._C import DispatchKey
from torch._dynamo.guards import get_verbose_code_parts
from torch._dynamo.source import GlobalStateSource
from torch._guards import TracingContext
from torch._inductor import codecache, compile_fx, decomposition, lowering
from torch._prims_common import suggest_memory_format
from torch.fx.experimental import proxy_tensor

from fastact._aten import DTYPES, OPERATORS, Call, stand_in
from fastact._changes import Change, undone_on_error
from fastact._override import is_overriding

_aten = torch.ops.aten

# is_on: whether an override was active when this thread last began to compile. Cache keys are
# computed after that.
_found = threading.local()


def _match_override(is_on: bool, builder, guard) -> None:
    """Adds Dynamo's guard that an override is active, or that none is."""
    code = [f"fastact._override.is_overriding() is {is_on}"]
    builder.guard_manager.root.add_lambda_guard(
        lambda _: is_overriding() is is_on, get_verbose_code_parts(code, guard), guard.user_stack
    )


# Dynamo distinguishes guards by the identity of these functions.
_GUARDS = {is_on: functools.partial(_match_override, is_on) for is_on in (False, True)}


def _stand_in(overload: torch._ops.OpOverload, args: tuple, kwargs: dict) -> Call | None:
    """Returns the call of FastAct's operator, or None if ATen's operator is used, as in eager
    mode."""
    call = stand_in(overload, args, kwargs)
    return call if call is not None and call.why_unfit(call.tensors) is None else None


def _decompose(overload: torch._ops.OpOverload, theirs: Callable, *args, **kwargs):
    call = _stand_in(overload, args, kwargs)
    if call is None:
        return theirs(*args, **kwargs)
    if overload is _aten.log_sigmoid_forward.default:
        return call(), theirs(*args, **kwargs)[1]  # FastAct's gradient takes no buffer
    return call()


def _decompose_prelu_backward(theirs: Callable, grad_output, self, weight):
    if _stand_in(_aten._prelu_kernel.default, (self, weight), {}) is None:
        return theirs(grad_output, self, weight)
    ops = torch.ops.fastact
    return (
        ops._prelu_backward.default(grad_output, weight, self),
        ops._prelu_weight_backward.default(grad_output, self),
    )


def _is_norm_taken(input, shape, weight, bias, eps) -> bool:
    """Returns true if the kernels take a norm of the input with weight and bias of this shape."""

    def fits(vector):
        # Float32 vectors of 16-bit rows are ATen's, as in eager mode.
        return vector is None or (vector.dtype == input.dtype and vector.shape == shape)

    return input.dtype in DTYPES and fits(weight) and fits(bias) and math.isfinite(eps)


def _normalize(rows, weight, bias, eps):
    """Returns layer_norm along the last dimension, and its statistics."""
    ops, dim = torch.ops.fastact, rows.dim() - 1
    if weight is None:
        weight = rows.new_ones(rows.shape[-1]) if bias is None else torch.ones_like(bias)
    if bias is None:
        return ops._layer_norm_without_bias_with_statistics.default(rows, weight, eps, dim)
    return ops._layer_norm_with_statistics.default(rows, weight, bias, eps, dim)


def _shaped(vector, *shape):
    return None if vector is None else vector.reshape(shape)


def _decompose_layer_norm(theirs: Callable, input, normalized_shape, weight, bias, eps):
    n, rank = math.prod(normalized_shape), len(normalized_shape)
    shape = torch.Size(normalized_shape)
    is_taken = (
        0 < rank <= input.dim()
        and input.shape[-rank:] == shape
        and n != 0
        and _is_norm_taken(input, shape, weight, bias, eps)
    )
    if not is_taken:
        return theirs(input, normalized_shape, weight, bias, eps)
    y, *statistics = _normalize(input.reshape(-1, n), _shaped(weight, n), _shaped(bias, n), eps)
    of_rows = (*input.shape[: input.dim() - rank], *[1] * rank)
    dtype = input.dtype if input.device.type == "cpu" else statistics[0].dtype
    return y.view(input.shape), *(s.to(dtype).view(of_rows) for s in statistics)


def _decompose_group_norm(
    theirs: Callable, input, weight, bias, batch, channels, pixels, groups, eps
):
    is_taken = (
        groups > 0
        and channels % groups == 0
        and input.numel() == batch * channels * pixels
        and input.numel() != 0
        and _is_norm_taken(input, torch.Size((channels,)), weight, bias, eps)
    )
    if not is_taken:
        return theirs(input, weight, bias, batch, channels, pixels, groups, eps)
    of_group = channels // groups
    rows = input.reshape(batch, groups, of_group * pixels)
    vectors = (_shaped(vector, groups, of_group) for vector in (weight, bias))
    y, *statistics = _normalize(rows, *vectors, eps)
    y = y.view(input.shape)
    memory_format = suggest_memory_format(input)
    if input.device.type == "cpu" and memory_format != torch.contiguous_format:
        y = y.clone(memory_format=memory_format)
    return y, *(s.to(input.dtype).view(batch, groups) for s in statistics)


# Operators with several results, whose calls this file converts itself.
_OF_SEVERAL_RESULTS = {
    _aten._prelu_kernel_backward.default: _decompose_prelu_backward,
    _aten.native_layer_norm.default: _decompose_layer_norm,
    _aten.native_group_norm.default: _decompose_group_norm,
}


def _overridden(table: dict) -> dict:
    """Returns Inductor's table with FastAct's operators for the operators that Inductor compiles.
    For other operators, Inductor calls kernels, which an override replaces."""
    ours = {}
    for overload in OPERATORS:
        is_lowered = overload in lowering.lowerings and overload not in lowering.fallbacks
        if overload in table or is_lowered:
            theirs = table.get(overload, lambda *args, **kwargs: NotImplemented)
            ours[overload] = functools.partial(_decompose, overload, theirs)
    for overload, decompose in _OF_SEVERAL_RESULTS.items():
        if overload in table:
            ours[overload] = functools.partial(decompose, table[overload])
    return {**table, **ours}


def select_decomp_table() -> dict:
    """Replaces Inductor's function of this name. Adds FastAct's operators if an override is
    active."""
    _found.is_on = is_on = is_overriding()
    context = TracingContext.try_get()
    if context is not None:  # Dynamo is compiling
        guard = GlobalStateSource().make_guard(_GUARDS[is_on])
        context.guards_context.dynamo_guards.add(guard)
    table = decomposition.select_decomp_table()
    return _overridden(table) if is_on else table


def _above_autograd(overload: torch._ops.OpOverload, theirs: Callable) -> Callable:
    """Returns a Python kernel for the Autograd key, which runs before the table applies. It calls
    FastAct's operator if the current table contains it, otherwise PyTorch's decomposition."""

    def kernel(*args, **kwargs):
        of_thread = getattr(proxy_tensor, "CURRENT_DECOMPOSITION_TABLE", {})  # before torch 2.12
        table = getattr(proxy_tensor.get_proxy_mode(), "decomposition_table", of_thread)
        entry = table.get(overload)
        if isinstance(entry, functools.partial) and entry.func is _decompose:
            call = _stand_in(overload, args, kwargs)
            if call is not None:
                return call()
        return theirs(*args, **kwargs)

    return kernel


def _cache_keys() -> Change:
    """Returns the change that adds the override to the cache keys of Inductor and AOTAutograd."""
    details = codecache.FxGraphHashDetails
    initialize = details.__init__

    @functools.wraps(initialize)
    def with_override(self, *args, **kwargs):
        initialize(self, *args, **kwargs)
        self.fastact_override = getattr(_found, "is_on", False)

    return details, "__init__", with_override


def register() -> None:
    """Replaces Inductor's table and cache keys. If this torch has another interface, raises an
    error and changes nothing."""
    with undone_on_error() as changes:
        if compile_fx.select_decomp_table is not decomposition.select_decomp_table:
            raise RuntimeError("expected compile_fx to have Inductor's own decompositions")
        changes.make(_cache_keys())
        for overload in OPERATORS:
            theirs = overload.py_kernels.get(DispatchKey.Autograd)
            if theirs is not None:
                changes.will_change(overload.py_kernels)
                overload.py_kernels[DispatchKey.Autograd] = _above_autograd(overload, theirs)
                overload._dispatch_cache.clear()
        changes.make((compile_fx, "select_decomp_table", select_decomp_table))

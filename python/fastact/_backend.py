"""The backend "fastact" of torch.compile: TorchDynamo's graphs with FastAct's operators.

The rewritten graph runs as it is, by eager kernels and eager autograd.
"""

from collections.abc import Callable, Mapping

import torch
from torch import fx
from torch.nn import functional as F
from torch.utils import checkpoint

from fastact import _fusion
from fastact._errors import first_line
from fastact._fusion.replay import CHECKPOINT
from fastact._report import Report

_DEFAULTS = {"fuse": True, "rename": True, "report": None}


def fastact_backend(
    module: fx.GraphModule,
    inputs: list,
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Callable:
    """Puts FastAct's operators into a graph of TorchDynamo's; returns what computes it.

    options:
        fuse: whether operators around an activation are fused with it. True by default.
        rename: whether activations by themselves become FastAct's. True by default.
        report: a fastact.Report, to which the graph's changes are added.

    Raises ValueError for another option, and for a mode, as nothing is compiled.
    """
    given = _checked(mode, options)
    report = Report() if given["report"] is None else given["report"]
    _rewrite(module, inputs, report, given["fuse"], given["rename"])
    _restore_eager_calls(module)
    return module.forward


def _checked(mode: str | None, options: Mapping[str, object] | None) -> dict[str, object]:
    if mode not in (None, "default"):
        raise ValueError(f"fastact: expected mode to be None or 'default', but got {mode!r}")
    given = dict(options or {})
    if unknown := given.keys() - _DEFAULTS:
        known = ", ".join(map(repr, _DEFAULTS))
        raise ValueError(f"fastact: expected options from {known}, but got {sorted(unknown)[0]!r}")
    return _DEFAULTS | given


def _rewrite(module: fx.GraphModule, inputs: list, report: Report, *settings: bool) -> None:
    try:
        facts = _fusion.replay(module, inputs)
    except Exception as error:  # whatever a node may raise: the graph stays as it is
        report.leave("graph", f"it cannot be analysed ({first_line(error)})")
    else:
        _fusion.rewrite(facts, report, *settings)


def _checkpoint(body: fx.GraphModule, *args, **kwargs):
    """What eager code calls. Parameters, which Dynamo has made arguments, are not saved by it."""
    if "_checkpoint_context_fn" in body.meta:
        kwargs["context_fn"] = body.meta["_checkpoint_context_fn"]
    parameters = [a if isinstance(a, torch.nn.Parameter) else None for a in args]

    def call(*inputs):
        rest = iter(inputs)
        return body(*(next(rest) if p is None else p for p in parameters))

    inputs = [a for a, p in zip(args, parameters) if p is None]
    return checkpoint.checkpoint(call, *inputs, **(kwargs | {"use_reentrant": False}))


def _attention(
    query, key, value, embed_dim, heads, weight, bias, bias_k, bias_v, add_zero_attn, dropout,
    out_weight, out_bias, training=True, key_padding_mask=None, need_weights=True, attn_mask=None,
    average_attn_weights=True, **others,
):  # fmt: skip
    """torch.nn.functional.multi_head_attention_forward for transposed inputs with the batch first.

    Calls the operator that torch.nn.MultiheadAttention calls in eager mode, under its conditions.
    """
    tensors = (query, weight, bias, out_weight, out_bias)
    is_served = (
        query is key is value
        and not training
        and not add_zero_attn
        and not any(others.values())
        and all(t is None for t in (bias_k, bias_v, key_padding_mask, attn_mask))
        and not any(t is None or t.dtype != query.dtype for t in tensors)
        and query.dim() == 3
        and heads % 2 == 0
        and torch.backends.mha.get_fastpath_enabled()
        and not torch.is_autocast_enabled(query.device.type)
        and not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))
    )
    if not is_served:
        return F.multi_head_attention_forward(
            query, key, value, embed_dim, heads, weight, bias, bias_k, bias_v, add_zero_attn,
            dropout, out_weight, out_bias, training, key_padding_mask, need_weights, attn_mask,
            average_attn_weights=average_attn_weights, **others,
        )  # fmt: skip
    batch_first = query.transpose(0, 1)
    result, weights = torch._native_multi_head_attention(
        batch_first, batch_first, batch_first, embed_dim, heads, weight, bias, out_weight, out_bias,
        None, need_weights, average_attn_weights,
    )  # fmt: skip
    return result.transpose(0, 1), weights


def _restore_eager_calls(module: fx.GraphModule) -> None:
    """Undoes what TorchDynamo changes for compilers: checkpoints, whose recomputing and state of
    random numbers torch's operator leaves to AOTAutograd, and the call of attention."""
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is CHECKPOINT:
            _restore_eager_calls(module.get_submodule(node.args[0].target))
            node.target = _checkpoint
        elif node.target is F.multi_head_attention_forward and _is_transpose(node.args[0]):
            node.target = _attention
    module.recompile()


def _is_transpose(node: fx.Node) -> bool:
    """True if the node swaps the first two dimensions."""
    return node.target == "transpose" and {*node.args[1:]} == {0, 1}

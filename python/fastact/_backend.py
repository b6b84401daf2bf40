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
    if mode not in (None, "default"):
        raise ValueError(f"fastact: expected mode to be None or 'default', but got {mode!r}")
    given = {"fuse": True, "rename": True, "report": None}
    if unknown := (options or {}).keys() - given.keys():
        known = ", ".join(map(repr, given))
        raise ValueError(f"fastact: expected options from {known}, but got {min(unknown)!r}")
    given.update(options or {})
    report = Report() if given["report"] is None else given["report"]
    try:
        facts = _fusion.replay(module, inputs)
    except Exception as error:  # whatever a node may raise: the graph stays as it is
        report.leave("graph", f"it cannot be analysed ({first_line(error)})")
    else:
        _fusion.rewrite(facts, report, given["fuse"], given["rename"])
    _restore_eager_calls(module)
    return module.forward


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


def _is_native(node: fx.Node) -> bool:
    """True if eager mode may compute a call by torch.nn.MultiheadAttention with one operator: the
    batch comes first, and nothing that is constant in the graph forbids it."""
    if node.target is not F.multi_head_attention_forward or len(node.args) != 13:
        return False
    query, key, value, _, heads, weight, bias, *others, _, out_weight, out_bias = node.args
    results = ("need_weights", "average_attn_weights")
    others += [option for name, option in node.kwargs.items() if name not in results]
    return (
        query is key is value
        and query.target == "transpose"
        and {*query.args[1:]} == {0, 1}
        and node.kwargs.get("training") is False
        and all(each is None or each is False for each in others)
        and None not in (weight, bias, out_weight, out_bias)
        and isinstance(heads, int)
        and heads % 2 == 0
    )


def _attention(*args, need_weights=True, average_attn_weights=True, **options):
    """Calls the operator of eager mode, under the conditions that remain for a call."""
    query, _, _, size, heads, weight, bias, *_, out_weight, out_bias = args
    tensors = (query, weight, bias, out_weight, out_bias)
    results = {"need_weights": need_weights, "average_attn_weights": average_attn_weights}
    if (
        any(t.dtype != query.dtype for t in tensors)
        or query.dim() != 3
        or not torch.backends.mha.get_fastpath_enabled()
        or torch.is_autocast_enabled(query.device.type)
        or (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))
    ):
        return F.multi_head_attention_forward(*args, **results, **options)
    x = query.transpose(0, 1)
    result, weights = torch._native_multi_head_attention(
        x, x, x, size, heads, weight, bias, out_weight, out_bias, **results
    )
    return result.transpose(0, 1), weights


def _restore_eager_calls(module: fx.GraphModule) -> None:
    """Undoes what TorchDynamo changes for compilers: checkpoints, whose recomputing and state of
    random numbers torch's operator leaves to AOTAutograd, and the call of attention."""
    for node in module.graph.nodes:
        if node.target is CHECKPOINT:
            _restore_eager_calls(module.get_submodule(node.args[0].target))
            node.target = _checkpoint
        elif _is_native(node):
            node.target = _attention
    module.recompile()

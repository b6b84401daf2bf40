"""The backend "fastact" of torch.compile: puts FastAct's operators into TorchDynamo's graphs.

The rewritten graphs run with eager kernels and eager autograd.
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
    """Puts FastAct's operators into a graph of TorchDynamo, and returns a function that runs it.

    options:
        fuse: whether operators around an activation are fused with it. True by default.
        rename: whether other activations, and softmax, are replaced. True by default.
        report: a fastact.Report, to which the graph's changes are added.

    Raises ValueError for any other option, and for a mode, because nothing is compiled.
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
    except Exception as error:  # any error of a node: the graph does not change
        report.leave("graph", f"it cannot be analysed ({first_line(error)})")
    else:
        _fusion.rewrite(facts, report, given["fuse"], given["rename"])
    _restore_eager_calls(module)
    return module.forward


def _checkpoint(body: fx.GraphModule, *args, **kwargs):
    """Checkpoints like eager code. Dynamo turned parameters into arguments; these are not saved."""
    if "_checkpoint_context_fn" in body.meta:
        kwargs["context_fn"] = body.meta["_checkpoint_context_fn"]
    parameters = [a if isinstance(a, torch.nn.Parameter) else None for a in args]

    def call(*inputs):
        rest = iter(inputs)
        return body(*(next(rest) if p is None else p for p in parameters))

    inputs = [a for a, p in zip(args, parameters) if p is None]
    return checkpoint.checkpoint(call, *inputs, **(kwargs | {"use_reentrant": False}))


def _is_native(node: fx.Node) -> bool:
    """Returns true if eager mode may use one operator for this call of torch.nn.MultiheadAttention:
    the batch comes first, and no constant of the graph rules it out."""
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
    """Calls the operator of eager mode, if the remaining conditions hold for this call."""
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
    """Undoes changes that TorchDynamo makes for compilers: to attention, and to checkpoints, where
    torch's operator leaves recomputation and the state of random numbers to AOTAutograd."""
    for node in module.graph.nodes:
        if node.target is CHECKPOINT:
            _restore_eager_calls(module.get_submodule(node.args[0].target))
            node.target = _checkpoint
        elif _is_native(node):
            node.target = _attention
    module.recompile()

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


def _attention(*args, **options):
    """torch.nn.functional.multi_head_attention_forward, called as by torch.nn.MultiheadAttention,
    for transposed inputs with the batch first. Calls the operator that the module calls in eager
    mode, under its conditions."""
    query, key, value, _, heads, weight, bias, *others, _, out_weight, out_bias = args
    details = {name: options.get(name, True) for name in ("need_weights", "average_attn_weights")}
    others += [value for name, value in options.items() if name not in details]
    tensors = (query, weight, bias, out_weight, out_bias)
    is_served = (
        query is key is value
        and options.get("training") is False
        and all(each is None or each is False for each in others)
        and not any(t is None or t.dtype != query.dtype for t in tensors)
        and query.dim() == 3
        and heads % 2 == 0
        and torch.backends.mha.get_fastpath_enabled()
        and not torch.is_autocast_enabled(query.device.type)
        and not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))
    )
    if not is_served:
        return F.multi_head_attention_forward(*args, **options)
    batch_first = query.transpose(0, 1)
    result, weights = torch._native_multi_head_attention(
        batch_first, batch_first, batch_first, *args[3:7], out_weight, out_bias, None,
        *details.values(),
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
        elif node.target is F.multi_head_attention_forward and len(node.args) == 13:
            query = node.args[0]
            if query.target == "transpose" and {*query.args[1:]} == {0, 1}:
                node.target = _attention
    module.recompile()

"""Scale and shift of batch norms, as nodes of a graph."""

from collections.abc import Sequence

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from fastact._fusion.replay import Facts
from fastact._fusion.sites import norm_tensors


def _vectors(rows: list[list[Tensor | None]], epsilon: float) -> list[tuple[Tensor, ...]]:
    """Scale and shift of each batch norm, in float32 for 16 bits. `rows`: weight, bias, mean and
    variance of each.

    All batch norms in one pass: one for each would take longer than the arithmetic.
    """
    sizes = [len(mean) for _, _, mean, _ in rows]
    columns = zip(
        *(
            (torch.ones_like(m) if w is None else w, torch.zeros_like(m) if b is None else b, m, v)
            for w, b, m, v in rows
        )
    )
    joined = (torch.cat(each) if len(each) > 1 else each[0] for each in columns)
    weight, bias, mean, variance = (t if t.dtype == torch.float64 else t.float() for t in joined)
    scale = weight * torch.rsqrt(variance + epsilon)
    shift = torch.addcmul(bias, mean, scale, value=-1)
    return list(zip(scale.split(sizes), shift.split(sizes)))


def insert_vectors(
    graph: fx.Graph, norms: Sequence[fx.Node], facts: Facts
) -> dict[fx.Node, tuple[fx.Node, fx.Node]]:
    """Computes scale and shift of each batch norm from its tensors as they are in a call, at the
    graph's insertion point; by the batch norm's node."""
    kinds: dict[tuple, dict[fx.Node, list]] = {}
    for norm in norms:
        tensors, epsilon = norm_tensors(norm, facts), facts.call(norm).arguments["eps"]
        mean = facts.tensor(tensors[2])
        kind = mean.device, mean.dtype == torch.float64, epsilon
        kinds.setdefault(kind, {})[norm] = tensors
    found = {}
    for (_, _, epsilon), same in kinds.items():
        nodes = [t for tensors in same.values() for t in tensors if t]

        def call(*given, same=same, epsilon=epsilon):
            values = iter(given)
            rows = [[t and next(values) for t in tensors] for tensors in same.values()]
            return _vectors(rows, epsilon)

        with torch.no_grad():
            traced = make_fx(call)(*map(facts.tensor, nodes))
        inputs = dict(zip(traced.graph.find_nodes(op="placeholder"), nodes))
        found |= zip(same, graph.graph_copy(traced.graph, inputs))
    return found

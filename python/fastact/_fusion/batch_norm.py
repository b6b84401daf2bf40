"""Scale and shift of batch norms, as nodes of a graph."""

from collections.abc import Sequence

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from fastact._fusion.replay import Facts
from fastact._fusion.sites import Norm


def vectors(tensors: list[list[Tensor]], epsilons: list[float]) -> list[tuple[Tensor, ...]]:
    """Scale and shift of each batch norm, in float32 for 16 bits. `tensors`: weights, biases, means
    and variances.

    All batch norms in one pass: one for each would take longer than the arithmetic.
    """
    sizes = [len(mean) for mean in tensors[2]]
    if len(set(epsilons)) > 1:
        *others, variances = tensors
        tensors = [*others, [v + epsilon for v, epsilon in zip(variances, epsilons)]]
        epsilons = [0.0]
    joined = (torch.cat(each) if len(each) > 1 else each[0] for each in tensors)
    weight, bias, mean, variance = (t if t.dtype == torch.float64 else t.float() for t in joined)
    scale = weight * torch.rsqrt(variance + epsilons[0])
    shift = torch.addcmul(bias, mean, scale, value=-1)
    return list(zip(scale.split(sizes), shift.split(sizes)))


def insert_vectors(
    graph: fx.Graph, norms: Sequence[Norm], facts: Facts
) -> dict[fx.Node, tuple[fx.Node, fx.Node]]:
    """Computes scale and shift of each batch norm from its tensors as they are in a call, at the
    graph's insertion point; by the batch norm's node."""
    kinds: dict[tuple, list[Norm]] = {}
    for norm in norms:
        mean = facts.tensor(norm.tensors[2])
        kinds.setdefault((mean.device, mean.dtype == torch.float64), []).append(norm)
    found = {}
    for same in kinds.values():
        nodes = [t for norm in same for t in norm.tensors if t is not None]

        def call(*given, same=same):
            values = iter(given)
            rows = [[t and next(values) for t in norm.tensors] for norm in same]
            for row in rows:  # without weight or bias, as ones and zeros
                row[:2] = [
                    make(row[2]) if t is None else t
                    for t, make in zip(row, (torch.ones_like, torch.zeros_like))
                ]
            return vectors(list(map(list, zip(*rows))), [norm.epsilon for norm in same])

        with torch.no_grad():
            traced = make_fx(call)(*map(facts.tensor, nodes))
        inputs = dict(zip(traced.graph.find_nodes(op="placeholder"), nodes))
        results = graph.graph_copy(traced.graph, inputs)
        found |= {norm.node: pair for norm, pair in zip(same, results)}
    return found

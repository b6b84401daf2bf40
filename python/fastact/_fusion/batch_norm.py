"""Inserts the computation of a batch norm's scale and shift into a graph."""

import operator
from collections.abc import Sequence

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from fastact._fusion.replay import Facts
from fastact._fusion.sites import norm_tensors


def _vectors(rows: list[list[Tensor | None]], epsilon: float) -> list[tuple[Tensor, ...]]:
    """Returns scale and shift of each batch norm, in float32 for 16-bit types. `rows` contains
    weight, bias, mean and variance of each.

    Computes all batch norms in one pass, because separate calls take longer than the arithmetic.
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


class _Insertion(TorchDispatchMode):
    """Adds the operators that are called to a graph.

    Unlike make_fx(), does not set torch.fx's flag, which all threads share in torch 2.11.
    """

    def __init__(self, graph: fx.Graph, nodes: dict[Tensor, fx.Node]):
        super().__init__()
        self.graph, self.nodes = graph, nodes

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, (Tensor, list)):  # a query, such as for the device
            return result
        inputs = tree_map_only(Tensor, self.nodes.__getitem__, (args, kwargs or {}))
        node = self.graph.call_function(func, *inputs)
        node.meta["val"] = result
        if isinstance(result, Tensor):
            self.nodes[result] = node
        else:
            for i, each in enumerate(result):
                self.nodes[each] = self.graph.call_function(operator.getitem, (node, i))
                self.nodes[each].meta["val"] = each
        return result


def insert_vectors(
    graph: fx.Graph, norms: Sequence[fx.Node], facts: Facts
) -> dict[fx.Node, tuple[fx.Node, fx.Node]]:
    """Inserts nodes that compute scale and shift of each batch norm at each call, at the graph's
    insertion point. Returns these nodes by the batch norm's node."""
    kinds: dict[tuple, dict[fx.Node, list]] = {}
    for norm in norms:
        tensors, epsilon = norm_tensors(norm, facts), facts.call(norm).arguments["eps"]
        mean = facts.tensor(tensors[2])
        kind = mean.device, mean.dtype == torch.float64, epsilon
        kinds.setdefault(kind, {})[norm] = tensors
    found = {}
    for (_, _, epsilon), same in kinds.items():
        nodes = {facts.tensor(t): t for tensors in same.values() for t in tensors if t}
        rows = [[t and facts.tensor(t) for t in tensors] for tensors in same.values()]
        with torch.no_grad(), _Insertion(graph, nodes):
            pairs = _vectors(rows, epsilon)
        found |= {norm: tuple(map(nodes.get, pair)) for norm, pair in zip(same, pairs)}
    return found

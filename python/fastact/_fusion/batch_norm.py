"""Scale and shift of batch norms, as nodes of a graph."""

from collections.abc import Sequence
from operator import getitem

import torch
from torch import fx

from fastact._fusion.replay import Facts
from fastact._fusion.sites import Norm

_aten = torch.ops.aten
_HALVES = (torch.bfloat16, torch.float16)
Tensors = tuple[fx.Node | None, ...]


def insert_vectors(
    graph: fx.Graph, norms: Sequence[Norm], facts: Facts
) -> dict[fx.Node, tuple[fx.Node, fx.Node]]:
    """Computes scale and bias of each batch norm from its tensors as they are in a call, in float32
    for 16 bits, at the graph's insertion point; by the batch norm's node.

    All of one kind in ten operations: one for each would take longer than the arithmetic.
    """
    kinds: dict[tuple, list[Norm]] = {}
    for norm in norms:
        mean = facts.tensor(norm.tensors[2])
        kinds.setdefault((mean.device, mean.dtype, _parameter_type(norm, facts)), []).append(norm)
    found = {}
    for (_, dtype, parameter_type), same in kinds.items():
        types = (parameter_type, parameter_type, dtype, dtype)
        found |= _Vectors(graph, same, facts, types).insert()
    return found


def _parameter_type(norm: Norm, facts: Facts) -> torch.dtype:
    given = [facts.tensor(t) for t in norm.tensors[:2] if t is not None]
    return (given or [facts.tensor(norm.tensors[2])])[0].dtype


class _Vectors:
    """Inserts scale and shift of batch norms of one kind."""

    def __init__(self, graph: fx.Graph, norms: list[Norm], facts: Facts, types: tuple):
        self.call, self.norms, self.types = graph.call_function, norms, types
        self.sizes = [facts.tensor(norm.tensors[2]).shape[0] for norm in norms]

    def insert(self) -> dict[fx.Node, tuple[fx.Node, fx.Node]]:
        weight, bias, mean, variance = (self._joined(part) for part in range(4))
        epsilons = [norm.epsilon for norm in self.norms]
        if len(set(epsilons)) == 1:
            stable = self.call(_aten.add.Tensor, (variance, epsilons[0]))
        else:
            each = zip(self.norms, epsilons)
            added = [self.call(_aten.add.Tensor, (self._one(n, 3), e)) for n, e in each]
            stable = self.call(_aten.cat.default, (added,))
        scale = self.call(_aten.mul.Tensor, (weight, self.call(_aten.rsqrt.default, (stable,))))
        shift = self.call(_aten.addcmul.default, (bias, mean, scale), {"value": -1})
        if len(self.norms) == 1:
            return {self.norms[0].node: (scale, shift)}
        both = [self.call(_aten.split_with_sizes.default, (v, self.sizes)) for v in (scale, shift)]
        return {
            norm.node: tuple(self.call(getitem, (vectors, i)) for vectors in both)
            for i, norm in enumerate(self.norms)
        }

    def _joined(self, part: int) -> fx.Node:
        if len(self.norms) == 1:
            return self._one(self.norms[0], part)
        every = [self._one(norm, part, widens=False) for norm in self.norms]
        return self._widened(self.call(_aten.cat.default, (every,)), part)

    def _one(self, norm: Norm, part: int, widens: bool = True) -> fx.Node:
        tensor = norm.tensors[part]
        if tensor is None:  # without weight or bias, as ones and zeros
            make = _aten.zeros_like if part else _aten.ones_like
            tensor = self.call(make.default, (norm.tensors[2],), {"dtype": self.types[part]})
        return self._widened(tensor, part) if widens else tensor

    def _widened(self, vector: fx.Node, part: int) -> fx.Node:
        if self.types[part] not in _HALVES:
            return vector
        return self.call(_aten.to.dtype, (vector, torch.float32))

"""The sharding rules through DTensor's public interface: for a torch whose inner one is another.

It knows no `out=` form, and gathers a tensor that has fewer rows than the mesh has ranks.
"""

import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from fastact._distributed import operators
from fastact._distributed.operators import Call, is_tensor


def _rule(op: torch._ops.OpOverload):
    arguments = op._schema.arguments

    def placements(*args, **kwargs):
        given = dict(zip((a.name for a in arguments), args)) | kwargs
        tensors = {a.name: given.get(a.name) for a in arguments if is_tensor(a)}
        tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        meta = {name: torch.empty(t.shape, device="meta") for name, t in tensors.items()}
        results = op(**{**given, **meta})
        results = [results] if isinstance(results, torch.Tensor) else results
        call = Call(
            [(name, tensor.shape) for name, tensor in tensors.items()],
            [(r.name, result.shape) for r, result in zip(op._schema.returns, results)],
            given.get("dim"),
        )

        def cut(dim):
            own = [call.cut(tensor, dim) for tensor in (*call.results, *call.inputs)]
            placed = [Replicate() if i is None else Shard(i) for i in own]
            placed = [
                Partial() if i is None and n < len(call.results) else p
                for n, (i, p) in enumerate(zip(own, placed))
            ]
            return placed

        whole = [Replicate()] * (len(call.results) + len(call.inputs))
        n = len(call.results)
        return [(p[:n], p[n:]) for p in (whole, *map(cut, call.dims()))]

    return placements


def overloads() -> list[torch._ops.OpOverload]:
    """The overloads that the public interface supports."""
    return [
        op for op in operators.overloads() if not any(a.kwarg_only for a in op._schema.arguments)
    ]


def register_operator(op: torch._ops.OpOverload) -> None:
    """Registers the rule for an operator with DTensor."""
    register_sharding(op)(_rule(op))

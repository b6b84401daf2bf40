"""The sharding rule of every operator, based on DTensor's internal interface.

The public function, torch.distributed.tensor.experimental.register_sharding, does not support
`out=` forms. It also gathers a tensor whose dimension is smaller than the mesh or sharded in
strides; PyTorch's own activations do not communicate then.
"""

import itertools

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy, RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import generate_redistribute_costs
from torch.distributed.tensor.placement_types import Placement, _StridedShard

from fastact._aten import arguments
from fastact._distributed.operators import ROW_OPERATORS, Call

_propagator = DTensor._op_dispatcher.sharding_propagator
# At import, so that the registration fails at once with a torch that lacks them.
_register_op_strategy = _propagator.register_op_strategy
_propagate_tensor_meta = _propagator._propagate_tensor_meta


def _at(placement: Placement, dim: int) -> Placement:
    """Returns a shard of the same kind along another dimension."""
    if isinstance(placement, _StridedShard):
        return _StridedShard(dim, split_factor=placement.split_factor)
    return Shard(dim)


def _is_shard(placement: Placement) -> bool:
    return isinstance(placement, (Shard, _StridedShard))


class _Rule:
    """The placements that a call may have. DTensor chooses the cheapest."""

    def __init__(self, schema: OpSchema):
        self.schema, self.op = schema, schema.op
        given = arguments(self.op, schema.args_schema, schema.kwargs_schema)
        self.tensors = {name: x for name, x in given.items() if isinstance(x, OpStrategy)}
        self.specs = {name: s.strategies[0].output_spec for name, s in self.tensors.items()}
        self.mesh = next(iter(self.tensors.values())).mesh
        for name, strategy in self.tensors.items():
            if strategy.mesh != self.mesh:
                raise self.error(
                    f"expected all tensors on the device mesh {self.mesh}, but got {name} on "
                    f"{strategy.mesh}"
                )
        schemas = self.op._schema.arguments
        written = [a.name for a in schemas if a.alias_info is not None and a.alias_info.is_write]
        #: The argument that is written to: self of an in-place form, or an output.
        self.written = written[0] if written else None
        shapes = [(name, spec.shape) for name, spec in self.specs.items()]
        given_shapes = self.result_shapes()
        #: Whether the call has each result: an output_mask may exclude some.
        self.has_result = [shape is not None for shape in given_shapes]
        results = [shape for shape in given_shapes if shape is not None]
        has_rows = self.op._schema.name in ROW_OPERATORS
        self.call = Call(shapes, results, given.get("dim"), has_rows)
        if self.written is not None and self.specs[self.written].shape != results[0][1]:
            raise self.error(
                f"expected {self.written} to have the result's shape {tuple(results[0][1])}, "
                f"because DTensors are not resized, but got {tuple(self.specs[self.written].shape)}"
            )

    def error(self, text: str) -> RuntimeError:
        return RuntimeError(f"{self.op._schema.name}: {text}")

    def result_shapes(self) -> list[tuple[str, torch.Size] | None]:
        """Returns the names and shapes of the operator's results for fake tensors."""

        def spec(value):
            return value.strategies[0].output_spec if isinstance(value, OpStrategy) else value

        schema = OpSchema(
            self.op,
            tuple(map(spec, self.schema.args_schema)),
            {name: spec(value) for name, value in self.schema.kwargs_schema.items()},
            schema_info=self.schema.schema_info,
        )
        metas = _propagate_tensor_meta(schema)
        metas = [metas] if isinstance(metas, TensorMeta) else metas
        return [
            None if meta is None else (returned.name, meta.shape)
            for returned, meta in zip(self.op._schema.returns, metas)
        ]

    def placement(self, tensor: dict[int, int], cut: Placement, is_result: bool) -> Placement:
        """Returns a tensor's placement if the call is sharded by `cut`, along the call's
        dimension."""
        if not _is_shard(cut):
            return Replicate()
        if (own := self.call.cut(tensor, cut.dim)) is not None:
            return _at(cut, own)
        # A smaller result is a sum over the inputs; each rank computes its part of the sum.
        return Partial() if is_result else Replicate()

    def cuts(self, mesh_dim: int) -> list[Placement]:
        """Returns how the call may be sharded over a dimension of the mesh: not at all, or like an
        input. Partial sums are reduced first, because f(a + b) is not f(a) + f(b)."""
        found: list[Placement] = [Replicate()]
        for tensor, spec in zip(self.call.inputs, self.specs.values()):
            placement = spec.placements[mesh_dim]
            if _is_shard(placement):
                cut = _at(placement, list(tensor)[placement.dim])
                if self.call.size(cut.dim) is not None and cut not in found:
                    found.append(cut)
        return found

    def strategy(self) -> OpStrategy:
        strategies = []
        for cuts in itertools.product(*map(self.cuts, range(self.mesh.ndim))):
            results = [
                DTensorSpec(self.mesh, tuple(self.placement(tensor, cut, True) for cut in cuts))
                for tensor in self.call.results
            ]
            inputs, costs = {}, []
            for tensor, (name, spec) in zip(self.call.inputs, self.specs.items()):
                placements = tuple(self.placement(tensor, cut, False) for cut in cuts)
                inputs[name] = DTensorSpec(self.mesh, placements, tensor_meta=spec.tensor_meta)
                costs.append(generate_redistribute_costs(self.tensors[name], inputs[name]))
            if self.written is not None:
                # It cannot be redistributed, and is the result.
                placements = self.specs[self.written].placements
                target = inputs[self.written].placements
                if placements != target or placements != results[0].placements:
                    continue
            specs = iter(results)
            every = tuple(next(specs) if is_there else None for is_there in self.has_result)
            result = every[0] if len(every) == 1 else every
            strategies.append(OpSpec(result, [*inputs.values()], costs))
        if not strategies:
            raise self.error(
                f"expected {self.written}, which is written to, to be replicated or a shard of a "
                f"dimension that can be sharded, but got {self.specs[self.written].placements}"
            )
        return OpStrategy(strategies)


def register_operator(op: torch._ops.OpOverload) -> None:
    """Registers the rule of an operator, and the other arguments on which the rule depends:
    presence of optional tensors, `dim`, and outputs."""
    arguments = op._schema.arguments
    kinds = [type(argument.type) for argument in arguments]
    first = next((i for i, k in enumerate(kinds) if k in (torch.OptionalType, torch.IntType)), 100)
    outputs = [argument.name for argument in arguments if argument.kwarg_only]
    info = RuntimeSchemaInfo(first, outputs or None)
    _register_op_strategy(op, lambda schema: _Rule(schema).strategy(), info)

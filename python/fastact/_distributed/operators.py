"""Relates the dimensions of the tensors in a call, for DTensor.

All operators compute each element of a result from one element of each input, with four
exceptions. Three are visible in the shapes: an input that is broadcast; a packed input, whose last
dimension is twice the result's; and a result that is summed over broadcast dimensions, such as a
bias's gradient. The fourth is the dimension along which the rows of a row operator lie. So a
dimension can be sharded if it has the same size in all tensors that have it, and no rows lie along
it.
"""

from collections.abc import Sequence

import torch
from torch._library.utils import is_tensor_like_type, lookup_op

# Vectors along the dimension that the argument `dim` names, and their gradients.
_ALONG_DIM = ("scale", "bias", "grad_scale", "grad_bias")

# The operators whose `dim` is the dimension of the rows.
ROW_OPERATORS = {
    f"fastact::{name}"
    for name in (
        *("_softmax", "_log_softmax", "softmax_backward", "log_softmax_backward"),
        *("_logsumexp", "_logsumexp_backward", "_cross_entropy", "_cross_entropy_backward"),
        *("_sum", "_mean", "_var", "_var_mean"),
        *("_rms_norm", "_layer_norm", "_layer_norm_without_bias"),
        *("_layer_norm_with_statistics", "_layer_norm_without_bias_with_statistics"),
        *("_rms_norm_backward", "_layer_norm_backward"),
        *("_rms_norm_gradients", "_layer_norm_gradients"),
        *("_add_rms_norm", "_add_layer_norm", "_add_layer_norm_without_bias"),
    )
}

# The dispatch keys of operators that call other operators.
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")


def overloads() -> list[torch._ops.OpOverload]:
    """Returns every overload of the namespace that computes tensors from tensors by its own kernel.

    Other operators call these, and need no rules. Operators that draw random numbers, or compute
    them from a seed and an element's index in the local tensor, have no rules.
    """
    found = []
    names = torch._C._dispatch_get_all_op_names()
    for name in sorted(name for name in names if name.startswith("fastact::")):
        op = lookup_op(name)
        arguments, types = op._schema.arguments, [r.type for r in op._schema.returns]
        if (
            types
            and all(isinstance(kind, torch.TensorType) for kind in types)
            and any(is_tensor_like_type(argument.type) for argument in arguments)
            and torch.Tag.nondeterministic_seeded not in op.tags
            and all(argument.name != "seed" for argument in arguments)
            and not any(map(op.has_kernel_for_dispatch_key, _COMPOSITE))
        ):
            found.append(op)
    return found


class Call:
    """The inputs and results of a call, and the dimensions that can be sharded.

    inputs, results: names and shapes, in the schema's order. dim: the argument of that name.
    has_rows: whether rows lie along `dim`.

    Each tensor is a map from the call's dimensions, counted from the last (-1, -2 and so on), to
    the tensor's sizes.
    """

    def __init__(
        self,
        inputs: Sequence[tuple[str, Sequence[int]]],
        results: Sequence[tuple[str, Sequence[int]]],
        dim: int | None = None,
        has_rows: bool = False,
    ):
        if dim is not None and dim >= 0:
            dim -= len(dict(inputs).get("self", results[0][1]))

        def sizes(name: str, shape: Sequence[int]) -> dict[int, int]:
            """Maps the shape like PyTorch's broadcast, from the last dimension on, or along
            `dim`."""
            is_along = dim is not None and len(shape) == 1 and name in _ALONG_DIM
            return dict(zip((dim,) if is_along else range(-len(shape), 0), shape))

        self.row_dim = dim if has_rows else None
        self.inputs = [sizes(*each) for each in inputs]
        self.results = [sizes(*each) for each in results]

    def size(self, dim: int) -> int | None:
        """Returns the size of a dimension of the call, or None if it cannot be sharded."""
        if dim == self.row_dim:
            return None
        found = 1
        for tensor in (*self.inputs, *self.results):
            size = tensor.get(dim, 1)
            if size != 1 and found != 1 and size != found:
                return None
            found = size if found == 1 else found
        return found

    def dims(self) -> list[int]:
        """Returns the dimensions that can be sharded."""
        every = {dim for tensor in (*self.inputs, *self.results) for dim in tensor}
        return [dim for dim in sorted(every) if self.size(dim) is not None]

    def cut(self, tensor: dict[int, int], dim: int) -> int | None:
        """Returns the tensor's dimension for a dimension of the call, or None if it is
        broadcast."""
        return list(tensor).index(dim) if tensor.get(dim) == self.size(dim) else None

"""Training: what a backward graph may compute again, in place of a saved tensor.

torch.compile's partitioner decides by lists of operators which are cheap to compute again, and
which are fused with their neighbours. An operator in neither is kept apart: its result is saved,
and so is its operand in the form in which the operator takes it, for which a view may be copied.
"""

import dataclasses
from collections.abc import Iterable

import torch
from torch._functorch import partitioners

from fastact._changes import Change


def change(overloads: Iterable[torch._ops.OpOverload]) -> Change:
    """The function that gives the partitioner its lists, with these operators beside PyTorch's own
    elementwise ones. Raises an error if this torch's lists have another form."""
    packets = [overload.overloadpacket for overload in overloads]
    theirs = partitioners.get_default_op_list

    def with_ours():
        found = theirs()
        return dataclasses.replace(
            found,
            fusible_ops=found.fusible_ops.union(packets),
            recomputable_ops=found.recomputable_ops.union(packets),
        )

    with_ours()
    return partitioners, "get_default_op_list", with_ours

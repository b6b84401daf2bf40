"""Puts FastAct's operators into a graph: renames activations, and fuses the operations around them.

The graph is a torch.fx.GraphModule of any level: Python functions and methods, as TorchDynamo
captures them, or ATen's operators.

    facts = replay(module, inputs)  # what each node computes, reads and writes
    rewrite(facts, report)          # changes the graph, and reports what it did
"""

from fastact._fusion.replay import replay
from fastact._fusion.rewrite import rewrite

__all__ = ["replay", "rewrite"]

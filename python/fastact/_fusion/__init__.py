"""Puts FastAct's operators into a graph: renames activations, and fuses the operations around them.

The graph is a torch.fx.GraphModule of any level: Python functions and methods, as TorchDynamo
captures them, or ATen's operators. `rewrite` is all that a caller needs:

    facts = replay(module, inputs, mode)     # what each node computes, reads and writes
    notes = rewrite(facts)                   # changes the graph, and says what it did
"""

from fastact._fusion.replay import Facts, replay
from fastact._fusion.rewrite import rewrite
from fastact._report import Notes, Report

__all__ = ["Facts", "Notes", "Report", "replay", "rewrite"]

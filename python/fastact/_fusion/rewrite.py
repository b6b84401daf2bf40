"""Rewrites a graph, based on the facts that replay() found."""

from torch import fx

from fastact._fusion import sites
from fastact._fusion.batch_norm import insert_vectors
from fastact._fusion.hazards import why_unsafe
from fastact._fusion.replay import INPUTS, Facts
from fastact._fusion.sites import Site
from fastact._report import Report, place

# Maps the node of a batch norm to its scale and bias.
_Vectors = dict[fx.Node, tuple[fx.Node, fx.Node]]


def rewrite(facts: Facts, report: Report, fuses: bool = True, renames: bool = True) -> None:
    """Puts FastAct's operators into a graph and into the graphs that it calls, and reports where.

    Values, writes and the order of random numbers do not change, except that alpha dropout of SELU
    drops different elements. `facts` is out of date afterwards.
    """
    graph = facts.module.graph
    chosen = _choose(facts, report, fuses, renames)
    vectors = _insert_vectors(chosen, facts)
    for site in chosen:
        if site.norm and site.norm not in vectors:
            with graph.inserting_before(site.last):
                vectors |= insert_vectors(graph, [site.norm], facts)
        # The node stays, because other nodes read it and an ExportedProgram names it.
        site.last.op, site.last.target = "call_function", site.operator
        site.last.args, site.last.kwargs = site.arguments(vectors.get(site.norm), facts)
    for site in chosen:
        for node in reversed(site.nodes[:-1]):
            graph.erase_node(node)
    graph.lint()
    facts.module.recompile()
    for body in facts.bodies:
        rewrite(body, report, fuses, renames)


def _choose(facts: Facts, report: Report, fuses: bool, renames: bool) -> list[Site]:
    """Returns the best sites that do not overlap, in the graph's order. Reports these sites, and
    why other activations are left unchanged."""
    chosen: list[Site] = []
    taken: set[fx.Node] = set()
    left: dict[fx.Node, str] = {}
    unfused: dict[fx.Node, str] = {}  # why an activation is not fused
    for node in reversed(facts.module.graph.nodes):
        for site in sites.candidates(node, facts, fuses) if node not in taken else ():
            if taken.intersection(site.nodes):
                why = "another operator computes a part of it"
            else:
                why = site.why_unfit(facts) or why_unsafe(site, facts)
            if why is None and not renames and site.is_renaming:
                why = unfused.get(node, "it has no neighbour to fuse with")
            if why is None:
                chosen.append(site)
                taken.update(site.nodes)
                left.pop(node, None)
                break
            if site.activation is not None:
                unfused.setdefault(site.activation, why)
            elif len(site.nodes) == 1:
                left[node] = f"{'batch norm' if site.norm else site}: {why}"
        call = facts.call(node)
        name = call.name.removeprefix("aten::") if call else ""
        if name in sites.LEFT:
            left[node] = f"{name}: {sites.LEFT[name]}"
    chosen.reverse()
    for site in chosen:
        why = unfused.get(site.last) if site.is_renaming else None
        what = f"{site} (not fused: {why})" if why else str(site)
        report.replace(place(site.last), what, len(site.nodes))
    for node, why in reversed(left.items()):
        report.leave(place(node), why)
    return chosen


def _insert_vectors(chosen: list[Site], facts: Facts) -> _Vectors:
    """Computes scale and bias of all batch norms together, before the first batch norm. Returns {}
    if each needs its own computation, for example because the graph writes to an input, which a
    batch norm might share."""
    norms = [site.norm for site in chosen if site.norm]
    tensors = {t for norm in norms for t in sites.norm_tensors(norm, facts) if t}
    if (
        len({facts[norm].region for norm in norms}) != 1
        or any(t.op != "placeholder" for t in tensors)
        or any(INPUTS in found.written for found in facts.nodes.values())
    ):
        return {}
    first = min(norms, key=lambda norm: facts[norm].index)
    with facts.module.graph.inserting_before(first):
        return insert_vectors(facts.module.graph, norms, facts)

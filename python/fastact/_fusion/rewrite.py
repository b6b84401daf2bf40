"""Rewrites a graph by the facts that replay() found."""

from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

from fastact._fusion import sites
from fastact._fusion.batch_norm import insert_vectors
from fastact._fusion.hazards import is_later, why_unsafe
from fastact._fusion.replay import INPUTS, Facts
from fastact._fusion.sites import Site
from fastact._report import Report, place


def rewrite(facts: Facts, report: Report, fuses: bool = True, renames: bool = True) -> None:
    """Puts FastAct's operators into a graph and into the graphs that it calls; reports where.

    Values, writes and the order of random numbers stay those of the graph, but that alpha dropout
    of SELU drops other elements. `facts` no longer holds afterwards.
    """
    _Rewriting(facts, report).run(fuses, renames)
    for body in facts.bodies:
        rewrite(body, report, fuses, renames)


class _Rewriting:
    """Rewrites one graph."""

    def __init__(self, facts: Facts, report: Report):
        self.facts, self.graph, self.report = facts, facts.module.graph, report
        self.sites: list[Site] = []
        self.taken: set[fx.Node] = set()
        # Why PyTorch keeps a node, and why an activation is not fused with what is around it.
        self.left: dict[fx.Node, tuple[str, str]] = {}
        self.unfused: dict[fx.Node, str] = {}
        # Maps a node to the node that replaces it.
        self.results: dict[fx.Node, fx.Node] = {}

    def run(self, fuses: bool, renames: bool) -> None:
        for node in reversed(self.graph.nodes):
            if node not in self.taken:
                self._choose(node, fuses, renames)
        self.sites.reverse()
        self.sites.sort(key=lambda site: self.facts[site.last].index)
        for site in self.sites:
            why = self.unfused.get(site.last) if site.is_renaming else None
            what = f"{site} (not fused: {why})" if why else str(site)
            self.report.replace(place(site.last), what, len(site.nodes))
        for node, (what, why) in reversed(self.left.items()):
            self.report.leave(place(node), f"{what}: {why}")
        self._insert()
        self.graph.lint()
        self.facts.module.recompile()

    def _choose(self, node: fx.Node, fuses: bool, renames: bool) -> None:
        """Takes the best site that ends at a node, or records why there is none."""
        for site in sites.candidates(node, self.facts, fuses):
            if self.taken.intersection(site.nodes):
                why = "another operator computes a part of it"
            else:
                why = site.why_unfit(self.facts) or why_unsafe(site, self.facts)
            if why is None and not renames and site.is_renaming:
                why = self.unfused.get(node, "nothing around it can be fused")
            if why is None:
                self.sites.append(site)
                self.taken.update(site.nodes)
                self.left.pop(node, None)
                return
            if site.activation is not None:
                self.unfused.setdefault(site.activation, why)
            elif len(site.nodes) == 1:
                self.left[node] = ("batch norm" if site.norm else str(site), why)
        call = self.facts.call(node)
        name = call.name.removeprefix("aten::") if call else ""
        if name in sites.WITHOUT_OPERATOR:
            self.left[node] = (name, sites.WITHOUT_OPERATOR[name])

    # ---- The graph

    def _insert(self) -> None:
        vectors = self._vectors()
        for site in self.sites:
            with self.graph.inserting_before(site.last):
                if site.norm is not None and site.norm.node not in vectors:
                    vectors |= insert_vectors(self.graph, [site.norm], self.facts)
                new = self.graph.call_function(site.operator, *self._arguments(site, vectors))
            self._redirect(site, new)
            new.meta = dict(site.last.meta)
            site.last.replace_all_uses_with(new)
            self.results[site.last] = new
        for site in reversed(self.sites):
            for node in reversed(site.nodes):
                self.graph.erase_node(node)
            self.results[site.last].name = site.last.name  # which an ExportedProgram names

    def _redirect(self, site: Site, new: fx.Node) -> None:
        """Gives the result to later readers of a value that the site no longer writes in place."""
        if len(site.nodes) == 1:
            return
        last = self.facts[site.last]
        for node, found in self.facts.nodes.items():
            if found.value is not last.value or found.index >= last.index:
                continue
            for user in list(node.users):
                is_known = user in self.facts.nodes and user not in site.nodes
                if is_known and is_later(node, user, site, self.facts):
                    user.replace_input_with(node, new)
            self.results[node] = new

    def _arguments(self, site: Site, vectors: dict) -> tuple[tuple, dict]:
        def now(node: fx.Node | None) -> fx.Node | None:
            while node in self.results:
                node = self.results[node]
            return node

        if not site.is_fused:
            return fx.map_arg(tuple(site.call.arguments().values()), now), {}
        x, residual, gate = map(now, (site.self, site.residual, site.gate))
        parameters = site.call.parameters()
        given = {"output_scale" if k == "scale" else k: v for k, v in parameters.items()}
        scale = bias = None
        if site.norm is not None:
            (scale, bias), given["dim"] = vectors[site.norm.node], 1
        elif residual is not None:
            shapes = (self.facts.tensor(node).shape for node in (site.self, site.residual))
            if not statically_known_true(sym_eq(*shapes)):
                bias, residual = residual, None
        return (x, scale, bias, residual, gate), given

    def _vectors(self) -> dict[fx.Node, tuple[fx.Node, fx.Node]]:
        """Scale and bias of all batch norms in one call, before the first one of them. If the graph
        writes to an input, which a batch norm might share, each has a call of its own."""
        norms = [site.norm for site in self.sites if site.norm is not None]
        if not norms or any(INPUTS in found.written for found in self.facts.nodes.values()):
            return {}
        first = min((norm.node for norm in norms), key=lambda node: self.facts[node].index)
        inputs = {t for norm in norms for t in norm.tensors if t is not None}
        are_inputs = all(t.op in ("placeholder", "get_attr") for t in inputs)
        is_late = any(self.facts[t].index > self.facts[first].index for t in inputs)
        if not are_inputs or is_late or len({self.facts[n.node].region for n in norms}) > 1:
            return {}
        with self.graph.inserting_before(first):
            return insert_vectors(self.graph, norms, self.facts)

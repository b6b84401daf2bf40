"""Rewrites a graph by the facts that replay() found."""

from torch import fx

from fastact._fusion import policy, sites
from fastact._fusion.activations import Activation, activation, fused_operator, operator
from fastact._fusion.batch_norm import insert_vectors
from fastact._fusion.hazards import is_later, why_unsafe
from fastact._fusion.replay import Facts
from fastact._fusion.sites import DropoutSite, Site, SwigluSite
from fastact._report import Notes

_DROPOUTS = {
    f"aten::{name}{end}"
    for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
    for end in ("", "_")
}


def rewrite(facts: Facts, fuses: bool = True, renames: bool = True) -> Notes:
    """Puts FastAct's operators into a graph and into the graphs that it calls; says where.

    Values, writes and the order of random numbers stay those of the graph, but that alpha dropout
    of SELU drops other elements. `facts` no longer holds afterwards.
    """
    notes = Notes()
    for each in (facts, *_bodies(facts)):
        _Rewriting(each, notes).run(fuses, renames)
    return notes


def _bodies(facts: Facts):
    for body in facts.bodies:
        yield body
        yield from _bodies(body)


class _Rewriting:
    """Rewrites one graph."""

    def __init__(self, facts: Facts, notes: Notes):
        self.facts, self.graph, self.notes = facts, facts.module.graph, notes
        self.sites: list[Site] = []
        self.taken: set[fx.Node] = set()
        # Maps a node to the node that replaces it.
        self.results: dict[fx.Node, fx.Node] = {}

    def run(self, fuses: bool, renames: bool) -> None:
        self._remove_identities()
        acts, left = self._activations(fuses)
        unfused = self._choose(acts) if fuses else {}
        for site in self.sites:
            self.notes.replace(site.last, str(site), len(site.nodes))
        self._insert_sites()
        for node, why in left.items():
            self.notes.leave(node, *why)
        for act in acts:
            if self.taken.intersection(act.nodes):
                continue
            why = unfused.get(act.last)
            if renames:
                self._rename(act)
                what = f"{act.name} (not fused: {why})" if why else act.name
                self.notes.replace(act.last, what, len(act.nodes))
            else:
                self.notes.leave(act.last, act.name, why or "nothing around it can be fused")
        self.graph.lint()
        self.facts.module.recompile()

    def _remove_identities(self) -> None:
        """Dropout at inference, which returns its input."""
        returned: dict[fx.Node, fx.Node] = {}
        for node in list(self.graph.nodes):
            call = self.facts.call(node)
            if call is None or call.name not in _DROPOUTS or call.arguments["train"] is not False:
                continue
            x = call.arguments["input" if "input" in call.arguments else "self"]
            if isinstance(x, fx.Node):
                returned[node] = returned.get(x, x)
                node.replace_all_uses_with(returned[node])
                self.graph.erase_node(node)
                del self.facts.nodes[node]
        if not returned:
            return
        for found in self.facts.nodes.values():
            given = found.call.arguments if found.call is not None else {}
            for name, value in given.items():
                given[name] = fx.map_arg(value, lambda node: returned.get(node, node))

    def _activations(self, fuses: bool) -> tuple[list[Activation], dict[fx.Node, tuple[str, str]]]:
        """Returns the activations, and those that stay PyTorch's with the reason. Looks first for
        compositions of several nodes, because they contain other activations."""
        found: list[Activation] = []
        left: dict[fx.Node, tuple[str, str]] = {}
        inside: set[fx.Node] = set()
        for node in reversed(self.graph.nodes):
            if node in inside:
                continue
            swiglu = sites.clamped_swiglu(node, self.facts) if fuses else None
            if swiglu is not None and self._takes(swiglu) is None:
                inside.update(swiglu.nodes)
                continue
            act = activation(node, self.facts)
            if isinstance(act, Activation) and len(act.nodes) > 1:
                site = Site(act.name, act.parameters, act.nodes, act.input)
                if why_unsafe(site, self.facts) is not None:
                    continue
            if isinstance(act, Activation):
                found.append(act)
                inside.update(act.nodes)
            elif act is not None:
                call = self.facts.call(node)
                left[node] = (call.name.partition("::")[2] if call else str(node), act)
        return found[::-1], dict(reversed(left.items()))

    def _takes(self, site: Site) -> str | None:
        """Adds a site, or says why it cannot be added."""
        if self.taken.intersection(site.nodes):
            return "another operator computes a part of it"
        why = site.why_unfit(self.facts) or why_unsafe(site, self.facts)
        if why is None:
            self.sites.append(site)
            self.taken.update(site.nodes)
        return why

    def _choose(self, acts: list[Activation]) -> dict[fx.Node, str]:
        """Adds the sites. Returns why an activation with operators around it has none."""
        why_not: dict[fx.Node, str] = {}
        for act in acts:
            if fused_operator(act.name) is None:
                continue
            dropped = sites.selu_alpha_dropout(act, self.facts)
            for site in ([dropped] if dropped else []) + list(sites.candidates(act, self.facts)):
                why = self._takes(site)
                if why is None:
                    why_not.pop(act.last, None)
                    break
                why_not.setdefault(act.last, why)
        for node in self.graph.nodes:
            normed = sites.norm(node, self.facts)
            if normed is None or node in self.taken:
                continue
            site, device = sites.norm_alone(normed), self.facts.tensor(node).device
            why = "no activation with a fused operator follows it"
            if policy.takes_norm_alone(device):
                why = self._takes(site)
            if why is not None:
                self.notes.leave(node, "batch norm", why)
        return why_not

    def _insert_sites(self) -> None:
        vectors = self._vectors()
        order = sorted(self.sites, key=lambda site: self.facts[site.last].index)
        for site in order:
            with self.graph.inserting_before(site.last):
                arguments = self._arguments(site, vectors)
                new = self.graph.call_function(site.operator, *arguments)
            self._redirect(site, new)
            self._put(site.last, new)
        for site in reversed(order):
            for node in reversed(site.nodes):
                self.graph.erase_node(node)

    def _put(self, node: fx.Node, new: fx.Node) -> None:
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        self.results[node] = new

    def _redirect(self, site: Site, new: fx.Node) -> None:
        """Gives the result to later readers of a value that the site no longer writes in place."""
        for node, found in self.facts.nodes.items():
            if found.value is not self.facts[site.last].value or node is site.last:
                continue
            for user in list(node.users):
                is_known = user in self.facts.nodes and user not in site.nodes
                if is_known and is_later(node, user, site, self.facts):
                    user.replace_input_with(node, new)
            self.results[node] = new

    def _now(self, node: fx.Node | None) -> fx.Node | None:
        while node in self.results:
            node = self.results[node]
        return node

    def _arguments(self, site: Site, vectors: dict) -> tuple[tuple, dict]:
        x, residual, gate = map(self._now, (site.self, site.residual, site.gate))
        if isinstance(site, DropoutSite):
            return (x, site.parameters["p"], True), {}
        if isinstance(site, SwigluSite):
            return (x, residual), dict(site.parameters)
        given = {"output_scale" if k == "scale" else k: v for k, v in site.parameters.items()}
        scale = bias = None
        if site.norm is not None:
            norm = site.norm
            if norm.node not in vectors:
                vectors |= insert_vectors(self.graph, [norm], self.facts)
            scale, bias = vectors[norm.node]
            given["dim"] = 1
        elif residual is not None:
            sizes = [self.facts.tensor(n) for n in (site.residual, site.self)]
            if sites.is_smaller(*sizes):
                bias, residual = residual, None
        return (x, scale, bias, residual, gate), given

    def _vectors(self) -> dict[fx.Node, tuple[fx.Node, fx.Node]]:
        """Scale and bias of all batch norms in one call, before the first one of them. If the graph
        writes to an input, which a batch norm might share, each has a call of its own."""
        norms = [site.norm for site in self.sites if site.norm is not None]
        if not norms or self.facts.writes_inputs:
            return {}
        first = min((norm.node for norm in norms), key=lambda node: self.facts[node].index)
        inputs = {t for norm in norms for t in norm.tensors if t is not None}
        are_inputs = all(t.op in ("placeholder", "get_attr") for t in inputs)
        is_late = any(self.facts[t].index > self.facts[first].index for t in inputs)
        if not are_inputs or is_late or len({self.facts[n.node].region for n in norms}) > 1:
            return {}
        with self.graph.inserting_before(first):
            return insert_vectors(self.graph, norms, self.facts)

    def _rename(self, act: Activation) -> None:
        target = operator(f"{act.name}_" if act.is_in_place else act.name)
        args = tuple(self._now(node) for node in (act.input, act.weight) if node is not None)
        with self.graph.inserting_before(act.last):
            new = self.graph.call_function(target, args, dict(act.parameters))
        self._put(act.last, new)
        for node in reversed(act.nodes):
            self.graph.erase_node(node)

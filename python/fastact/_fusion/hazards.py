"""Decides whether all nodes of a site may be computed at the last one."""

from torch import fx

from fastact._fusion.replay import INPUTS, Facts
from fastact._fusion.sites import Site


def why_unsafe(site: Site, facts: Facts) -> str | None:
    """Returns why reads and writes prevent computing a site at its last node, or None."""
    inside, last = set(site.nodes), facts[site.last]
    if len(inside) == 1:
        return None
    if len({facts[node].region for node in inside}) > 1:
        return "it is in several contexts"
    own = frozenset().union(*(facts[node].written for node in inside))
    read = frozenset().union(*(facts[node].storages for node in site.operands))
    if own & read:
        return "it writes to one of its operands"
    for node in inside - {site.last}:
        if any(user not in inside and not is_later(node, user, site, facts) for user in node.users):
            return "what it computes on the way is needed elsewhere"
    if INPUTS in own or (own and _is_seen(own, site, facts)):
        return "it writes to a tensor that others may see"
    read |= facts[site.self].storages
    first = min(facts[node].index for node in inside)
    for node, found in facts.nodes.items():
        if first < found.index < last.index and node not in inside and found.written & read:
            return "a tensor is written in between"
    return None


def is_later(node: fx.Node, user: fx.Node, site: Site, facts: Facts) -> bool:
    """True if a user of a node that is written in place reads the site's result."""
    last = facts[site.last]
    return facts[node].value is last.value and facts[user].index > last.index


def _is_seen(written: frozenset[int], site: Site, facts: Facts) -> bool:
    """True if a node outside the site reads what the site writes to, after its first write."""
    inside = set(site.nodes)
    first = min(facts[node].index for node in inside if facts[node].written)
    return any(
        user not in inside and facts[user].index >= first and not is_later(node, user, site, facts)
        for node, found in facts.nodes.items()
        if found.storages & written
        for user in node.users
    )

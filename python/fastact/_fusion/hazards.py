"""Decides whether an operator may compute all nodes of a site at the last one."""

from fastact._fusion.replay import INPUTS, Facts
from fastact._fusion.sites import Site, norm_tensors


def why_unsafe(site: Site, facts: Facts) -> str | None:
    """Returns why reads and writes prevent computing a site at its last node, or None."""
    inside, last = set(site.nodes), facts[site.last]
    may_save_operands = site.may_save_operands(facts)
    if len(inside) == 1 and not may_save_operands:
        return None
    if len({facts[node].region for node in inside}) > 1:
        return "its operations run in different contexts, such as autocast"
    if any(not inside.issuperset(node.users) for node in inside - {site.last}):
        return "one of its intermediate results is needed elsewhere"
    first, *others = site.tensors + (norm_tensors(site.norm, facts) if site.norm else [])
    read = frozenset().union(*(facts[node].storages for node in others if node))
    own = frozenset().union(*(facts[node].written for node in inside))
    if own & read:
        return "it writes to one of its operands"
    if INPUTS in own or (own and _is_seen(own, site, facts)):
        return "it writes to a tensor that other operations may read"
    read |= facts[first].storages
    start = min(facts[node].index for node in inside)
    for node, found in facts.nodes.items():
        if start < found.index < last.index and node not in inside and found.written & read:
            return "a tensor is written to in between"
    if may_save_operands and _is_written_later(site, facts):
        return "an operand, which the backward pass may need, is written to later"
    return None


def _is_written_later(site: Site, facts: Facts) -> bool:
    """Returns true if a node after the site writes to an operand."""
    own = frozenset().union(*(facts[node].own_storages for node in site.tensors))
    last = facts[site.last].index
    return any(found.index > last and found.own_written & own for found in facts.nodes.values())


def _is_seen(written: frozenset[int], site: Site, facts: Facts) -> bool:
    """True if a node outside the site reads what the site writes to, after its first write."""
    first = min(facts[node].index for node in site.nodes if facts[node].written)
    return any(
        user not in site.nodes and facts[user].index >= first
        for node, found in facts.nodes.items()
        if found.storages & written and node is not site.last
        for user in node.users
    )

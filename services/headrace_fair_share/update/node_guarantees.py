"""Guarantees on some nodes: pools that can run only there may be guaranteed more than these nodes have. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from headrace.ids import ROOT_POOL
from headrace.near import some
from headrace.pools import PoolTree
from headrace.resources import RESOURCE_NAMES, Resources, format_amount
from headrace_fair_share.hdrf.model import ErrorKind, GuaranteeError
from headrace_fair_share.update.matching_nodes import MatchingNodes


class Promise(NamedTuple):
    """The strong guarantee of a pool, with the tag filters of the pool and of all pools above it."""

    pool: str
    #: Position of the parent pool; -1 for the root.
    parent: int
    guarantee: Resources
    filters: tuple[str, ...]


def promises_of(tree: PoolTree) -> list[Promise]:
    """List the strong guarantees of a configuration, parents first."""
    places = {ROOT_POOL: -1, **{name: place for place, name in enumerate(tree.preorder)}}
    promises: list[Promise] = []
    for name in tree.preorder:
        pool = tree.pools[name]
        above = places[pool.parent]
        own = tree.settings(name).scheduling_tag_filter
        filters = (promises[above].filters if above >= 0 else ()) + ((own,) if own else ())
        promises.append(Promise(name, above, pool.settings.strong_guarantee_resources.whole, filters))
    return promises


def node_overcommits(promises: Sequence[Promise], nodes: MatchingNodes) -> Iterator[GuaranteeError]:
    """Yield an error for each set of nodes that has less than is guaranteed to the pools that can run nowhere else."""
    bound = [place for place, each in enumerate(promises) if each.filters and any(each.guarantee.as_tuple())]
    told: set[tuple[str, ...]] = set()
    for filters in dict.fromkeys(promises[place].filters for place in bound):
        have = nodes.resources(filters)
        within = {place for place in bound if nodes.are_within(promises[place].filters, filters)}
        # A pool's guarantee includes the guarantees of the pools below it.
        highest = [promises[place] for place in sorted(within) if not within.intersection(_above(promises, place))]
        if have is None or not highest:
            continue
        promised = Resources.sum(each.guarantee for each in highest)
        short = [
            f"{format_amount(name, wants)} of {name} where there are {format_amount(name, there)}"
            for name, wants, there in zip(RESOURCE_NAMES, promised.as_tuple(), have.as_tuple(), strict=True)
            if wants > there
        ]
        pools = tuple(each.pool for each in highest)
        # Other filters may match the same nodes; one error is enough.
        if short and pools not in told:
            told.add(pools)
            matching = " and ".join(filters)
            text = f"the nodes that match {matching} have too little for the strong guarantees of {some(pools)}: they promise"
            yield GuaranteeError(ErrorKind.OVERCOMMIT_NODES, f"{text} {', '.join(short)}", list(pools))


def promise_warnings(nodes: MatchingNodes) -> Callable[[PoolTree], list[str]]:
    """Return a function that lists what a configuration guarantees beyond what these nodes have."""
    return lambda tree: [each.text for each in node_overcommits(promises_of(tree), nodes)]


def _above(promises: Sequence[Promise], place: int) -> Iterator[int]:
    while (place := promises[place].parent) >= 0:
        yield place

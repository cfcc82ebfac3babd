"""Finds nodes that have less than is guaranteed to the pools that can run only on these nodes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headrace.ids import PoolName
from headrace.pools import NOTHING, PoolTree
from headrace.resources import RESOURCE_NAMES, ZERO, Resources, format_amount
from headrace.suggestions import some
from headrace_fair_share.hdrf.model import ErrorKind, GuaranteeError
from headrace_fair_share.update.matching_nodes import MatchingNodes


class Promise(NamedTuple):
    """The strong guarantee of a pool that can run only on some nodes, with the tag filters of the pool and of all pools above it."""

    pool: PoolName
    #: All pools above the pool, the root last.
    above: tuple[PoolName, ...]
    guarantee: Resources
    filters: tuple[str, ...]


def promises_of(tree: PoolTree) -> list[Promise]:
    """List the strong guarantees that hold on some nodes only, parents first."""
    promises: list[Promise] = []
    for name, pool in tree.pools.items():
        guarantee = pool.settings.strong_guarantee_resources
        if guarantee == NOTHING or guarantee.whole == ZERO:
            continue
        _, *above = tree.upwards(name)
        own = (tree.settings(each).scheduling_tag_filter for each in (*reversed(above[:-1]), name))
        filters = tuple(each for each in own if each)
        if filters:
            promises.append(Promise(name, tuple(above), guarantee.whole, filters))
    return promises


def node_overcommits(promises: Sequence[Promise], nodes: MatchingNodes) -> Iterator[GuaranteeError]:
    """Yield an error for each set of nodes that has less than is guaranteed to the pools that can run nowhere else."""
    told: set[tuple[str, ...]] = set()
    for filters in dict.fromkeys(each.filters for each in promises):
        have = nodes.resources(filters)
        within = {each.pool: each for each in promises if nodes.are_within(each.filters, filters)}
        # Only the highest pools count: a pool's guarantee includes the guarantees of the pools below it.
        highest = [each for each in within.values() if within.keys().isdisjoint(each.above)]
        if have is None or not highest:
            continue
        promised = Resources.sum(each.guarantee for each in highest)
        short = [
            f"{format_amount(name, wants)} of {name} where there are {format_amount(name, there)}"
            for name, wants, there in zip(RESOURCE_NAMES, promised.as_tuple(), have.as_tuple(), strict=True)
            if wants > there
        ]
        pools = tuple(each.pool for each in highest)
        # Different filters may match the same nodes and lead to the same pools. One error for these pools is enough.
        if short and pools not in told:
            told.add(pools)
            matching = " and ".join(filters)
            text = f"the nodes that match {matching} have too little for the strong guarantees of {some(pools)}: they promise"
            yield GuaranteeError(ErrorKind.OVERCOMMIT_NODES, f"{text} {', '.join(short)}", list(pools))


def promise_warnings(rooms: Mapping[tuple[str, ...], Resources] | None) -> Callable[[PoolTree], list[str]]:
    """Return a function that lists the guarantees of a configuration that exceed what the matching nodes have.

    `rooms` has the resources of all nodes with the same set of tags; None if the nodes are not known.
    """

    def warnings(tree: PoolTree) -> list[str]:
        promises = promises_of(tree)
        return [each.text for each in node_overcommits(promises, MatchingNodes(rooms))] if promises else []

    return warnings

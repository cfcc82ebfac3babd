"""Random trees in which operations can run on some nodes only, as `update.algorithm_input` makes them of filters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from random import Random

from msgspec.structs import replace

from headrace.resources import LARGEST_SUM, Resources
from headrace_fair_share.hdrf.model import Limits, TreeInput
from headrace_fair_share.update.matching_nodes import MatchingNodes
from tests.support.trees import random_tree

__all__ = ["Tagged", "tagged", "tagged_tree", "unions"]

_TAGS = "abcd"


class Tagged:
    """A tree, and the tags of the nodes on which each operation and each pool with a filter can run."""

    def __init__(self, tree: TreeInput, rooms: Mapping[str, Resources], where: Mapping[int, frozenset[str]]) -> None:
        self.tree = tree
        self.rooms = rooms
        #: By place of the operation. Others can run everywhere.
        self.where = where


def unions(rooms: Mapping[str, Resources]) -> Iterator[frozenset[str]]:
    """Every set of tags."""
    for count in range(1, len(rooms) + 1):
        yield from map(frozenset, combinations(rooms, count))


def tagged(
    tree: TreeInput,
    rooms: Mapping[str, Resources],
    where: Mapping[int, frozenset[str]],
    of_pools: Mapping[int, frozenset[str]],
) -> Tagged:
    """Gives operations, and pools, the limits and sets that follow from where they can run. A node has one tag in `rooms`."""
    nodes = MatchingNodes({(tag,): amounts for tag, amounts in rooms.items()})
    filters = {place: (" | ".join(sorted(tags)),) for place, tags in where.items()}
    pool_filters = {place: (" | ".join(sorted(tags)),) for place, tags in of_pools.items()}
    operations, pools = list(tree.operations), list(tree.pools)
    for place, each in filters.items():
        operations[place] = replace(operations[place], limits=_lower(operations[place].limits, nodes, each))
    for place, each in pool_filters.items():
        pools[place] = replace(pools[place], limits=_lower(pools[place].limits, nodes, each))
    divided = nodes.divided(filters, pool_filters)
    made = replace(tree, operations=operations, pools=pools, node_classes=divided.classes, node_sets=divided.sets)
    return Tagged(made, rooms, where)


def tagged_tree(draw: Random, max_pools: int = 7, max_operations: int = 9) -> Tagged:
    """Any tree on nodes of up to four kinds, most operations of which can run on some kinds only."""
    tree = random_tree(draw, max_pools, max_operations)
    rooms = parted(draw, tree.total, draw.randint(2, len(_TAGS)))
    of_pools: dict[int, frozenset[str]] = {}
    for place, pool in enumerate(tree.pools):
        above = of_pools.get(pool.parent, frozenset(rooms))
        if draw.randint(0, 2) == 0:
            above = _some(draw, above)
        if above != frozenset(rooms):
            of_pools[place] = above
    where: dict[int, frozenset[str]] = {}
    for place, operation in enumerate(tree.operations):
        tags = of_pools.get(operation.pool, frozenset(rooms))
        if draw.randint(0, 1):
            tags = _some(draw, tags)
        if tags != frozenset(rooms):
            where[place] = tags
    return tagged(tree, rooms, where, of_pools)


def parted(draw: Random, total: Resources, count: int) -> dict[str, Resources]:
    """Divides a cluster into nodes of so many kinds. Some kinds have nothing of a resource."""
    parts = [[0] * len(total.as_tuple()) for _ in range(count)]
    for resource, whole in enumerate(total.as_tuple()):
        left = whole
        for part in parts[:-1]:
            part[resource] = draw.choice([0, left // 4, left // 2, draw.randint(0, left)])
            left -= part[resource]
        parts[-1][resource] = left
    return dict(zip(_TAGS, (Resources(*part) for part in parts), strict=False))


def _some(draw: Random, tags: frozenset[str]) -> frozenset[str]:
    return frozenset(draw.sample(sorted(tags), min(len(tags), draw.choice([1, 1, 1, 2, 3]))))


def _lower(limits: Limits, nodes: MatchingNodes, filters: tuple[str, ...]) -> Limits:
    most = nodes.resources(filters)
    assert most is not None
    pairs = zip(limits, most.as_tuple(), strict=True)
    u, c, g, m, n = (min(LARGEST_SUM if limit is None else limit, amount) for limit, amount in pairs)
    return (u, c, g, m, n)

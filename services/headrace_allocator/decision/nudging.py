"""Nudging: choosing nodes to ask for a heartbeat at once, because an operation changed or a limit stopped blocking jobs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from headrace.ids import OperationId
from headrace.pools.amounts import PartialResources
from headrace.resources import Resources
from headrace_allocator.decision.least_satisfied import LeastSatisfied
from headrace_allocator.decision.pool_order import PoolOrder
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation

#: Upper bound of the nodes nudged at once for one operation.
_MOST_NUDGES: Final = 200
#: Upper bound of the operations that are considered when limits stop blocking jobs.
_MOST_ASKED: Final = 200
#: Upper bound of the operations that are considered from one list of a pool. Their jobs have nearly the same size, so a few are enough.
_MOST_ALIKE: Final = 8
#: Upper bound of the considered operations for which nodes are searched. The answer to a heartbeat waits for the searches. A search for a
#: size that was not searched for lately compares all nodes: 0.5 ms with 100,000 nodes, while other searches take some 0.02 ms.
_MOST_LOOKS: Final = 16


def nudge_for(operation: Operation, facts: Facts) -> list[Node]:
    """Choose the nodes to ask for a heartbeat because more jobs of an operation may start, and mark them as nudged."""
    if max(operation.fair_share) == 0.0:
        return []
    nodes = nodes_to_nudge(operation, facts)
    for node in nodes:
        node.nudged = True
    return nodes


def nudge_below_limits(order: LeastSatisfied, facts: Facts, *, is_late: bool) -> list[Node]:
    """Choose the nodes to nudge after limits of operations or pools stopped blocking jobs, and mark them as nudged.

    In most cases a limit stops blocking jobs because a job ended. The heartbeat that reported this end is already answered, and the
    pending jobs may fit only on other nodes. Returns no node while heartbeats are late.
    """
    if not (order.came_in or order.opened):
        return []
    # Positions must be up to date: decisions made after a limit stopped blocking jobs may have used up what the limit left.
    order.settle()
    nudged: list[Node] = []
    fruitless: set[int] = set()
    asked = islice(_held_back_no_more(order), 0 if is_late else _MOST_ASKED)
    for name in islice((each for each in asked if order.number(each) not in fruitless), _MOST_LOOKS):
        nodes = nudge_for(facts.operations[name], facts)
        nudged += nodes
        if not nodes:
            fruitless.add(order.number(name))
    order.came_in.clear()
    order.opened.clear()
    return nudged


def nodes_to_nudge(operation: Operation, facts: Facts) -> list[Node]:
    """Choose nodes with free resources for as many jobs as the operation can start. Of the chosen nodes, return the nodes that are not
    nudged yet.
    """
    size, filters = operation.min_needed, facts.pools.filters_of(operation.spec)
    wanted = _wanted(operation, facts)
    nudged: list[Node] = []
    if wanted <= 0:
        return nudged
    # A node with fewer free resources than the tree's minimum starts nothing. If such nodes were nudged, nudges would cause most of a
    # full cluster's heartbeats.
    for node in facts.rooms.fitting(size.or_more(facts.pools.min_spare), filters):
        if node.is_reserved_for_another(operation, size) or facts.failing.turns_away(node, operation):
            continue
        wanted -= size.times_that_fit(node.free)
        if not node.nudged:
            nudged.append(node)
        if wanted <= 0 or len(nudged) >= _MOST_NUDGES:
            break
    return nudged


def _held_back_no_more(order: LeastSatisfied) -> Iterator[OperationId]:
    yield from (name for name in order.came_in if name in order)
    for name, classes in order.opened.items():
        if order.has_pool(name):
            yield from _open_below(order, order.pool(name), classes)


def _open_below(order: LeastSatisfied, pool: PoolOrder, classes: int) -> Iterator[OperationId]:
    """Yield operations below a pool with jobs of these classes if one more such job stays within all limits from the pool down to the
    operation.
    """
    classes &= pool.classes & pool.open
    if not classes:
        return
    for bucket, entries in pool.buckets.items():
        if bucket.classes & classes:
            names = (OperationId(entry[-1]) for entry in entries[:_MOST_ALIKE])
            yield from (name for name in names if classes >> order.number(name) & 1)
    for below in pool.below:
        yield from _open_below(order, below, classes)


def _wanted(operation: Operation, facts: Facts) -> int:
    """Return how many ready jobs of the operation may start within all limits together."""
    wanted, needed = operation.slots.ready_count, operation.min_needed
    if operation.limited:
        wanted = _below(operation.spec.resource_limits, operation.charged, needed, wanted)
    for pool in facts.pools.above(operation.spec.pool):
        wanted = _below(pool.most, pool.charged, needed, wanted)
    return wanted


def _below(limit: PartialResources, used: Resources, needed: Resources, wanted: int) -> int:
    """Return the number of jobs that stay within a limit, at most `wanted`."""
    for most, there, each in zip(limit.as_tuple(), used.as_tuple(), needed.as_tuple(), strict=True):
        if most is not None and there + each * wanted > most:
            wanted = max(0, (most - there) // each) if each else 0
    return wanted

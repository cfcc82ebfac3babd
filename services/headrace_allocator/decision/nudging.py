"""Nodes that are asked for a heartbeat at once: an operation changed, or a limit that was full has room."""

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

#: Nodes that one operation's news may nudge at once.
_MOST_NUDGES: Final = 200
#: Operations that may be asked for where there is room below a limit, and those in one list, whose jobs are nearly alike.
_MOST_ASKED: Final = 200
_MOST_ALIKE: Final = 8
#: Those for which nodes are looked for, some 0.2 ms each with 10,000 nodes: a heartbeat waits for it.
_MOST_LOOKS: Final = 16


def nudge_for(operation: Operation, facts: Facts) -> list[Node]:
    """Notes nodes as nudged that are asked for a heartbeat because more jobs of an operation may start."""
    if max(operation.fair_share) == 0.0:
        return []
    nodes = nodes_to_nudge(operation, facts)
    for node in nodes:
        node.nudged = True
    return nodes


def nudge_below_limits(order: LeastSatisfied, facts: Facts, *, is_late: bool) -> list[Node]:
    """Notes nodes as nudged where jobs may start that limits of operations or of pools held back until now.

    The node on which a job ended has had its turn, and the jobs that wait may fit on others alone. None while heartbeats are late.
    """
    if not (order.came_in or order.opened):
        return []
    # What was decided meanwhile may have taken all that was free.
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
    """The nodes with room, as many as the operation can use, without those that were nudged already."""
    size, filters = operation.spec.resources, facts.pools.filters_of(operation.spec)
    wanted = _wanted(operation, facts)
    nudged: list[Node] = []
    if wanted <= 0:
        return nudged
    # With less room than the tree spares nothing starts on a node: on a full cluster that would be most of all heartbeats.
    for node in facts.rooms.fitting(size.or_more(facts.pools.min_spare), filters):
        if node.is_reserved_for_another(operation.id, size):
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
    """Operations below a pool with jobs of these classes, one more of which stays within the limits down to them."""
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
    """The number of its jobs that are ready and that all limits together let start."""
    wanted, needed = operation.slots.ready_count, operation.min_needed
    if operation.limited:
        wanted = _below(operation.spec.resource_limits, operation.charged, needed, wanted)
    for pool in facts.pools.above(operation.spec.pool):
        wanted = _below(pool.most, pool.charged, needed, wanted)
    return wanted


def _below(limit: PartialResources, used: Resources, needed: Resources, wanted: int) -> int:
    """The number of jobs, so many at most, that stay within a limit."""
    for most, there, each in zip(limit.as_tuple(), used.as_tuple(), needed.as_tuple(), strict=True):
        if most is not None and there + each * wanted > most:
            wanted = max(0, (most - there) // each) if each else 0
    return wanted

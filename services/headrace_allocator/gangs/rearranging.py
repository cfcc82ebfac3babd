"""Exchange the resources that are held for a gang with tasks, so that all its jobs get resources.

Each heartbeat holds resources on one node for the largest jobs that fit there. So a smaller job may get the only node that has enough for a
larger job, while other nodes have enough for the smaller job. Nodes do not know yet what is held for the gang. So each tick tries to place
all jobs of the gang anew, in the resources that are held for it and those that are free. If all jobs fit, the new places replace the held
resources; otherwise nothing changes.

Cost: one gang of a tree gathers resources at a time, and a tick examines up to `_MOST_NODES` nodes for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from headrace.resources import ZERO, Resources
from headrace_allocator.facts.allocations import waits_for_room
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import exceeds
from headrace_allocator.gangs.gang import GangPhase
from headrace_allocator.gangs.packing import Jobs, Packed, Room, count_of, pack
from headrace_allocator.gangs.sizes import ready_by_size, resources_of, together_by_size

#: Upper bound of the nodes that are examined on one tick; 2,000 take some milliseconds for each task of the gang.
_MOST_NODES: Final = 2_000


def better_places(facts: Facts, operation: Operation) -> list[Packed[Node]]:
    """Return nodes for all jobs of a gang that gathers resources. Return an empty list if not all jobs fit, or if the gang needs no other
    nodes.
    """
    gang, slots = operation.gang, operation.slots
    if gang is None or not operation.kinds or gang.phase is not GangPhase.GATHERING or not slots.gang_ready_count:
        return []
    if slots.gang_ready_count != slots.gang_pending_count or not _is_within_limits(facts, operation):
        return []
    jobs = together_by_size(operation)
    packed = pack(jobs, _rooms(facts, operation, jobs), facts.pools.min_spare, gang.scale)
    return packed if count_of(packed) == sum(one.count for one in jobs) else []


def _rooms(facts: Facts, operation: Operation, jobs: Iterable[Jobs]) -> Iterator[Room[Node]]:
    """Yield the nodes with the resources that the gang may have there for these jobs."""
    assert operation.gang is not None
    held: dict[Node, Resources] = {}
    for hold in operation.gang.holds:
        node = facts.nodes[hold.node]
        held[node] = held.get(node, ZERO) + hold.usage
    filters, spare = facts.pools.filters_of(operation.spec), facts.pools.min_spare
    nodes = dict.fromkeys(held)
    for one in jobs:
        for node in facts.rooms.fitting(one.size.or_more(spare), filters):
            if len(nodes) >= _MOST_NODES:
                break
            nodes[node] = None
    for node in nodes:
        if node.accepts_jobs and node.free.dominates(ZERO):
            yield Room(_free_for_gang(facts, node) + held.get(node, ZERO), [node])


def _free_for_gang(facts: Facts, node: Node) -> Resources:
    """Return the free resources of a node that a heartbeat would give to a gang."""
    name = node.record.node
    if name in facts.empty_nodes.names or name in facts.failing.held or waits_for_room(node.allocations.values()):
        return ZERO
    free = node.free if node.reserved is None else node.free - node.reserved.job
    return free if free.dominates(ZERO) else ZERO


def _is_within_limits(facts: Facts, operation: Operation) -> bool:
    """True if no limit is exceeded once the gang has resources for all its jobs."""
    pools, more = facts.pools, resources_of(ready_by_size(operation))
    if exceeds(operation.charged + more, operation.spec.resource_limits):
        return False
    above = pools.above(operation.spec.pool)
    return not any(exceeds(pool.charged + more, pool.limit(pools.options, tolerant=False)) for pool in above)

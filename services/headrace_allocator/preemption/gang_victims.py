"""Gangs as victims in trees with the option `preempt_gangs_whole`: a running gang is preempted as a whole or not at all.

Ending one job ends all jobs of a gang, so its jobs are not victims one by one. A gang is preempted for a starving operation, or for a
starving pool above the operation. The starving element must lack at least as much as the gang holds, and more than the gang is owed,
measured in the gang's dominant resource. If two gangs cannot run together, each is owed a part, so neither is preempted for the other: the
second gang starts when the first one has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from headrace.pools.tree_options import PriorityScope
from headrace.resources import EPS, RESOURCE_NAMES, Resources
from headrace.wire.snapshots import PreemptionPriority, ShareItem, StarvationStatus
from headrace.wire.start_stages import StartStage
from headrace_allocator.decision.placing import Placement, place
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation, held_by_gang, is_in_gang
from headrace_allocator.facts.pool_tree import PoolStates
from headrace_allocator.gangs.gang import TOGETHER

#: Upper bound of the operations for which one search tests whether they are owed the resources of a gang.
_MOST_ASKED: Final = 8


def goes_whole(operation: Operation, allocation: Allocation, pools: PoolStates) -> bool:
    """True if the allocation belongs to a gang whose jobs may be preempted only together."""
    return operation.gang is not None and pools.options.preempt_gangs_whole and is_in_gang(operation, allocation)


def may_go_whole(operation: Operation) -> bool:
    """True for an operation with a gang whose jobs are all on nodes. The jobs of a gang that breaks up are ending already."""
    return operation.gang is not None and operation.gang.phase in TOGETHER


def is_owed_room_of(
    gang: Operation, starter: Operation, pools: PoolStates, held: Resources, freed: float = 0.0
) -> bool:
    """True if a gang may be preempted for the operation `starter`, which now holds `held`.

    `freed` is the fraction of the cluster that other gangs have already freed for the operation.
    """
    has = part_of(gang, pools)
    loses = min(has, gang.fair_share[_dominant(gang)])
    shortages = _shortages(gang, starter, pools, held)
    return any(short - freed > has - EPS and short - freed > loses + EPS for short in shortages)


def part_of(gang: Operation, pools: PoolStates) -> float:
    """Return the fraction of the cluster that a gang holds, in its dominant resource."""
    return held_by_gang(gang).share_of(pools.total)[_dominant(gang)]


def start_in_room_of_gang(
    overlay: Overlay,
    gangs: Mapping[Operation, list[Allocation]],
    priority: PreemptionPriority,
    discount: Resources,
    stage: StartStage,
) -> tuple[Placement | None, list[Allocation]]:
    """Start a job in the resources that are free on the node once one gang and the other candidates have left it.

    Return the start and the allocations of that gang on the node.
    """
    pools = overlay.view.pools
    for gang, places in sorted(gangs.items(), key=lambda one: (part_of(one[0], pools), one[0].id)):
        more = discount + Resources.sum(one.usage for one in places)
        room = overlay.room + more

        def there(starter: Operation, gang: Operation = gang, room: Resources = room) -> Resources | None:
            if starter is gang:
                # The other jobs of the operation do not end its own gang.
                return None
            return room if is_owed_room_of(gang, starter, pools, overlay.held(starter)) else None

        placed = place(overlay, priority, discount=more, there=there, most=1, most_refused=_MOST_ASKED, stage=stage)
        if placed:
            return placed[0], places
    return None, []


def _shortages(gang: Operation, starter: Operation, pools: PoolStates, held: Resources) -> Iterator[float]:
    """Yield the shortages of the operation `starter` and of the pools above it: fair share minus usage, as a fraction of the cluster.

    Shortages are measured in the gang's dominant resource. Only starving elements count, and only pools that do not contain the gang.
    """
    at, total = _dominant(gang), pools.total
    if starter.share is not None and _starves(starter.share):
        yield starter.fair_share[at] - held.share_of(total)[at]
    if pools.options.scheduling_preemption_priority_scope is PriorityScope.OPERATION_ONLY:
        return
    theirs = list(pools.pool(gang.spec.pool).path())
    for pool in pools.pool(starter.spec.pool).path():
        if pool in theirs:
            return
        if pool.item is not None and _starves(pool.item):
            yield pool.item.fair_share.total[at] - pool.used.share_of(total)[at]


def _starves(item: ShareItem) -> bool:
    return item.starvation_status is not StarvationStatus.NON_STARVING


def _dominant(gang: Operation) -> int:
    return RESOURCE_NAMES.index(gang.dominant_resource)

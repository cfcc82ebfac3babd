"""Gangs as victims where the tree has `preempt_gangs_whole`: one that runs goes as a whole, and only for more than it loses.

One job less ends all of a gang. So its jobs are no victims one by one: they go together, for an operation or a pool above it that starves,
is short of all the room that the gang has, and is short of more than the gang is owed itself. Both are told by the resource of which the
gang has the largest part. Two gangs that cannot run together are each owed a part, so neither is taken for the other: the second one
starts when the first one has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from headrace.pools.tree_options import PriorityScope
from headrace.resources import EPS, RESOURCE_NAMES, Resources
from headrace.wire.snapshots import PreemptionPriority, ShareItem, StarvationStatus
from headrace.wire.start_stages import StartStage
from headrace_allocator.decision.placing import Choice, Placement, place
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolTree
from headrace_allocator.gangs.gang import TOGETHER

#: Operations that are asked for one gang whether they are owed its room.
_MOST_ASKED: Final = 8


def goes_whole(operation: Operation, pools: PoolTree) -> bool:
    """True if its jobs may be taken together only."""
    return operation.gang is not None and pools.options.preempt_gangs_whole


def may_go_whole(operation: Operation) -> bool:
    """True for a gang whose jobs are all on nodes. Those of one that breaks up go already."""
    return operation.gang is not None and operation.gang.phase in TOGETHER


def is_owed_room_of(gang: Operation, starter: Operation, pools: PoolTree, held: Resources, freed: float = 0.0) -> bool:
    """True if a gang may go for an operation that holds so much, where other gangs already gave it a part of the cluster (`freed`)."""
    has = part_of(gang, pools)
    loses = min(has, gang.fair_share[_dominant(gang)])
    shortages = _shortages(gang, starter, pools, held)
    return any(short - freed > has - EPS and short - freed > loses + EPS for short in shortages)


def part_of(gang: Operation, pools: PoolTree) -> float:
    """The part of the cluster that a gang has, of its dominant resource."""
    return gang.held.share_of(pools.total)[_dominant(gang)]


def start_in_room_of_gang(
    overlay: Overlay,
    gangs: Mapping[Operation, list[Allocation]],
    priority: PreemptionPriority,
    discount: Resources,
    choose: Choice,
    stage: StartStage,
) -> tuple[Placement | None, list[Allocation]]:
    """Starts a job in the room that one gang, and others beside it, would leave on the node. Returns the places of that gang."""
    pools = overlay.view.pools
    for gang, places in sorted(gangs.items(), key=lambda one: (part_of(one[0], pools), one[0].id)):

        def owed(
            overlay: Overlay, room: Resources, priority: PreemptionPriority | None, gang: Operation = gang
        ) -> Operation | None:
            for _ in range(_MOST_ASKED):
                starter = choose(overlay, room, priority)
                if starter is None or is_owed_room_of(gang, starter, pools, overlay.held(starter)):
                    return starter
                overlay.refuse(starter, counts=False)
            return None

        more = Resources.sum(one.usage for one in places)
        placed = place(overlay, priority, discount=discount + more, most=1, choose=owed, stage=stage)
        if placed:
            return placed[0], places
    return None, []


def _shortages(gang: Operation, starter: Operation, pools: PoolTree, held: Resources) -> Iterator[float]:
    """What is owed and not had, of the gang's dominant resource: by the operation and the pools above it that starve without the gang."""
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

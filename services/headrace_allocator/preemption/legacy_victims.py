"""The older victim rules (`victim_rules: legacy`): starving and unsatisfied pools shield all allocations below them. Such an allocation may
be preempted only by operations below the pool that shields it.

Source: section 9.3 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from headrace.ids import PoolName
from headrace.resources import ZERO, Resources
from headrace.satisfaction import local_satisfaction
from headrace.wire.snapshots import PreemptionPriority, StarvationStatus
from headrace.wire.start_stages import StartStage
from headrace_allocator.decision.placing import Placement, place
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolState
from headrace_allocator.facts.preemption_groups import Group

#: Margin of satisfaction: an element still shields its allocations up to this much above the threshold.
_NEARLY: Final = 1e-4


def shield_of(overlay: Overlay, operation: Operation, least: Group) -> Operation | PoolState | None:
    """Return the lowest element that shields the operation's allocations; None if no element does.

    The operation, or a pool above it, shields the allocations if it starves or is not satisfied enough.
    """
    elements: list[Operation | PoolState] = [operation, *overlay.view.pools.pool(operation.spec.pool).path()]
    for element in elements:
        if _blocks(overlay, element, least):
            return element
    return None


def may_be_held(overlay: Overlay, group: Group) -> bool:
    """True if operations below a pool that shields its allocations may preempt allocations of this group inside the pool."""
    return group is Group.PREEMPTIBLE and overlay.view.pools.options.enable_conditional_preemption


def _blocks(overlay: Overlay, element: Operation | PoolState, least: Group) -> bool:
    pools = overlay.view.pools
    policy = pools.options
    if isinstance(element, Operation):
        starvation, options = element.starvation, element.options(pools)
        used, fair, demand = overlay.held(element), element.fair_share, element.demand_share
    else:
        if element.item is None or element.item.options is None:
            return False
        starvation, options = element.item.starvation_status, element.item.options
        used = element.used + overlay.pools.get(element.name, ZERO)
        fair, demand = element.item.fair_share.total, element.item.demand_share
    if policy.preemption_check_starvation and starvation is not StarvationStatus.NON_STARVING:
        return True
    is_aggressive = least is Group.AGGRESSIVELY_PREEMPTIBLE and options.allow_aggressive_preemption
    threshold = policy.preemption_satisfaction_threshold
    if is_aggressive:
        threshold = policy.aggressive_preemption_satisfaction_threshold
    # `pools.total` is the cluster total of the last snapshot, since the shares are fractions of that total. The cluster may have grown or
    # shrunk since then.
    satisfied = local_satisfaction(used.share_of(pools.total), fair, demand)
    return policy.preemption_check_satisfaction and satisfied < threshold + _NEARLY


def start(
    overlay: Overlay,
    priority: PreemptionPriority,
    stage: StartStage,
    free: Collection[Allocation],
    held: Mapping[PoolName, list[Allocation]],
) -> tuple[Placement | None, list[Allocation]]:
    """Start one job in the resources that are free on the node or could be freed for it.

    All `free` allocations could be preempted for the job. A `held` allocation could be preempted if the pool that shields it is above the
    job's operation. The limits of pools apply without their overcommit tolerance, but the usage of `free` allocations does not count
    towards limits. Return the start, and the held allocations that may be preempted for it.
    """
    going: dict[PoolName, Resources] = {}
    for one in free:
        operation = overlay.view.operations[one.operation]
        for pool in overlay.view.pools.pool(operation.spec.pool).path():
            going[pool.name] = going.get(pool.name, ZERO) + one.usage
    room = overlay.room + Resources.sum(one.usage for one in free)

    def there(operation: Operation) -> Resources:
        return room + Resources.sum(overlay.usage(one) for one in held_for(overlay, held, operation))

    overlay.pass_limits(False, going)
    discount = room - overlay.room + most_held(overlay, held)
    placed = place(overlay, priority, discount=discount, there=there, most=1, stage=stage)
    overlay.pass_limits(False)
    return (placed[0], list(held_for(overlay, held, placed[0].operation))) if placed else (None, [])


def held_for(overlay: Overlay, held: Mapping[PoolName, list[Allocation]], operation: Operation) -> Iterator[Allocation]:
    """Yield the allocations that are shielded by pools above the operation, so that the operation may preempt them."""
    for pool in overlay.view.pools.pool(operation.spec.pool).path():
        yield from held.get(pool.name, ())


def most_held(overlay: Overlay, held: Mapping[PoolName, list[Allocation]]) -> Resources:
    """Return an upper bound of what one operation could get from `held` allocations: for each resource, the largest amount of any pool."""
    most = ZERO
    for name in held:
        path = overlay.view.pools.pool(name).path()
        amount = Resources.sum(overlay.usage(one) for pool in path for one in held.get(pool.name, ()))
        most = Resources(*map(max, most.as_tuple(), amount.as_tuple()))
    return most

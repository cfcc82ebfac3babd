"""The older victim rules (`victim_rules: legacy`): pools are shielded, too. Operations below a shielded pool may still preempt inside it.

Source: section 9.3 of the specification of allocation and preemption.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from headrace.ids import PoolName
from headrace.resources import ZERO, Resources
from headrace.satisfaction import local_satisfaction
from headrace.wire.snapshots import StarvationStatus
from headrace_allocator.decision.placing import Extra
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.groups import Group
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolState

#: Margin of satisfaction above the threshold within which an element is still shielded.
_NEARLY: Final = 1e-4


def blocking_ancestor(overlay: Overlay, operation: Operation, least: Group) -> Operation | PoolState | None:
    """Return the lowest element that shields its allocations: the operation or a pool above it that starves or is not satisfied enough."""
    elements: list[Operation | PoolState] = [operation, *overlay.view.pools.pool(operation.spec.pool).path()]
    for element in elements:
        if _blocks(overlay, element, least):
            return element
    return None


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
    # The shares are fractions of the cluster at the time of the snapshot; the cluster may have grown or shrunk since then.
    satisfied = local_satisfaction(used.share_of(pools.total), fair, demand)
    return policy.preemption_check_satisfaction and satisfied < threshold + _NEARLY


def held_for(overlay: Overlay, held: Mapping[PoolName, list[Allocation]], operation: Operation) -> Iterator[Allocation]:
    """Yield the allocations that are shielded by pools above the operation, so that the operation may preempt them."""
    for pool in overlay.view.pools.pool(operation.spec.pool).path():
        yield from held.get(pool.name, ())


def most_held(overlay: Overlay, held: Mapping[PoolName, list[Allocation]]) -> Resources:
    """Return an upper bound of the resources held for any one operation: for each resource the largest amount."""
    most = ZERO
    for name in held:
        path = overlay.view.pools.pool(name).path()
        amount = Resources.sum(overlay.usage(one) for pool in path for one in held.get(pool.name, ()))
        most = Resources(*map(max, most.as_tuple(), amount.as_tuple()))
    return most


def extra_room(overlay: Overlay, free: list[Allocation], held: Mapping[PoolName, list[Allocation]]) -> Extra:
    """Return the additional resources under the older rules.

    Each operation may also use the allocations held for it. Each pool may also use the amount below it that may be freed.
    """
    going: dict[PoolName, Resources] = {}
    for allocation in free:
        operation = overlay.view.operations[allocation.operation]
        for pool in overlay.view.pools.pool(operation.spec.pool).path():
            going[pool.name] = going.get(pool.name, ZERO) + allocation.usage

    def of_operation(operation: Operation) -> Resources:
        return Resources.sum(overlay.usage(one) for one in held_for(overlay, held, operation))

    return Extra(of_operation, going)

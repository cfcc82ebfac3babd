"""Who gets the next place on a node, written plainly from sections 1.4, 8.3, 8.5 and 8.6 of the specification.

It takes shares and limits from the items of the snapshot, and sums what is in use anew for each choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from headrace.ids import OperationId
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.node_filter import matches
from headrace.pools.pool_config import FifoPoolSchedulingOrder
from headrace.resources import ZERO, Resources
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.operations import OperationState
from headrace.wire.snapshots import PreemptionPriority, SchedulingStatus, ShareItem
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import PoolState

__all__ = ["may_come_next"]


class _Best(msgspec.Struct, frozen=True):
    """The least satisfaction below an element, and the operations that may be chosen for it."""

    satisfied: float
    names: set[OperationId]


def may_come_next(overlay: Overlay, room: Resources, priority: PreemptionPriority | None) -> set[OperationId]:
    """All operations that may get the next place, several where they are equally satisfied."""
    operations = overlay.view.operations.values()
    able = [one for one in operations if _is_able(overlay, one, room, priority)]
    best = _best_below(overlay, overlay.view.pools.root, able)
    return set() if best is None else best.names


def _is_able(overlay: Overlay, one: Operation, room: Resources, priority: PreemptionPriority | None) -> bool:
    share, spec, view = one.share, one.spec, overlay.view
    if share is None or one.state is not OperationState.RUNNING or one.suspended or overlay.ready(one) <= 0:
        return False
    if priority not in (None, share.preemption_priority) or not overlay.takes_part(one.id):
        return False
    if overlay.high not in (None, view.order.is_high(one.id)) or not room.dominates(spec.resources):
        return False
    is_below = share.scheduling_status is SchedulingStatus.BELOW_FAIR_SHARE
    if spec.preemption_mode is PreemptionMode.GRACEFUL and not is_below:
        return False
    # Only one that is owed nothing and wanted more than it had may stand too far back.
    waits_in_vain = share.demand_share != share.usage_share and all(part <= 1e-9 for part in share.fair_share.total)
    if share.fifo_index is not None and not share.schedulable and waits_in_vain:
        return False
    pools = list(_with_items(view.pools.pool(spec.pool)))
    filters = [spec.scheduling_tag_filter, *(each for _, item in pools for each in _filters(item))]
    if not all(matches(formula, view.tags) for formula in filters):
        return False
    used = overlay.held(one) + spec.resources
    wanted = zip(share.demand_share, view.pools.total.as_tuple(), used.as_tuple(), strict=True)
    if any(needed > round(part * whole) for part, whole, needed in wanted):
        return False
    own = (
        spec.resource_limits_overcommit_tolerance if share.preemption_priority is not PreemptionPriority.NONE else None
    )
    limits = [(used, spec.resource_limits, own or NOTHING)]
    for pool, item in pools:
        tolerance = NOTHING if item.options is None else item.options.resource_limits_overcommit_tolerance
        limits.append((_used(overlay, pool) + spec.resources, item.limits, tolerance))
    return all(_is_within(*each, tolerant=overlay.passes_limits) for each in limits)


def _best_below(overlay: Overlay, pool: PoolState, able: list[Operation]) -> _Best | None:
    """Section 8.3: the least satisfied child of a pool, a pool being as satisfied as the best below it."""
    pools, total = overlay.view.pools, overlay.view.pools.total
    children, in_fifo_order = [], []
    for one in able:
        if pools.pool(one.spec.pool) is pool and one.share is not None:
            satisfied = _satisfied(overlay.held(one), one.share, total)
            children.append(_Best(satisfied, {one.id}))
            in_fifo_order += [(one.share.rank, one.arrival, one.id)] if _keeps_order(pool, one.share) else []
    if in_fifo_order:
        children = [_Best(0.0, {min(in_fifo_order)[-1]})]
    for name in pools.known:
        child = pools.pool(name)
        best = _best_below(overlay, child, able) if child.above is pool else None
        if best is None:
            continue
        item = child.item
        if item is not None and item.options is not None and item.options.use_pool_satisfaction_for_scheduling:
            best = _Best(_satisfied(_used(overlay, child), item, total), best.names)
        children.append(best)
    if not children:
        return None
    least = min(each.satisfied for each in children)
    found = {name for each in children if each.satisfied <= least + 1e-12 for name in each.names}
    if in_fifo_order:
        # The order says who comes, and their own satisfaction still counts for the pools above.
        operations = overlay.view.operations
        shares = [(operations[name], operations[name].share) for name in found]
        least = min(_satisfied(overlay.held(one), share, total) for one, share in shares if share is not None)
    return _Best(least, found)


def _keeps_order(pool: PoolState, share: ShareItem) -> bool:
    options = None if pool.item is None else pool.item.options
    by_order = options is not None and options.fifo_pool_scheduling_order is FifoPoolSchedulingOrder.FIFO
    return by_order and share.fifo_index is not None


def _satisfied(used: Resources, item: ShareItem, total: Resources) -> float:
    """Section 1.4."""
    usage, fair, demand = used.share_of(total), item.fair_share.total, item.demand_share
    if all(owed <= 1e-9 for owed in fair):
        return 1e9
    pairs = list(zip(usage, fair, demand, strict=True))
    if any(has > owed for has, owed, _ in pairs):
        return min(1e9, max(_over(has, owed) for has, owed, _ in pairs))
    if all(owed >= wanted for _, owed, wanted in pairs):
        return min(has / owed if owed > 0 else 1.0 for has, owed, _ in pairs)
    return max((has / owed for has, owed, wanted in pairs if 0 < owed < wanted), default=0.0)


def _over(has: float, owed: float) -> float:
    if owed > 0:
        return has / owed
    return math.inf if has > 0 else 0.0


def _used(overlay: Overlay, pool: PoolState) -> Resources:
    pools, operations = overlay.view.pools, overlay.view.operations.values()
    below = [overlay.held(one) for one in operations if pool in pools.pool(one.spec.pool).path()]
    return Resources.sum(below) if below else ZERO


def _with_items(pool: PoolState) -> Iterator[tuple[PoolState, ShareItem]]:
    return ((each, each.item) for each in pool.path() if each.item is not None)


def _filters(item: ShareItem) -> tuple[str, ...]:
    return () if item.options is None else item.options.scheduling_tag_filters


def _is_within(used: Resources, limit: PartialResources, tolerance: PartialResources, *, tolerant: bool) -> bool:
    triples: Iterator[tuple[int, int | None, int]] = zip(
        used.as_tuple(), limit.as_tuple(), tolerance.whole.as_tuple(), strict=True
    )
    return all(most is None or has <= most + extra * tolerant for has, most, extra in triples)

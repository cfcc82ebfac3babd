"""The choice of `walk`, made plainly: for each allocation every operation is looked at, from the root down.

It is slow and easily seen to be right, so the quick walk is compared with it. Both read the same view and overlay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headrace.ids import PoolName
from headrace.pools.node_filter import matches
from headrace.resources import ZERO, Resources
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.decision.holding_back import held_back, pool_limit_reached
from headrace_allocator.decision.least_satisfied import entry_of, entry_of_pool
from headrace_allocator.decision.pool_order import Entry
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.operations import Operation, waits_for_a_turn
from headrace_allocator.facts.pool_tree import PoolState


class _Child(NamedTuple):
    entry: Entry
    satisfied: float
    operation: Operation


def next_in_line_plainly(
    overlay: Overlay,
    room: Resources,
    priority: PreemptionPriority | None = None,
    *,
    more_room: Callable[[Operation], Resources] = lambda _: ZERO,
    going: Mapping[PoolName, Resources] | None = None,
    among: Iterable[Operation] | None = None,
) -> Operation | None:
    """Return the operation whose job comes first and fits into `room` on the node; None if no job fits.

    `more_room` gives the resources that an operation may use in addition. `going` are amounts that will be freed below pools, so that
    they count as free under the pools' limits. `among` limits the choice to these operations.
    """
    view = overlay.view
    used = overlay.pools
    tolerant_in = view.pools if overlay.passes_limits else None
    if going is not None:
        used = {name: used.get(name, ZERO) - going.get(name, ZERO) for name in used.keys() | going.keys()}

    def is_able(operation: Operation, room: Resources) -> bool:
        return (
            priority in (None, operation.preemption_priority)
            and is_considered(overlay, operation)
            and (room + more_room(operation)).dominates(operation.min_needed)
            and operation.id not in overlay.refused
            and all(matches(formula, view.tags) for formula in view.pools.filters_of(operation.spec))
            and held_back(operation, operation.slots.ready_count, operation.held, tolerant_in=tolerant_in) is None
            and held_back(operation, overlay.ready(operation), overlay.held(operation), tolerant_in=tolerant_in) is None
            and pool_limit_reached(operation, view.pools, used, tolerant=overlay.passes_limits) is None
        )

    if overlay.reserved is not None:
        if is_able(overlay.reserved, room):
            return overlay.reserved
        room = room - overlay.reserved.spec.resources
    operations = view.operations.values() if among is None else among
    able = [operation for operation in operations if is_able(operation, room)]
    chosen = _best_below(overlay, view.pools.root, able)
    return chosen.operation if chosen is not None else None


def is_considered(overlay: Overlay, operation: Operation) -> bool:
    """True if the operation belongs to the stage and to the batch that are looked at."""
    is_high = overlay.view.order.is_high(operation.id)
    has_no_turn = overlay.view.some_gang_gathers and waits_for_a_turn(operation)
    is_left_out = overlay.only_filtered and not overlay.view.pools.filters_of(operation.spec)
    return overlay.takes_part(operation.id) and overlay.high in (None, is_high) and not (has_no_turn or is_left_out)


def _best_below(overlay: Overlay, pool: PoolState, able: list[Operation]) -> _Child | None:
    """Return the child of a pool that comes first, among the children with an operation that may start."""
    view = overlay.view
    below: dict[PoolState, list[Operation]] = {}
    children: list[_Child] = []
    for operation in able:
        way = [*view.pools.pool(operation.spec.pool).path(), view.pools.root]
        if way[0] is pool:
            entry = entry_of(operation, view.pools, overlay.held(operation))
            children.append(_Child(entry, overlay.satisfaction(operation), operation))
        else:
            below.setdefault(way[way.index(pool) - 1], []).append(operation)
    for child, operations in below.items():
        best = _best_below(overlay, child, operations)
        assert best is not None
        entry = entry_of_pool(child, child.used + overlay.pools.get(child.name, ZERO), view.pools.total)
        if not child.follows_own_satisfaction:
            entry = (best.satisfied, *entry[1:])
        children.append(_Child(entry, entry[0], best.operation))
    return min(children, key=lambda each: each.entry, default=None)

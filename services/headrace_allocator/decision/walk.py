"""The walk down the order, which finds the operation that gets the next allocation on a node.

The walk begins at the root. In each pool it looks at the children that have a job that fits, and goes on to the child that comes first
among them, until this child is an operation. The sorted lists do not change: the changes that the decision has made so far are merged in on
the way. Cost: for each pool on the way, one step for each of its buckets and for each of its children that the decision has changed.
"""

from __future__ import annotations

import enum

from headrace.ids import OperationId
from headrace.resources import Resources
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.decision.least_satisfied import LeastSatisfied
from headrace_allocator.decision.pool_order import Entry, PoolOrder
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.operations import Operation, lasts_ms
from headrace_allocator.facts.pool_tree import PoolState


class RoomLeft(enum.StrEnum):
    """A reason why free resources of a node stay free after a heartbeat. The reasons are checked in this order."""

    NO_JOB_WAITS = "no_job_waits"
    NO_JOB_FITS = "no_job_fits"
    TAGS_DIFFER = "tags_differ"
    #: A job fits, but limits of pools or decisions made on this heartbeat hold back every operation that has such a job.
    HELD_BACK = "held_back"
    #: The node is reserved. Jobs fit into its free resources, but none of these jobs fits beside the reserved job or ends before the
    #: reserved job is expected to fit.
    RESERVED = "reserved"


#: A child of a pool: its position, and the operation that is chosen below it.
_Found = tuple[Entry, Operation]


def next_in_line(overlay: Overlay, room: Resources, priority: PreemptionPriority | None = None) -> Operation | None:
    """Return the operation that comes first among the operations with a job that fits into `room` on the node; None if no job fits.

    With `priority` only operations of that preemption priority take part. On a reserved node the operation that has the reservation comes
    first, and jobs of other operations must fit beside the reserved job. Without `priority`, a job that ends before the reserved job is
    expected to fit may start even if it does not fit beside the reserved job.
    """
    view, reserved = overlay.view, overlay.reserved
    if reserved is not None and _reserved_starts(overlay, reserved, room, priority):
        return reserved
    order, classes = view.order, view.order.classes
    fitting = _fitting(overlay, room, lends=priority is None) & order.root.classes
    if not fitting:
        return None
    fitting &= classes.matching(view.tags) & ~overlay.left_out
    if view.some_gang_gathers:
        fitting &= ~classes.waiting_gangs
    if priority is not None:
        fitting &= classes.of_priority(priority)
    found = _first(overlay, view.pools.root, order.root, fitting)
    return found[1] if found is not None else None


def borrows(overlay: Overlay, operation: Operation) -> bool:
    """True if the node is reserved for another operation, and a job of this operation ends before the other operation needs the node."""
    return overlay.reserved not in (None, operation) and 0 < lasts_ms(operation) <= overlay.view.lent_ms


def _fitting(overlay: Overlay, room: Resources, *, lends: bool) -> int:
    """Return the classes whose jobs fit into `room`. On a reserved node these are only classes whose jobs fit beside the reserved job or,
    if `lends` is true, end before the reserved job is expected to fit.
    """
    classes, reserved = overlay.view.order.classes, overlay.reserved
    if reserved is None:
        return classes.fitting(room)
    beside = classes.fitting(room - reserved.spec.resources)
    return beside | (classes.fitting(room) & classes.ending_within(overlay.view.lent_ms)) if lends else beside


def _reserved_starts(
    overlay: Overlay, operation: Operation, room: Resources, priority: PreemptionPriority | None
) -> bool:
    """True if the operation for which the node is reserved can start a job in `room`, before all other operations."""
    order = overlay.view.order
    return (
        room.dominates(operation.spec.resources)
        and priority in (None, operation.preemption_priority)
        and operation.id in order
        and operation.id not in overlay.refused
        and overlay.takes_part(operation.id)
        and not overlay.left_out >> order.number(operation.id) & 1
        and overlay.held_back(operation) is None
    )


def _first(overlay: Overlay, pool: PoolState, order: PoolOrder, fitting: int) -> _Found | None:
    """Return the child of a pool that comes first among the children with a job that fits."""
    if overlay.batch is not None and pool.name not in overlay.batch.pools:
        return None
    if pool.limited:
        fitting &= overlay.open(pool, order)
    if not fitting & order.classes:
        return None
    best = _first_operation(overlay, order, fitting) if order.buckets else None
    orders = overlay.view.order.orders
    for entry in overlay.pools_of(order, fitting):
        if best is not None and entry >= best[0]:
            break
        below = orders[entry[4]]
        if not fitting & below.classes:
            # This happens for most child pools, so the counter is raised directly, without the cost of a call.
            overlay.leafless += 1
            continue
        found = _pool(overlay, entry, below, fitting)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    return best


def _first_operation(overlay: Overlay, order: PoolOrder, fitting: int) -> _Found | None:
    """Return the first operation directly in the pool that has a job that fits. Operations of child pools are not considered."""
    view = overlay.view
    number = view.order.number
    if not overlay.passes_limits:
        fitting &= ~view.order.classes.only_by_preemption
    for entry in overlay.operations_of(order, fitting):
        name = OperationId(entry[-1])
        if fitting >> number(name) & 1 and overlay.takes_part(name):
            return entry, view.operations[name]
    return None


def _pool(overlay: Overlay, entry: Entry, order: PoolOrder, fitting: int) -> _Found | None:
    """Return the operation that would be chosen below a pool, with the pool's position; None if no job below the pool fits.

    The position contains the satisfaction by which the pool is judged: the pool's own satisfaction, or the satisfaction of the operation.
    """
    pool = overlay.view.pools.pool(order.name)
    found = _first(overlay, pool, order, fitting)
    if found is None:
        overlay.leafless += 1
        return None
    below, operation = found
    if pool.follows_own_satisfaction:
        return entry, operation
    satisfied = below[0]
    if operation.in_fifo_pool and operation.spec.pool == pool.name:
        # The entry of an operation in a fifo pool does not contain the operation's satisfaction.
        satisfied = overlay.satisfaction(operation)
    return (satisfied, *entry[1:]), operation


def why_room_is_left(overlay: Overlay) -> RoomLeft | None:
    """Return why no further job starts in the node's free resources; None if less than the tree's minimum is free."""
    view, room = overlay.view, overlay.room
    if not room.dominates(view.min_spare):
        return None
    why = why_nothing_fits(view.order, room)
    if why is not None:
        return why
    classes, waiting = view.order.classes, view.order.root.classes
    if overlay.reserved is not None and not _fitting(overlay, room, lends=True) & waiting:
        return RoomLeft.RESERVED
    fitting = classes.fitting(room) & waiting
    return RoomLeft.HELD_BACK if fitting & classes.matching(view.tags) else RoomLeft.TAGS_DIFFER


def why_nothing_fits(order: LeastSatisfied, room: Resources) -> RoomLeft | None:
    """Return why no job in the order fits into `room`, without regard to limits and reservations; None if a job fits."""
    waiting = order.root.classes
    if not waiting:
        return RoomLeft.NO_JOB_WAITS
    return None if order.classes.fitting(room) & waiting else RoomLeft.NO_JOB_FITS

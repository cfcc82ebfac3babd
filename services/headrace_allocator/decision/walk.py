"""The walk down the order: whom the next place on a node goes to.

From the root to the child that comes first among those with a job that fits, down to an operation. What a decision changed so far is
looked at beside the lists, which stay as they are. Cost: for each pool on the way its buckets, and whatever was touched in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from typing import NamedTuple

from headrace.ids import OperationId, PoolName
from headrace.resources import Resources
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.decision.least_satisfied import Entry, PoolOrder
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.operations import Operation
from headrace_allocator.facts.pool_tree import Pool

__all__ = ["next_in_line"]


class _Found(NamedTuple):
    """A child of a pool, and the operation that is chosen below it."""

    entry: Entry
    operation: Operation


def next_in_line(overlay: Overlay, room: Resources, priority: PreemptionPriority | None = None) -> Operation | None:
    """The operation whose job goes first into `room` on the node, None if none fits.

    With a priority only operations of that preemption priority take part.
    """
    view = overlay.view
    order, classes = view.order, view.order.classes
    fitting = classes.fitting(room) & order.root.classes
    if not fitting:
        return None
    fitting &= classes.matching(view.tags)
    if priority is not None:
        fitting &= classes.of_priority(priority)
    found = _first(overlay, view.pools.root, order.root, fitting)
    return found.operation if found is not None else None


def _first(overlay: Overlay, pool: Pool, order: PoolOrder, fitting: int) -> _Found | None:
    """The child of a pool that comes first among those with a job that fits."""
    fitting &= overlay.open(pool, order)
    if not fitting & order.classes:
        return None
    best = _first_operation(overlay, order, fitting)
    for entry in _pools_below(overlay, pool, order):
        if best is not None and entry >= best.entry:
            break
        found = _pool(overlay, entry, fitting)
        if found is not None and (best is None or found.entry < best.entry):
            best = found
    return best


def _pools_below(overlay: Overlay, pool: Pool, order: PoolOrder) -> Iterable[Entry]:
    """The pools of a pool in their order. None comes before its entry, though one judged by those below may come later."""
    touched = overlay.pools_below(pool)
    children: Iterable[Entry] = order.children
    if not touched:
        return children
    moved = []
    for below in touched:
        entry = overlay.entry_of_pool(below)
        moved.append(entry if below.follows_own_satisfaction else (0.0, *entry[1:]))
    return merge((entry for entry in children if entry[-1] not in overlay.pools), sorted(moved))


def _first_operation(overlay: Overlay, order: PoolOrder, fitting: int) -> _Found | None:
    number, operations, best = overlay.view.order.number, overlay.view.operations, None
    for bucket, entries in order.buckets.items():
        if not bucket.classes & fitting:
            continue
        for entry in entries:
            if best is not None and entry >= best.entry:
                break
            name = entry[-1]
            if name not in overlay.touched and fitting >> number(name) & 1:
                best = _Found(entry, operations[name])
                break
    for entry in overlay.touched_in(order.name):
        if best is not None and entry >= best.entry:
            break
        name = OperationId(entry[-1])
        if fitting >> number(name) & 1:
            return _Found(entry, operations[name])
    return best


def _pool(overlay: Overlay, entry: Entry, fitting: int) -> _Found | None:
    """A pool with the operation that would be chosen below it, and the satisfaction that counts for it."""
    view = overlay.view
    name = PoolName(entry[-1])
    pool, order = view.pools.pool(name), view.order.pool(name)
    found = _first(overlay, pool, order, fitting)
    if found is None or pool.follows_own_satisfaction:
        return found and _Found(entry, found.operation)
    satisfied = found.entry[0]
    if found.operation.in_fifo_pool and found.operation.spec.pool == pool.name:
        # Its entry does not tell.
        satisfied = overlay.satisfaction(found.operation)
    return _Found((satisfied, *entry[1:]), found.operation)

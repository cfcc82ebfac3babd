"""Checks of the invariants of a tree's book. One check covers one pool or one operation, so that no check takes long.

Each check returns a description of each broken invariant.
"""

from __future__ import annotations

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.wire.placements import TreePlacement
from headrace_admission.state.tree_book import TreeBook


def pools_to_check(book: TreeBook) -> set[PoolName]:
    """Return the root, all configured and ephemeral pools, and the pools in which operations are."""
    return {ROOT_POOL, *book.rules.pools, *book.ephemeral.by_name, *book.in_pool, *book.queues}


def holds(book: TreeBook, operation: OperationId, placement: TreePlacement) -> bool:
    """True if every list of the book contains the operation exactly where its placement says."""
    member = book.members.get(operation)
    return (
        member is not None
        and (member.pool, member.ticket, member.blocked_by) == (placement.pool, placement.ticket, placement.blocked_by)
        and operation in book.in_pool.get(member.pool, ())
        and (member.queue is None or operation in book.queues.get(member.queue, ()))
    )


def check_pool(book: TreeBook, pool: PoolName) -> list[str]:
    """Return a description of each broken invariant of one pool."""
    broken = [
        f"{name} is listed in {pool}, but is not a member there"
        for name in book.in_pool.get(pool, ())
        if name not in book.members or book.members[name].pool != pool
    ]
    broken += [*_check_counts(book, pool), *_check_queue(book, pool)]
    is_in_use = pool in book.in_pool or pool in book.ephemeral.below or pool in book.queues
    if pool in book.ephemeral.by_name and not is_in_use:
        broken.append(f"ephemeral pool {pool} is empty")
    return broken


def _check_counts(book: TreeBook, pool: PoolName) -> list[str]:
    members = [book.members[name] for name in book.in_pool.get(pool, ()) if name in book.members]
    total = len(members)
    slots = [book.is_lightweight(pool, member.vanilla) for member in members if member.holds_slot]
    running, lightweight = slots.count(False), slots.count(True)
    for below in map(book.counts, book.below(pool)):
        total += below.total
        running += below.running
        lightweight += below.lightweight
    broken = []
    if book.counts(pool).as_tuple() != (total, running, lightweight):
        expected = (total, running, lightweight)
        broken.append(f"{pool} counts {book.counts(pool).as_tuple()}, but it and the pools below have {expected}")
    if pool == ROOT_POOL and len(book.members) != total:
        broken.append(f"the tree has {len(book.members)} members, but its pools have {total}")
    return broken


def _check_queue(book: TreeBook, pool: PoolName) -> list[str]:
    queue = book.queues.get(pool, {})
    broken = [
        f"{name} is in the queue of {pool}, but does not wait there"
        for name, member in queue.items()
        if book.members.get(name) is not member or member.blocked_by != pool
    ]
    tickets = [member.ticket for member in queue.values()]
    if tickets != sorted(tickets) or (pool in book.queues and not queue):
        broken.append(f"queue of {pool} is empty or not in the order of the tickets: {tickets}")
    return broken

"""Promotion: free running slots are given to waiting operations, each queue in the order of arrival.

The queue of the pool that lost an operation comes before the queues of the pools above it. If another pool blocks a candidate by now,
the candidate goes to the end of that pool's queue, and the slot is offered to the next candidate. Unless the tree promotes only on
scans, `settle` follows every change that may let an operation run, so no operation waits at a pool with a free slot
(`check_settled`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.wire.placements import UPSTREAM, TreePlacement
from headrace_admission.decisions.limits import blocking_pool
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.state.operation import Operation
from headrace_admission.state.tree_book import Member, TreeBook


def offer_slots(transaction: Transaction, tree: TreeName, chain: Iterable[PoolName]) -> None:
    """Offer a freed slot to the queues of the pools in `chain`: the pool that lost an operation, then each pool above it."""
    for pool in chain:
        _drain(transaction, tree, pool)


def admit(transaction: Transaction, operation: Operation) -> None:
    """Run an operation for which the wait for other operations is over, or let it join the end of a queue, in each tree."""
    for tree, placement in list(operation.placements.items()):
        if placement.blocked_by != UPSTREAM:
            continue
        book = transaction.state.books[tree]
        blocked_by = blocking_pool(book, placement.pool, vanilla=operation.is_vanilla)
        transaction.place(operation.id, TreePlacement(tree, placement.pool, book.next_ticket(), blocked_by))


def release_lightweight(transaction: Transaction, tree: TreeName) -> None:
    """Start the waiting operations of a tree that are lightweight by now, so that no running limit applies to them any more."""
    book = transaction.state.books[tree]
    if not any(pool.for_lightweight_operations for pool in book.rules.pools.values()):
        return
    for member in _waiting(book, book.queues):
        if book.is_lightweight(member.pool, member.vanilla):
            _move(transaction, tree, member, None)


def scan(transaction: Transaction) -> None:
    """Check all waiting operations again, the longest waiting first.

    Operations that wait at the root stay there, as in YTsaurus.
    """
    state = transaction.state
    for tree in state.configuration.trees:
        book = state.books[tree]
        _judge_anew(transaction, tree, [pool for pool in book.queues if pool != ROOT_POOL])
        if not book.rules.promote_only_on_scan:
            settle(transaction, tree, pools_moved=False)


def settle(transaction: Transaction, tree: TreeName, *, pools_moved: bool) -> None:
    """Assign every free slot, from the leaves up. Among pools of one level the longest waiting operation comes first."""
    book = transaction.state.books[tree]
    if pools_moved:
        strayed = [pool for pool in book.queues if any(True for _ in _strays(book, pool))]
        _judge_anew(transaction, tree, strayed)
    for pool in sorted(book.queues, key=lambda pool: _turn(book, pool)):
        _drain(transaction, tree, pool)


def check_settled(book: TreeBook, pool: PoolName) -> list[str]:
    """Return a description of the operations that wait at a pool with a free slot. A tree that promotes at once has none."""
    if pool not in book.queues:
        return []
    broken = [f"{m.operation} waits at {pool}, which is not above {m.pool}" for m in _strays(book, pool)]
    if book.free_slots(pool):
        broken.append(f"{len(book.queues[pool])} wait at {pool}, which has {book.free_slots(pool)} slots free")
    return broken


def _turn(book: TreeBook, pool: PoolName) -> tuple[int, int]:
    first = next(iter(book.queues[pool].values()))
    return -sum(1 for _ in book.upwards(pool)), first.ticket


def _drain(transaction: Transaction, tree: TreeName, pool: PoolName) -> None:
    """Promote from the front of a pool's queue while the pool has a free slot."""
    book = transaction.state.books[tree]
    while pool in book.queues and book.free_slots(pool):
        member = next(iter(book.queues[pool].values()))
        _move(transaction, tree, member, blocking_pool(book, member.pool, vanilla=member.vanilla))


def _judge_anew(transaction: Transaction, tree: TreeName, pools: Iterable[PoolName]) -> None:
    """Move each waiting operation to the pool that blocks it now, or let it run if no pool does."""
    book = transaction.state.books[tree]
    # The loop frees no slots, so a full pool stays full.
    full: dict[PoolName, PoolName] = {}
    for member in _waiting(book, pools):
        pool = member.pool
        blocks = full.get(pool)
        if blocks is None or book.is_lightweight(pool, member.vanilla):
            blocks = blocking_pool(book, pool, vanilla=member.vanilla)
            if blocks is not None:
                full[pool] = blocks
        if blocks != member.blocked_by:
            _move(transaction, tree, member, blocks)


def _move(transaction: Transaction, tree: TreeName, member: Member, blocked_by: PoolName | None) -> None:
    ticket = transaction.state.books[tree].next_ticket()
    transaction.place(member.operation, TreePlacement(tree, member.pool, ticket, blocked_by))


def _waiting(book: TreeBook, pools: Iterable[PoolName]) -> list[Member]:
    """Return the operations in the queues of these pools as one list, in the order of arrival (by ticket)."""
    return list(heapq.merge(*(list(book.queues[pool].values()) for pool in pools), key=lambda member: member.ticket))


def _strays(book: TreeBook, pool: PoolName) -> Iterator[Member]:
    """Yield operations that wait at `pool`, although `pool` is not above the operation's own pool any more."""
    below: dict[PoolName, bool] = {}
    for member in book.queues[pool].values():
        if member.pool not in below:
            below[member.pool] = pool in book.upwards(member.pool)
        if not below[member.pool]:
            yield member

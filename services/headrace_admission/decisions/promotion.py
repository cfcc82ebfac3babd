"""Who gets a running slot that is free: each queue in the order of arrival, the pool that lost an operation before those above it.

A candidate that another pool above it blocks meanwhile goes to the end of that pool's queue, and the slot is offered to the next.
Unless the tree promotes only on scans, `settle` follows every change after which somebody who waits might run, so that nobody waits
at a pool that has a slot free (`check_settled`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.wire.log import OperationPlaced
from headrace.wire.placements import TreePlacement
from headrace_admission.state.tree_book import Member, TreeBook

__all__ = ["Place", "check_settled", "offer_slots", "release_lightweight", "scan", "settle"]

#: Records that an operation stands there from now on; the book knows it when the call returns.
Place = Callable[[OperationPlaced], None]


def offer_slots(tree: TreeName, book: TreeBook, chain: Iterable[PoolName], record: Place) -> None:
    """A slot was given back in the first pool of `chain`: whoever waits there, and then further up, may have it."""
    for pool in chain:
        _drain(tree, book, pool, record)


def release_lightweight(tree: TreeName, book: TreeBook, record: Place) -> None:
    """Who waits in a pool in which it is lightweight by now need not wait."""
    if not any(pool.lightweight for pool in book.rules.pools.values()):
        return
    for member in _waiting(book, book.queues):
        if book.is_lightweight(member.pool, vanilla=member.vanilla):
            _move(tree, book, member, None, record)


def scan(tree: TreeName, book: TreeBook, record: Place) -> None:
    """Judges everybody anew who waits at a pool, the longest waiting first; who waits at the root is left alone, as upstream."""
    _judge_anew(tree, book, [pool for pool in book.queues if pool != ROOT_POOL], record)


def settle(tree: TreeName, book: TreeBook, record: Place, *, moved: bool) -> None:
    """Gives out every slot that is free, from the leaves up, among pools of one level where somebody has waited longest first.

    `moved` tells that pools may stand elsewhere than they did.
    """
    if moved:
        strayed = [pool for pool in book.queues if _has_strayed(book, pool)]
        _judge_anew(tree, book, strayed, record)
    for pool in sorted(book.queues, key=lambda pool: _turn(book, pool)):
        _drain(tree, book, pool, record)


def check_settled(book: TreeBook) -> list[str]:
    """Who waits though it need not, in words; what always holds in a tree that promotes at once."""
    broken = []
    for pool, queue in book.queues.items():
        if book.free_slots(pool):
            broken.append(f"{len(queue)} wait at {pool}, which has {book.free_slots(pool)} slots free")
        broken += [f"{m.operation} waits at {pool}, which is not above {m.pool}" for m in _strays(book, pool)]
    return broken


def _turn(book: TreeBook, pool: PoolName) -> tuple[int, int]:
    first = next(iter(book.queues[pool].values()))
    return -sum(1 for _ in book.upwards(pool)), first.ticket


def _drain(tree: TreeName, book: TreeBook, pool: PoolName, record: Place) -> None:
    while pool in book.queues and book.free_slots(pool):
        member = next(iter(book.queues[pool].values()))
        _move(tree, book, member, book.blocking_pool(member.pool, vanilla=member.vanilla), record)


def _judge_anew(tree: TreeName, book: TreeBook, pools: Iterable[PoolName], record: Place) -> None:
    # Slots are only taken meanwhile: a pool that is full stays full.
    full: dict[PoolName, PoolName] = {}
    for member in _waiting(book, pools):
        pool = member.pool
        known = full.get(pool)
        if known is None or book.is_lightweight(pool, vanilla=member.vanilla):
            known = book.blocking_pool(pool, vanilla=member.vanilla)
            if known is not None:
                full[pool] = known
        if known != member.blocked_by:
            _move(tree, book, member, known, record)


def _move(tree: TreeName, book: TreeBook, member: Member, blocked_by: PoolName | None, record: Place) -> None:
    record(
        OperationPlaced(
            operation=member.operation,
            placement=TreePlacement(tree, member.pool, ticket=book.next_ticket(), blocked_by=blocked_by),
        )
    )


def _waiting(book: TreeBook, pools: Iterable[PoolName]) -> list[Member]:
    """A copy, in the order of the tickets."""
    return list(heapq.merge(*(list(book.queues[pool].values()) for pool in pools), key=lambda member: member.ticket))


def _has_strayed(book: TreeBook, pool: PoolName) -> bool:
    return any(True for _ in _strays(book, pool))


def _strays(book: TreeBook, pool: PoolName) -> Iterable[Member]:
    """Who waits at `pool` without standing below it any more."""
    below: dict[PoolName, bool] = {}
    for member in book.queues[pool].values():
        if member.pool not in below:
            below[member.pool] = pool in book.upwards(member.pool)
        if not below[member.pool]:
            yield member

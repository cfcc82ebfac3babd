"""What a change of the configuration does to pools that live by their operations, and to who waits.

Everything is judged by what is there, not by what changed, so that a configuration that changed while nobody looked is taken as well.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.ids import PoolName, TreeName
from headrace.wire.log import EphemeralPoolAdopted, EphemeralPoolSet, OperationPlaced
from headrace.wire.placements import EphemeralPool, TreePlacement
from headrace_admission.decisions.promotion import release_lightweight, settle
from headrace_admission.decisions.target_pool import default_parent, laid_on
from headrace_admission.state.rules import TreeRules
from headrace_admission.state.tree_book import TreeBook

__all__ = ["TreeEvent", "fifo_above_ephemeral", "reconfigure"]

TreeEvent = EphemeralPoolSet | EphemeralPoolAdopted | OperationPlaced


def fifo_above_ephemeral(book: TreeBook, rules: TreeRules) -> dict[PoolName, list[PoolName]]:
    """Pools that `rules` make fifo though ephemeral pools live below them, which a fifo pool cannot have."""
    return {
        parent: sorted(pools)
        for parent, pools in book.ephemeral_below.items()
        if parent in rules.pools and rules.pools[parent].fifo and not book.rules_of(parent).fifo
    }


def reconfigure(tree: TreeName, book: TreeBook, rules: TreeRules, record: Callable[[TreeEvent], None]) -> None:
    """Takes other rules. Nobody is stopped or refused by them."""
    moved = _stands(book.rules) != _stands(rules)
    book.configure(rules)
    for pool in [pool for pool in book.ephemeral if pool in rules.pools]:
        record(EphemeralPoolAdopted(tree, pool))
    for pool in _left_over(book):
        # With default settings and what its new parent lays on it, as if it had been made there.
        record(EphemeralPoolSet(tree, laid_on(book, EphemeralPool(pool, default_parent(book, pool)))))
        moved = True
    switched_off = {name for name, ephemeral in book.ephemeral.items() if _hub_is_off(book, ephemeral)}
    for ephemeral in list(book.ephemeral.values()):
        if ephemeral.name not in switched_off and (laid := laid_on(book, ephemeral)) != ephemeral:
            record(EphemeralPoolSet(tree, laid))
    _empty_into_hubs(tree, book, switched_off, record)
    moved = moved or bool(switched_off)
    _rehome(tree, book, record)
    release_lightweight(tree, book, record)
    if not rules.promote_only_on_scan:
        settle(tree, book, record, moved=moved)


def _stands(rules: TreeRules) -> dict[PoolName, PoolName]:
    return {name: pool.parent for name, pool in rules.pools.items()}


def _left_over(book: TreeBook) -> list[PoolName]:
    """Pools that are not configured any more and cannot be gone yet; the one below which the others come is the first."""
    used = [*book.ephemeral_below, *book.in_pool]
    found = dict.fromkeys(pool for pool in used if not book.exists(pool))
    return sorted(found, key=lambda pool: pool != book.rules.default_parent_pool)


def _hub_is_off(book: TreeBook, pool: EphemeralPool) -> bool:
    parent = book.rules.pools.get(pool.parent)
    return pool.of_hub and parent is not None and not parent.create_ephemeral_subpools


def _empty_into_hubs(tree: TreeName, book: TreeBook, pools: set[PoolName], record: Callable[[TreeEvent], None]) -> None:
    """Moves operations of hubs that are none any more into the hub itself; who waits elsewhere keeps its place there."""
    members = [book.members[name] for pool in pools for name in book.in_pool.get(pool, ())]
    for member in sorted(members, key=lambda member: member.ticket):
        hub = book.parent(member.pool)
        strands = member.blocked_by in pools
        ticket = book.next_ticket() if strands else member.ticket
        blocked_by = hub if strands else member.blocked_by
        record(OperationPlaced(member.operation, TreePlacement(tree, hub, ticket, blocked_by)))


def _rehome(tree: TreeName, book: TreeBook, record: Callable[[TreeEvent], None]) -> None:
    """Who waits at a pool that is gone waits at the next that blocks it, else at its own, until slots are given out."""
    homeless = [member for pool, queue in book.queues.items() if not book.exists(pool) for member in queue.values()]
    for member in sorted(homeless, key=lambda member: member.ticket):
        blocked_by = book.full_pool(member.pool) or member.pool
        record(OperationPlaced(member.operation, TreePlacement(tree, member.pool, book.next_ticket(), blocked_by)))

"""A change of a tree's configuration, and its consequences for ephemeral pools and waiting operations.

Everything is judged by the present tree, not by what changed. So a configuration that changed while admission was not running
is applied as well.
"""

from __future__ import annotations

from headrace.ids import PoolName, TreeName
from headrace.pools.tree_conflicts import fifo_above_ephemeral
from headrace.wire.log import EphemeralPoolAdopted, EphemeralPoolSet
from headrace.wire.placements import EphemeralPool, TreePlacement
from headrace_admission.decisions.limits import first_pool_without_running_slot
from headrace_admission.decisions.promotion import release_lightweight, settle
from headrace_admission.decisions.target_pool import default_parent, with_parent_settings
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.state.rules import HeldBack, TreeRules
from headrace_admission.state.tree_book import TreeBook


def take_rules(transaction: Transaction, tree: TreeName, rules: TreeRules) -> None:
    """Apply a tree's rules, or hold them back while ephemeral pools live below a pool that would become fifo."""
    state = transaction.state
    if tree in state.configuration.trees:
        book = state.books[tree]
        reason = fifo_above_ephemeral(
            book.ephemeral.below,
            is_fifo=lambda pool: book.rules_of(pool).fifo,
            becomes_fifo=lambda pool: pool in rules.pools and rules.pools[pool].fifo,
        )
        if reason:
            state.configure(tree, HeldBack(rules, reason))
            return
    book = state.books.get(tree, TreeBook())
    pools_moved = _parents(book.rules) != _parents(rules)
    state.configure(tree, rules)
    pools_moved |= _take_pools(transaction, tree)
    _rehome(transaction, tree)
    release_lightweight(transaction, tree)
    if not rules.promote_only_on_scan:
        settle(transaction, tree, pools_moved=pools_moved)


def take_held_back(transaction: Transaction, tree: TreeName) -> None:
    """Try again to apply a configuration that waits for the end of ephemeral pools."""
    held = transaction.state.configuration.held_back.get(tree)
    if held is not None:
        take_rules(transaction, tree, held.rules)


def _parents(rules: TreeRules) -> dict[PoolName, PoolName]:
    return {name: pool.parent for name, pool in rules.pools.items()}


def _take_pools(transaction: Transaction, tree: TreeName) -> bool:
    """Bring the ephemeral pools in line with the rules. Return True if the parent of a pool may have changed."""
    book = transaction.state.books[tree]
    for name in [name for name in book.ephemeral.by_name if name in book.rules.pools]:
        transaction.record(EphemeralPoolAdopted(tree, name))
    left_over = _left_over(book)
    for name in left_over:
        # The pool becomes ephemeral. It gets default settings and those that its new parent gives to ephemeral pools.
        pool = EphemeralPool(name, default_parent(book, name))
        transaction.record(EphemeralPoolSet(tree, with_parent_settings(book, pool)))
    switched_off = {name for name, pool in book.ephemeral.by_name.items() if _hub_is_off(book, pool)}
    for pool in list(book.ephemeral.by_name.values()):
        if pool.name not in switched_off and (changed := with_parent_settings(book, pool)) != pool:
            transaction.record(EphemeralPoolSet(tree, changed))
    _empty_into_hubs(transaction, tree, switched_off)
    return bool(left_over or switched_off)


def _left_over(book: TreeBook) -> list[PoolName]:
    """Return the pools that are not configured any more but are still in use.

    The tree's default parent pool comes first, because the other pools may get it as their parent.
    """
    used = [*book.ephemeral.below, *book.in_pool]
    found = dict.fromkeys(pool for pool in used if not book.exists(pool))
    return sorted(found, key=lambda pool: pool != book.rules.default_parent_pool)


def _hub_is_off(book: TreeBook, pool: EphemeralPool) -> bool:
    parent = book.rules.pools.get(pool.parent)
    return pool.of_hub and parent is not None and not parent.create_ephemeral_subpools


def _empty_into_hubs(transaction: Transaction, tree: TreeName, pools: set[PoolName]) -> None:
    """Move the operations of `pools`, which a former hub made for its users, into the hub itself.

    Operations that wait at other pools keep their position in the queues of those pools.
    """
    book = transaction.state.books[tree]
    members = [book.members[name] for pool in pools for name in book.in_pool.get(pool, ())]
    for member in sorted(members, key=lambda member: member.ticket):
        hub = book.parent(member.pool)
        strands = member.blocked_by in pools
        ticket = book.next_ticket() if strands else member.ticket
        blocked_by = hub if strands else member.blocked_by
        transaction.place(member.operation, TreePlacement(tree, hub, ticket, blocked_by))


def _rehome(transaction: Transaction, tree: TreeName) -> None:
    """Move operations that wait at a removed pool to another queue.

    The new queue of an operation is that of the first full pool from the operation's own pool up to the root. If no pool is full, the
    operation waits at its own pool.
    """
    book = transaction.state.books[tree]
    homeless = [member for pool, queue in book.queues.items() if not book.exists(pool) for member in queue.values()]
    for member in sorted(homeless, key=lambda member: member.ticket):
        blocked_by = first_pool_without_running_slot(book, member.pool) or member.pool
        transaction.place(member.operation, TreePlacement(tree, member.pool, book.next_ticket(), blocked_by))

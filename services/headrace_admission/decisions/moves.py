"""Moving an operation to another pool while it runs or waits: it must be able to run there at once, or it stays where it is."""

from __future__ import annotations

from headrace.ids import PoolName, TreeName
from headrace.wire.refusals import LimitBroken
from headrace_admission.decisions.limits import broken_limit, too_many_pools
from headrace_admission.decisions.target_pool import Target
from headrace_admission.state.tree_book import Member, TreeBook

__all__ = ["limit_on_move"]


def limit_on_move(tree: TreeName, book: TreeBook, member: Member, target: Target) -> LimitBroken | None:
    """The limit that keeps it from running in `target`; None when it may.

    Pools above both the old and the new place do not matter to an operation that counts there as running already. They do to one that
    waits or is lightweight, though nothing of theirs may change by the move, as upstream.
    """
    crowded = too_many_pools(tree, book, target, member.user)
    if crowded is not None:
        return crowded
    runs = member.holds_slot and not book.is_lightweight(member.pool, vanilla=member.vanilla)
    shared: frozenset[PoolName] = frozenset(book.upwards(member.pool)) if runs else frozenset()
    lightweight = target.made is None and book.is_lightweight(target.pool, vanilla=member.vanilla)
    return broken_limit(tree, book, target, running=not lightweight, skipped=shared)

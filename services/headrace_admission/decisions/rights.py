"""Who may run operations in a pool and change those of others."""

from __future__ import annotations

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import Person, Right, may
from headrace.wire.refusals import NotAllowed
from headrace_admission.decisions.target_pool import Target
from headrace_admission.state.tree_book import TreeBook

__all__ = ["holds", "kept_out"]


def holds(book: TreeBook, person: Person, right: Right, pool: PoolName) -> bool:
    """Whether somebody has a right on a pool; on an ephemeral one by the nearest configured pool above it."""
    if book.rules.configured is None:
        return True
    named = next(each for each in book.upwards(pool) if each == ROOT_POOL or each in book.rules.pools)
    return may(book.rules.configured, person, right, named)


def kept_out(book: TreeBook, person: Person, target: Target) -> NotAllowed | None:
    """The refusal where somebody may not run operations in a pool; None where they may."""
    pool = target.made.parent if target.made is not None else target.pool
    if holds(book, person, Right.USE, pool):
        return None
    return NotAllowed(who=person.name, what=f"run operations in pool {target.pool}: the right `use` is lacking")

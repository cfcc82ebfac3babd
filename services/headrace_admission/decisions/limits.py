"""What keeps an operation out of a pool: names, flags, and the limits on how many there may be."""

from __future__ import annotations

import msgspec

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.near import near
from headrace.wire.refusals import BadRequest, LimitBroken, NotFound, Refusal, WrongState
from headrace_admission.decisions.target_pool import NAME_RULE, Target, is_name_for_users
from headrace_admission.state.tree_book import TreeBook

__all__ = ["Asked", "broken_limit", "too_many_pools", "unfit_pool"]


class Asked(msgspec.Struct, frozen=True):
    """What the checks of a pool need to know of an operation."""

    tree: TreeName
    pool: PoolName
    user: str
    gang: bool = False
    #: The pool must exist already.
    specified_pools_only: bool = False


def unfit_pool(book: TreeBook, asked: Asked, target: Target) -> Refusal | None:
    """Why the pool is none for this operation whatever runs there now; None when it is one."""
    if asked.pool == ROOT_POOL:
        return BadRequest("pool", asked.pool, "a pool below the root: no operation runs in the root itself")
    if not book.exists(asked.pool):
        if not is_name_for_users(asked.pool):
            return BadRequest("pool name", asked.pool, NAME_RULE)
        if asked.specified_pools_only:
            return NotFound("pool", asked.pool, near=near(asked.pool, book.rules.pools))
    rules = book.rules_of(target.pool)
    if rules.forbid_immediate_operations:
        return WrongState(
            "pool",
            target.pool,
            "closed to operations of its own (forbid_immediate_operations)",
            "one of the pools below it",
        )
    gangs_anywhere = not book.rules.allow_gang_operations_only_in_fifo_pools or rules.always_allow_gang_operations
    if asked.gang and not gangs_anywhere and not _is_fifo(book, target):
        return WrongState("pool", target.pool, "in mode fair_share", "a fifo pool: gang operations run in no other")
    return None


def broken_limit(
    tree: TreeName, book: TreeBook, target: Target, *, running: bool = False, skipped: frozenset[PoolName] = frozenset()
) -> LimitBroken | None:
    """The first pool from the target up that may take no more operations, or with `running` let no more run; None: all may.

    A pool that would be made has no limits yet. Pools in `skipped` are not asked.
    """
    first = target.made.parent if target.made is not None else target.pool
    for pool in book.upwards(first):
        if pool in skipped:
            continue
        counts = book.counts(pool)
        limit = book.max_operation_count(pool)
        if counts.total >= limit:
            return LimitBroken("max_operation_count", limit, counts.total, pool=pool, tree=tree)
        limit = book.max_running_operation_count(pool)
        if running and counts.running >= limit:
            return LimitBroken("max_running_operation_count", limit, counts.running, pool=pool, tree=tree)
    return None


def too_many_pools(tree: TreeName, book: TreeBook, target: Target, user: str) -> LimitBroken | None:
    """The cap on ephemeral pools of one user; a hub's do not count."""
    if target.made is None or target.made.of_hub:
        return None
    mine = book.pools_of_user.get(user, set())
    limit = book.rules.max_ephemeral_pools_per_user
    if len(mine) < limit:
        return None
    return LimitBroken(
        "max_ephemeral_pools_per_user", limit, len(mine), pool=target.pool, tree=tree, user=user, holders=sorted(mine)
    )


def _is_fifo(book: TreeBook, target: Target) -> bool:
    return target.made.mode == "fifo" if target.made is not None else book.is_fifo(target.pool)

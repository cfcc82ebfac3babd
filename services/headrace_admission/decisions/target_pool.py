"""Where pools come from that nobody configured, how many a user may have, and what their parents lay on them."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.wire.placements import EphemeralPool
from headrace_admission.state.tree_book import TreeBook

__all__ = ["NAME_RULE", "Target", "default_parent", "is_name_for_users", "laid_on", "target_pool"]

_NAME: Final = re.compile(r"[-_a-z0-9:A-Z]{1,100}\Z")
NAME_RULE: Final = "1 to 100 of a-z, A-Z, 0-9, '-', '_' and ':'"


class Target(msgspec.Struct, frozen=True):
    """The pool an operation comes into: one there is, or one that would be made for it."""

    pool: PoolName
    #: What would be made; None: the pool exists.
    made: EphemeralPool | None = None
    #: The hub that was asked for, where the pool is one of its.
    hub: PoolName | None = None


def is_name_for_users(name: str) -> bool:
    """Whether a person may name a pool so that does not exist."""
    return _NAME.match(name) is not None


def target_pool(book: TreeBook, asked: PoolName, user: str) -> Target:
    """The pool in which an operation of `user` that asks for `asked` would be."""
    if not book.exists(asked):
        parent = default_parent(book, asked, user)
        return Target(asked, laid_on(book, EphemeralPool(asked, parent, user)))
    if not book.rules_of(asked).create_ephemeral_subpools:
        return Target(asked)
    name = PoolName(f"{asked}${user}")
    if book.exists(name):
        return Target(name, hub=asked)
    return Target(name, laid_on(book, EphemeralPool(name, asked, of_hub=True)), hub=asked)


def default_parent(book: TreeBook, pool: PoolName, user: str = "") -> PoolName:
    """The first of the user's default pool, the tree's, and the root that exists and may have pools below it."""
    candidates = (book.rules.user_to_default_pool.get(user), book.rules.default_parent_pool)
    for each in candidates:
        # A pool does not come below itself, nor below one that lives below it.
        if each is not None and book.exists(each) and not book.is_fifo(each) and pool not in book.upwards(each):
            return each
    return ROOT_POOL


def laid_on(book: TreeBook, pool: EphemeralPool) -> EphemeralPool:
    """The pool with what its parent lays on pools below it now; as it is where the parent says nothing."""
    subpools = book.rules_of(pool.parent).ephemeral_subpools if pool.parent != ROOT_POOL else None
    if subpools is None:
        return pool
    return msgspec.structs.replace(
        pool,
        mode="fifo" if subpools.fifo else "fair_share",
        max_operation_count=subpools.max_operation_count,
        max_running_operation_count=subpools.max_running_operation_count,
        resource_limits=subpools.resource_limits,
    )

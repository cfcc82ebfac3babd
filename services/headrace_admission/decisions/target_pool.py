"""The pool into which an operation comes. An ephemeral one that is made for it gets its parent and settings here."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.wire.placements import EphemeralPool
from headrace_admission.state.tree_book import TreeBook

_NAME: Final = re.compile(r"[-_a-z0-9:A-Z]{1,100}\Z")
NAME_RULE: Final = "1 to 100 of a-z, A-Z, 0-9, '-', '_' and ':'"


class Target(msgspec.Struct, frozen=True):
    """The pool an operation comes into: a known one, or one that would be made for it."""

    pool: PoolName
    #: The ephemeral pool to make; None: the pool exists.
    made: EphemeralPool | None = None


def is_name_for_users(name: str) -> bool:
    """True if a person may give this name to a new ephemeral pool."""
    return _NAME.match(name) is not None


def target_pool(book: TreeBook, asked: PoolName, user: str) -> Target:
    """The pool for an operation of `user` that asks for `asked`: in a hub it is the user's own, `hub$user`."""
    if not book.exists(asked):
        parent = default_parent(book, asked, user)
        return Target(asked, with_parent_settings(book, EphemeralPool(asked, parent, user)))
    if not book.rules_of(asked).create_ephemeral_subpools:
        return Target(asked)
    name = PoolName(f"{asked}${user}")
    if book.exists(name):
        return Target(name)
    return Target(name, with_parent_settings(book, EphemeralPool(name, asked, of_hub=True)))


def default_parent(book: TreeBook, pool: PoolName, user: str = "") -> PoolName:
    """The parent of a new ephemeral pool: the user's default pool, else the tree's, else the root.

    A default pool is passed over if it does not exist, is fifo, or lives below the new pool itself.
    """
    candidates = (book.rules.user_to_default_pool.get(user), book.rules.default_parent_pool)
    for each in candidates:
        if each is not None and book.exists(each) and not book.is_fifo(each) and pool not in book.upwards(each):
            return each
    return ROOT_POOL


def with_parent_settings(book: TreeBook, pool: EphemeralPool) -> EphemeralPool:
    """The pool with the settings that its parent gives to ephemeral subpools now. Unchanged if it gives none."""
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

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
    #: The ephemeral pools to make, the pool itself last; empty: it exists.
    made: tuple[EphemeralPool, ...] = ()
    #: The placement rule that chose it; empty where the person did.
    rule: str = ""

    @property
    def nearest_existing(self) -> PoolName:
        """The pool, or else the one that exists above it."""
        return self.made[0].parent if self.made else self.pool


def is_name_for_users(name: str) -> bool:
    """True if a person may give this name to a new ephemeral pool."""
    return _NAME.match(name) is not None


def target_pool(book: TreeBook, asked: PoolName, user: str, *, of_user: bool = False) -> Target:
    """The pool for an operation of `user` that asks for `asked`. In a hub, or with `of_user`, it is the user's own, `asked$user`."""
    if book.exists(asked):
        made: tuple[EphemeralPool, ...] = ()
        own, is_fifo = of_user or book.rules_of(asked).create_ephemeral_subpools, book.is_fifo(asked)
    else:
        parent = default_parent(book, asked, user)
        made = (with_parent_settings(book, EphemeralPool(asked, parent, user)),)
        own, is_fifo = of_user, made[0].mode == "fifo"
    # No pool lives below a fifo one.
    if not own or is_fifo:
        return Target(asked, made)
    name = PoolName(f"{asked}${user}")
    if book.exists(name):
        return Target(name)
    return Target(name, (*made, with_parent_settings(book, EphemeralPool(name, asked, of_hub=True))))


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

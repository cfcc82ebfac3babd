"""The pool that an operation goes to. A new ephemeral pool gets its parent and its settings here."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import Person
from headrace.pools.pool_config import GROUP
from headrace.wire.placements import EphemeralPool
from headrace_admission.state.tree_book import TreeBook

_NAME: Final = re.compile(r"[-_a-z0-9:A-Z]{1,100}\Z")
NAME_RULE: Final = "1 to 100 characters of a-z, A-Z, 0-9, '-', '_' and ':'"


class Target(msgspec.Struct, frozen=True):
    """The pool that an operation goes to: an existing pool, or one that would be made for it."""

    pool: PoolName
    #: The ephemeral pools to make, the target pool itself last; empty: the pool exists.
    made: tuple[EphemeralPool, ...] = ()
    #: The placement rule that chose the pool; empty: the user chose it.
    rule: str = ""

    @property
    def nearest_existing(self) -> PoolName:
        """Return the pool if it exists, or else its nearest ancestor that exists."""
        return self.made[0].parent if self.made else self.pool


def is_name_for_users(name: str) -> bool:
    """True if a user may give this name to a new ephemeral pool."""
    return _NAME.match(name) is not None


def target_pool(book: TreeBook, asked: PoolName, person: Person, *, of_user: bool = False) -> Target:
    """Return the pool for an operation of a person that asks for `asked`.

    In a hub, or with `of_user`, it is the user's own pool, `asked$user`.
    """
    if book.exists(asked):
        made: tuple[EphemeralPool, ...] = ()
        own, is_fifo = of_user or book.rules_of(asked).create_ephemeral_subpools, book.is_fifo(asked)
    else:
        parent = default_parent(book, asked, person)
        made = (with_parent_settings(book, EphemeralPool(asked, parent, person.name)),)
        own, is_fifo = of_user, made[0].mode == "fifo"
    # A fifo pool cannot have pools below it.
    if not own or is_fifo:
        return Target(asked, made)
    name = PoolName(f"{asked}${person.name}")
    if book.exists(name):
        return Target(name)
    return Target(name, (*made, with_parent_settings(book, EphemeralPool(name, asked, of_hub=True))))


def default_parent(book: TreeBook, pool: PoolName, person: Person | None = None) -> PoolName:
    """Return the parent of a new ephemeral pool: the default pool of the user, else of the user's first group with a default pool,
    else of the tree, else the root.

    A default pool is skipped if it does not exist, is fifo, or lies below the new pool itself.
    """
    named = [] if person is None else [person.name, *(GROUP + group for group in person.groups)]
    candidates = [*map(book.rules.user_to_default_pool.get, named), book.rules.default_parent_pool]
    for each in candidates:
        if each is not None and book.exists(each) and not book.is_fifo(each) and pool not in book.upwards(each):
            return each
    return ROOT_POOL


def with_parent_settings(book: TreeBook, pool: EphemeralPool) -> EphemeralPool:
    """Return the pool with the settings that its parent gives to ephemeral pools now; unchanged if the parent gives none."""
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

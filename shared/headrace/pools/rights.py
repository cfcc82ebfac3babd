"""Rights on pools. Rights are given on a pool, or on the tree for all pools, and hold for everything below.

Pure. `administer` includes `write` and `manage`. Everybody has `use` if no list of the pool and the pools above it names a user for it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools.pool_config import EVERYBODY, Access
from headrace.pools.pool_tree import PoolTree


class Right(enum.StrEnum):
    """Rights that a person may have on a pool and everything below it."""

    USE = "use"
    MANAGE = "manage"
    WRITE = "write"
    ADMINISTER = "administer"


class Person(msgspec.Struct, frozen=True):
    """The person who makes a request, according to the connection."""

    name: str
    #: True if the person may do everything everywhere.
    administrator: bool = False
    #: Names of the administrators, for the text of refusals.
    administrators: frozenset[str] = frozenset()


def person_of(user: str, administrators: Collection[str]) -> Person:
    """Return a user as a person. The named administrators may do everything.

    `EVERYBODY` among the administrators stands for all users.
    """
    is_one = user in administrators or EVERYBODY in administrators
    return Person(user, administrator=is_one, administrators=frozenset(administrators))


def allowed(lists: Iterable[Access], person: Person, right: Right) -> bool:
    """True if the lists of a pool, of all pools above it and of the tree give the person the right."""
    lists = list(lists)
    if any(_names(access.administer, person) for access in lists):
        return True
    if right is Right.USE and not any(access.use for access in lists):
        return True
    return any(_names(getattr(access, right.value), person) for access in lists)


def holders(lists: Iterable[Access], right: Right) -> list[str]:
    """Return the users who have a right on a pool. `lists` are those of the pool, of all pools above it and of the tree."""
    named = ((*getattr(access, right.value), *access.administer) for access in lists)
    return sorted({user for users in named for user in users})


def access_lists(tree: PoolTree, pool: PoolName) -> Iterator[Access]:
    """Yield the access lists of a pool, of all pools above it and of the tree."""
    for each in tree.upwards(pool):
        yield tree.options.access if each == ROOT_POOL else tree.settings(each).access


def _names(users: tuple[str, ...], person: Person) -> bool:
    return person.name in users or EVERYBODY in users

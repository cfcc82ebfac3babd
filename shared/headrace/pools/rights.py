"""Rights on pools: named on a pool, or on the tree for all of them, they hold for everything below.

Pure. `administer` includes `write` and `manage`. `use` is everybody's where nobody on the way up is named for it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools.pool_config import EVERYBODY, Access
from headrace.pools.pool_tree import PoolTree


class Right(enum.StrEnum):
    """Things that one may do with a pool and all that is below."""

    USE = "use"
    MANAGE = "manage"
    WRITE = "write"
    ADMINISTER = "administer"


class Person(msgspec.Struct, frozen=True):
    """A person who asks, as the connection says."""

    name: str
    #: May do everything everywhere.
    administrator: bool = False
    #: Those who may, for refusals of what this person may not.
    administrators: frozenset[str] = frozenset()


def person_of(user: str, administrators: Collection[str]) -> Person:
    """A user as a person, where the named administrators may do everything.

    `EVERYBODY` among them stands for all users.
    """
    is_one = user in administrators or EVERYBODY in administrators
    return Person(user, administrator=is_one, administrators=frozenset(administrators))


def allowed(lists: Iterable[Access], person: Person, right: Right) -> bool:
    """True if the lists of a pool, of all above it or of the tree give a person a right."""
    lists = list(lists)
    if any(_names(access.administer, person) for access in lists):
        return True
    if right is Right.USE and not any(access.use for access in lists):
        return True
    return any(_names(getattr(access, right.value), person) for access in lists)


def holders(lists: Iterable[Access], right: Right) -> list[str]:
    """Names the users who have a right on a pool. `lists` are those of the pool, all above it and the tree."""
    named = ((*getattr(access, right.value), *access.administer) for access in lists)
    return sorted({user for users in named for user in users})


def access_lists(tree: PoolTree, pool: PoolName) -> Iterator[Access]:
    """The lists of a pool, of all above it and of the tree."""
    for each in tree.upwards(pool):
        yield tree.options.access if each == ROOT_POOL else tree.settings(each).access


def _names(users: tuple[str, ...], person: Person) -> bool:
    return person.name in users or EVERYBODY in users

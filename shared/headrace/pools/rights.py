"""Rights on pools. A right is given on a pool, and holds for everything below this pool, or it is given on the tree, and holds
for all pools.

Pure. `administer` includes `write` and `manage`. If the lists for `use` of the pool, of the pools above it and of the
tree are all empty, everybody has `use`. An entry of a list stands for a user, for the members of a group
(`group:NAME`), or for everybody (`*`).
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator

import msgspec

from headrace.ids import ROOT_POOL, GroupName, PoolName
from headrace.pools.pool_config import EVERYBODY, GROUP, Access
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
    #: Groups of the person, the primary group first.
    groups: tuple[GroupName, ...] = ()
    #: False if the service that knows the groups did not answer. The person then has only the rights that do not come
    #: from a group.
    groups_known: bool = True


def person_of(user: str, administrators: Collection[str], groups: tuple[GroupName, ...] = ()) -> Person:
    """Return a user as a person with these groups. The administrators, named as in an access list, may do everything."""
    person = Person(user, administrators=frozenset(administrators), groups=groups)
    is_one = any(names(entry, person) for entry in administrators)
    return msgspec.structs.replace(person, administrator=is_one)


def names(entry: str, person: Person) -> bool:
    """True if an entry of an access list stands for the person."""
    if entry.startswith(GROUP):
        return entry.removeprefix(GROUP) in person.groups
    return entry in (person.name, EVERYBODY)


class Grant(msgspec.Struct, frozen=True):
    """The entry of an access list that gives a person a right."""

    #: Position of the list among the lists of the pool, of the pools above it and of the tree; 0 is the list of the pool itself.
    level: int
    #: Right whose list has the entry: the requested right, or `administer`, which includes every right.
    right: Right
    #: Entry of the list. Empty if everybody has the right `use` because no list for `use` has an entry.
    entry: str


def grant(lists: Iterable[Access], person: Person, right: Right) -> Grant | None:
    """Return the entry that gives the person the right, or None if the person lacks the right.

    `lists` are the access lists of the pool, of all pools above it and of the tree.
    """
    lists = list(lists)
    for named in dict.fromkeys((Right.ADMINISTER, right)):
        for level, access in enumerate(lists):
            entry = next((each for each in getattr(access, named.value) if names(each, person)), None)
            if entry is not None:
                return Grant(level, named, entry)
    if right is Right.USE and not any(access.use for access in lists):
        return Grant(0, right, "")
    return None


def allowed(lists: Iterable[Access], person: Person, right: Right) -> bool:
    """True if the lists of a pool, of all pools above it and of the tree give the person the right."""
    return grant(lists, person, right) is not None


def holders(lists: Iterable[Access], right: Right) -> list[str]:
    """Return the users and groups that have a right on a pool. `lists` are the lists of the pool, of the pools above it and of the tree."""
    named = ((*getattr(access, right.value), *access.administer) for access in lists)
    return sorted({user for users in named for user in users})


def access_lists(tree: PoolTree, pool: PoolName) -> Iterator[Access]:
    """Yield the access lists of a pool, of all pools above it and of the tree."""
    for each in tree.upwards(pool):
        yield tree.options.access if each == ROOT_POOL else tree.settings(each).access

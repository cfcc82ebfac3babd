"""The rights that a change of configuration needs. Pure.

The right `write` on a pool covers the pool and everything below it. The right `administer` includes `write`, and also allows what only
administrators may do. Only administrators of the whole installation create and remove trees. `headrace.pools.rights` defines how access
lists are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import Access, Person, Right
from headrace.pools.rights import allowed
from headrace.wire.refusals import NotAllowed, not_allowed


class RightsInTree:
    """The rights of one person in a tree that is being changed. Each check returns a refusal, or None if the person is allowed."""

    def __init__(self, person: Person, lists: Callable[[PoolName], Iterable[Access]]) -> None:
        """Create the checks. `lists` returns the access lists of a pool, of all pools above it and of the tree."""
        self._person = person
        self._lists = lists

    def to_make_pools_in(self, parent: PoolName) -> NotAllowed | None:
        """Refuse to create a pool in `parent`, or to move a pool there, unless the person has `write` on `parent`."""
        return self._without(Right.WRITE, parent, f"make pools in {parent}")

    def to_change(self, pool: PoolName) -> NotAllowed | None:
        """Refuse to change attributes of a pool, or to transfer its guarantees, unless the person has `write` on the pool."""
        return self._without(Right.WRITE, pool, f"change pool {pool}")

    def to_remove(self, pool: PoolName) -> NotAllowed | None:
        """Refuse to remove a pool unless the person has `write` on it."""
        return self._without(Right.WRITE, pool, f"remove pool {pool}")

    def to_move(self, pool: PoolName) -> NotAllowed | None:
        """Refuse to move or rename a pool unless the person has `write` on it."""
        return self._without(Right.WRITE, pool, f"move pool {pool}")

    def to_change_options(self, tree: TreeName) -> NotAllowed | None:
        """Refuse to change options of the tree unless the person has `administer` on the root."""
        return self._without(Right.ADMINISTER, ROOT_POOL, f"change options of tree {tree}")

    def to_set(self, attribute: str, pool: PoolName) -> NotAllowed:
        """Return the refusal to set an attribute that only administrators may set. To be called if `administers` returns False."""
        return self._refusal(Right.ADMINISTER, pool, f"set {attribute} on pool {pool}")

    def administers(self, pool: PoolName) -> bool:
        """Return True if the person may do in this pool what only administrators may do.

        Only administrators may set unknown attributes and attributes reserved for administrators, and give names that do not match the
        pattern for users.
        """
        return self._has(Right.ADMINISTER, pool)

    def _has(self, right: Right, pool: PoolName) -> bool:
        return self._person.administrator or allowed(self._lists(pool), self._person, right)

    def _without(self, right: Right, pool: PoolName, what: str) -> NotAllowed | None:
        return None if self._has(right, pool) else self._refusal(right, pool, what)

    def _refusal(self, right: Right, pool: PoolName, what: str) -> NotAllowed:
        return not_allowed(self._person, what, right, pool, self._lists(pool))


def to_make_trees(person: Person) -> NotAllowed | None:
    """Return a refusal unless the person is an administrator of the whole installation, who may create trees."""
    return None if person.administrator else not_allowed(person, "make trees")


def to_remove_trees(person: Person) -> NotAllowed | None:
    """Return a refusal unless the person is an administrator of the whole installation, who may remove trees."""
    return None if person.administrator else not_allowed(person, "remove trees")

"""The rights that a change of configuration needs: one question each. Pure.

`write` on a pool holds for it and all below. `administer` includes it, and brings what is for administrators. Trees are made and
removed by administrators of the whole only. `headrace.pools.rights` says how lists of users are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import Access, Person, Right
from headrace.pools.rights import allowed
from headrace.wire.refusals import NotAllowed, not_allowed


class Rights:
    """The rights of one person in a tree in the making. Questions are answered by a refusal, or None if it is allowed."""

    def __init__(self, person: Person, lists: Callable[[PoolName], Iterable[Access]]) -> None:
        """`lists` gives the lists of users of a pool, of all above it and of the tree."""
        self._person = person
        self._lists = lists

    def to_make_pools_in(self, parent: PoolName) -> NotAllowed | None:
        """Making a pool, or moving one there, needs `write` on the parent."""
        return self._without(Right.WRITE, parent, f"make pools in {parent}")

    def to_change(self, pool: PoolName) -> NotAllowed | None:
        """Changing attributes, and giving or taking guarantees, needs `write` on the pool."""
        return self._without(Right.WRITE, pool, f"change pool {pool}")

    def to_remove(self, pool: PoolName) -> NotAllowed | None:
        """Removing needs `write` on the pool."""
        return self._without(Right.WRITE, pool, f"remove pool {pool}")

    def to_move(self, pool: PoolName) -> NotAllowed | None:
        """Moving and renaming need `write` on the pool."""
        return self._without(Right.WRITE, pool, f"move pool {pool}")

    def to_change_options(self, tree: TreeName) -> NotAllowed | None:
        """Changing options of the tree needs `administer` on the root."""
        return self._without(Right.ADMINISTER, ROOT_POOL, f"change options of tree {tree}")

    def to_set(self, attribute: str, pool: PoolName) -> NotAllowed:
        """The refusal of an administrators' attribute, where `administers` says no."""
        return self._refusal(Right.ADMINISTER, pool, f"set {attribute} on pool {pool}")

    def administers(self, pool: PoolName) -> bool:
        """True if administrators' attributes, unknown attributes and administrators' names may be given there."""
        return self._has(Right.ADMINISTER, pool)

    def _has(self, right: Right, pool: PoolName) -> bool:
        return self._person.administrator or allowed(self._lists(pool), self._person, right)

    def _without(self, right: Right, pool: PoolName, what: str) -> NotAllowed | None:
        return None if self._has(right, pool) else self._refusal(right, pool, what)

    def _refusal(self, right: Right, pool: PoolName, what: str) -> NotAllowed:
        return not_allowed(self._person, what, right, pool, self._lists(pool))


def to_make_trees(person: Person) -> NotAllowed | None:
    """Making trees is for administrators of the whole."""
    return None if person.administrator else not_allowed(person, "make trees")


def to_remove_trees(person: Person) -> NotAllowed | None:
    """Removing trees is for administrators of the whole."""
    return None if person.administrator else not_allowed(person, "remove trees")

"""Rights: one function for each question of who may do something."""

from __future__ import annotations

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import Access, Person, Right
from headrace.pools.rights import access_lists, allowed
from headrace.wire.refusals import NotAllowed, not_allowed
from headrace_admission.decisions.target_pool import Target
from headrace_admission.state.operation import Operation
from headrace_admission.state.state import State
from headrace_admission.state.tree_book import TreeBook


def no_use(book: TreeBook, person: Person, target: Target) -> NotAllowed | None:
    """Return the refusal for a user who lacks the right `use`, and so may not run operations in a pool; else None."""
    if book.rules.configured is None:
        return None
    return _lacking(book, person, Right.USE, target.nearest_existing, f"run operations in pool {target.pool}")


def no_change(state: State, operation: Operation, user: str) -> NotAllowed | None:
    """Return the refusal of a change, or None.

    The owner may change an operation, and so may users who manage its pool in all its trees.
    """
    return _no_manage(state, operation, user, f"change operation {operation.id} of {operation.user}")


def no_reading(state: State, operation: Operation, user: str) -> NotAllowed | None:
    """Return the refusal to read command, environment and output of an operation, or None.

    The users who may change the operation may also read them.
    """
    return _no_manage(
        state, operation, user, f"read command, environment and output of operation {operation.id} of {operation.user}"
    )


def may_move(state: State, operation: Operation, user: str) -> bool:
    """True if the user is the owner or an administrator.

    The right `manage` on a pool does not allow moving operations out of it.
    """
    return user == operation.user or state.configuration.person(user).administrator


def nearest_configured(book: TreeBook, pool: PoolName) -> PoolName:
    """Return the pool whose access lists apply to a pool: the pool itself if it is configured, else its nearest configured ancestor."""
    return next(each for each in book.upwards(pool) if each == ROOT_POOL or each in book.rules.pools)


def _no_manage(state: State, operation: Operation, user: str, what: str) -> NotAllowed | None:
    if user == operation.user:
        return None
    person = state.configuration.person(user)
    refusals = (
        _lacking(state.books.get(tree), person, Right.MANAGE, placement.pool, what)
        for tree, placement in operation.placements.items()
    )
    return next(filter(None, refusals), None)


def _lacking(book: TreeBook | None, person: Person, right: Right, pool: PoolName, what: str) -> NotAllowed | None:
    """Return the refusal for a user without the right on the pool, or None. For an ephemeral pool the nearest configured ancestor counts.

    In a tree that is not configured any more only administrators have rights.
    """
    lists: list[Access] = []
    if book is not None and book.rules.configured is not None:
        pool = nearest_configured(book, pool)
        lists = list(access_lists(book.rules.configured, pool))
    if person.administrator or allowed(lists, person, right):
        return None
    return not_allowed(person, what, right, pool, lists)

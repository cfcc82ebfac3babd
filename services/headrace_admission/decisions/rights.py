"""Rights: one function for each question of who may do it."""

from __future__ import annotations

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import Person, Right, may
from headrace.wire.refusals import NotAllowed
from headrace_admission.decisions.target_pool import Target
from headrace_admission.state.operation import Operation
from headrace_admission.state.state import State
from headrace_admission.state.tree_book import TreeBook


def no_use(book: TreeBook, person: Person, target: Target) -> NotAllowed | None:
    """The refusal for a person who may not run operations in a pool: the right `use`."""
    pool = target.made.parent if target.made is not None else target.pool
    if _holds(book, person, Right.USE, pool):
        return None
    return NotAllowed(who=person.name, what=f"run operations in pool {target.pool}: the right `use` is lacking")


def may_change(state: State, operation: Operation, user: str) -> bool:
    """True if the caller owns the operation, may manage its pool in each of its trees, or is an administrator."""
    person = state.configuration.everywhere.person(user)
    return may_move(state, operation, user) or all(
        _holds(state.books[tree], person, Right.MANAGE, placement.pool)
        for tree, placement in operation.placements.items()
    )


def may_move(state: State, operation: Operation, user: str) -> bool:
    """True if the caller is the owner or an administrator. The right `manage` on a pool takes nothing out of it."""
    return user == operation.user or state.configuration.everywhere.person(user).administrator


def may_scan(state: State, user: str) -> bool:
    """True if the caller is an administrator, who may have the queues judged out of turn."""
    return state.configuration.everywhere.person(user).administrator


def _holds(book: TreeBook, person: Person, right: Right, pool: PoolName) -> bool:
    """True if the person has the right on the pool, or on the nearest configured one above an ephemeral pool."""
    if book.rules.configured is None:
        return True
    named = next(each for each in book.upwards(pool) if each == ROOT_POOL or each in book.rules.pools)
    return may(book.rules.configured, person, right, named)

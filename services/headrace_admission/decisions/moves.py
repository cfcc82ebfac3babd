"""Moves of an operation to other pools. A move is refused if the operation could not run in the new pools at once."""

from __future__ import annotations

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.wire.log import EphemeralPoolSet
from headrace.wire.operations import UpdateOperation
from headrace.wire.placements import UPSTREAM, TreePlacement
from headrace.wire.refusals import BadRequest, OverLimit, Refusal, WrongState, not_allowed
from headrace_admission.decisions.configuration import take_held_back
from headrace_admission.decisions.job_sizes import refused_job_size
from headrace_admission.decisions.limits import move_limit, unfit_pool
from headrace_admission.decisions.promotion import offer_slots
from headrace_admission.decisions.rights import may_move, no_use
from headrace_admission.decisions.target_pool import Target, target_pool
from headrace_admission.decisions.time_limits import refused_limit
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.state.operation import Operation
from headrace_admission.state.operation_states import may_change_parameters
from headrace_admission.state.state import State


def plan_move(
    state: State, operation: Operation, request: UpdateOperation, user: str
) -> dict[TreeName, Target] | Refusal:
    """Plan the new pool in each tree where the pool changes. If the change in one tree is refused, no pool changes."""
    if not may_change_parameters(operation.state):
        return WrongState("operation", operation.id, operation.state.value, "pending or running")
    for tree in request.scheduling_options_per_pool_tree:
        if tree not in operation.placements:
            named = f"scheduling_options_per_pool_tree.{tree}"
            return BadRequest(named, tree, "a tree of the operation: " + ", ".join(operation.placements))
    everywhere, owner = state.configuration.everywhere, state.configuration.person(operation.user)
    targets: dict[TreeName, Target] = {}
    for tree, placement in operation.placements.items():
        pool = _asked_pool(request, tree)
        if pool is None:
            continue
        book = state.books[tree]
        target = target_pool(book, pool, owner)
        refusal = unfit_pool(book, pool, target, gang=operation.spec.has_gang)
        refusal = refusal or no_use(book, owner, target)
        if refusal is not None:
            return refusal
        if not may_move(state, operation, user):
            return not_allowed(state.configuration.person(user), f"move operation {operation.id} of {operation.user}")
        if target.pool != placement.pool:
            refusal = refused_job_size(tree, book, target.nearest_existing, operation.spec)
            if refusal is not None:
                return refusal
        if target.pool != placement.pool or placement.blocked_by is not None:
            targets[tree] = target
    if targets and not everywhere.pool_change_is_allowed:
        return WrongState("operation", operation.id, "fixed to its pool", "the setting pool_change_is_allowed to be on")
    spec, asked_ms = operation.spec, request.operation_time_limit_ms
    if asked_ms is not None:
        spec = msgspec.structs.replace(spec, operation_time_limit_ms=asked_ms or None)
    if targets or asked_ms is not None:
        pools = {tree: each.pool for tree, each in operation.placements.items()}
        pools |= {tree: target.nearest_existing for tree, target in targets.items()}
        too_long = refused_limit(state, spec, pools)
        if too_long is not None:
            return too_long
    return _over_limit(state, operation, targets) or targets


def move(transaction: Transaction, operation: Operation, targets: dict[TreeName, Target]) -> None:
    """Move an operation as planned; it runs there at once, unless it waits for other operations.

    The running slots that the move frees are offered to waiting operations.
    """
    books = transaction.state.books
    chains = {tree: list(books[tree].upwards(operation.placements[tree].pool)) for tree in targets}
    for tree, target in targets.items():
        for made in target.made:
            transaction.record(EphemeralPoolSet(tree, made))
        blocked_by = UPSTREAM if operation.is_held_back else None
        transaction.place(operation.id, TreePlacement(tree, target.pool, books[tree].next_ticket(), blocked_by))
    for tree, chain in chains.items():
        if not books[tree].rules.promote_only_on_scan:
            offer_slots(transaction, tree, chain)
        take_held_back(transaction, tree)


def _asked_pool(request: UpdateOperation, tree: TreeName) -> PoolName | None:
    """Return the requested pool in a tree, or None. Options for one tree replace the options for all trees, even if they name no pool."""
    said = request.scheduling_options_per_pool_tree.get(tree)
    return (said.pool or None) if said is not None else request.pool


def _over_limit(state: State, operation: Operation, targets: dict[TreeName, Target]) -> OverLimit | None:
    """Return the limits that a move would break. They are checked in every tree, even in a tree where the pool stays the same."""
    if not targets:
        return None
    broken = []
    for tree, placement in operation.placements.items():
        book = state.books[tree]
        limit = move_limit(tree, book, book.members[operation.id], targets.get(tree, Target(placement.pool)))
        if limit is not None:
            broken.append(limit)
    return OverLimit(broken) if broken else None

"""Limits: each rule that keeps an operation out of a pool, or makes it wait there, is one function in this module.

Each pool and the root have two limits: `max_operation_count` refuses starts, and `max_running_operation_count` makes operations
wait. The second does not apply to lightweight operations.
"""

from __future__ import annotations

from heapq import nsmallest

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.suggestions import near
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.placements import UPSTREAM, EphemeralPool
from headrace.wire.refusals import BadRequest, LimitBroken, NotFound, Refusal, WrongState
from headrace_admission.decisions.target_pool import NAME_RULE, Target, is_name_for_users
from headrace_admission.state.spec_size import spec_bytes
from headrace_admission.state.state import State
from headrace_admission.state.tree_book import Member, TreeBook


def blocking_pool(book: TreeBook, pool: PoolName, *, vanilla: bool) -> PoolName | None:
    """Return the pool at which an operation of this pool has to wait, or None if it may run."""
    return None if book.is_lightweight(pool, vanilla) else first_pool_without_running_slot(book, pool)


def first_pool_without_running_slot(book: TreeBook, pool: PoolName) -> PoolName | None:
    """Return the first pool on the way up to the root that has no free running slot, or None."""
    for each in book.upwards(pool):
        if not book.free_slots(each):
            return each
    return None


def global_limit(state: State) -> LimitBroken | None:
    """Return the limit on operations of all trees together, if one more operation would break it."""
    limit, count = state.configuration.everywhere.max_operation_count, len(state.live)
    return LimitBroken("max_operation_count", limit, count) if count >= limit else None


def user_limit(state: State, user: str) -> LimitBroken | None:
    """Return the limit on operations of one user in all trees together, if one more operation would break it."""
    limit, count = state.configuration.everywhere.max_operation_count_per_user, state.live_of_user[user]
    if limit is None or count < limit:
        return None
    return LimitBroken("max_operation_count_per_user", limit, count, user=user)


def bytes_limit(state: State, spec: OperationSpec, user: str) -> LimitBroken | None:
    """Return the quota of bytes that this start would break: that of the user, or that of all users."""
    everywhere, book, more = state.configuration.everywhere, state.bytes, spec_bytes(spec)
    used, most = book.live_of_user[user], everywhere.most_operation_bytes_of_a_user
    if used + more > most:
        return LimitBroken("most_operation_bytes_of_a_user", most, used, user=user, more_bytes=more)
    if book.live + more > everywhere.most_operation_bytes:
        return LimitBroken("most_operation_bytes", everywhere.most_operation_bytes, book.live, more_bytes=more)
    return None


def first_exceeded_operation_count(
    tree: TreeName, book: TreeBook, target: Target, *, running: bool = False, skipped: frozenset[PoolName] = frozenset()
) -> LimitBroken | None:
    """Return the first limit, from the target up, that allows no further operation; with `running`, no further running operation.

    A pool that would be made is empty and not checked. Pools in `skipped` are not checked either.
    """
    for pool in book.upwards(target.nearest_existing):
        if pool in skipped:
            continue
        counts = book.counts(pool)
        limit = book.max_operation_count(pool)
        if counts.total >= limit:
            return LimitBroken("max_operation_count", limit, counts.total, pool=pool, tree=tree)
        if running and not book.free_slots(pool):
            limit = book.max_running_operation_count(pool)
            return LimitBroken("max_running_operation_count", limit, counts.running, pool=pool, tree=tree)
    return None


def new_pool_limit(tree: TreeName, book: TreeBook, made: EphemeralPool) -> LimitBroken | None:
    """Return a limit that would be 0 in the new pool, so that nothing could run there; None if neither limit would be 0."""
    rules = book.rules
    for name, own, usual in (
        ("max_operation_count", made.max_operation_count, rules.max_operation_count_per_pool),
        ("max_running_operation_count", made.max_running_operation_count, rules.max_running_operation_count_per_pool),
    ):
        if (usual if own is None else own) == 0:
            return LimitBroken(name, 0, 0, pool=made.name, tree=tree)
    return None


def ephemeral_pool_limit(tree: TreeName, book: TreeBook, target: Target, user: str) -> LimitBroken | None:
    """Return the limit on ephemeral pools of one user, if a new pool would break it. Pools of a hub do not count."""
    if not target.made or target.made[0].of_hub:
        return None
    mine = book.ephemeral.of_user.get(user, set())
    limit = book.rules.max_ephemeral_pools_per_user
    if len(mine) < limit:
        return None
    return LimitBroken(
        "max_ephemeral_pools_per_user",
        limit,
        len(mine),
        pool=target.made[0].name,
        tree=tree,
        user=user,
        holders=nsmallest(3, mine),
    )


def move_limit(tree: TreeName, book: TreeBook, member: Member, target: Target) -> LimitBroken | None:
    """Return the limit that keeps an operation from running in `target` at once, or None if it may move there.

    Some pools are above both the old and the new pool. The limits of these pools are not checked if the operation counts as running
    there already. If the operation waits or is lightweight, these limits are checked, although the move may not change the counts of
    these pools. YTsaurus does the same.
    """
    crowded = ephemeral_pool_limit(tree, book, target, member.user)
    if crowded is not None:
        return crowded
    for made in target.made:
        if (closed := new_pool_limit(tree, book, made)) is not None:
            return closed
    runs = member.holds_slot and not book.is_lightweight(member.pool, member.vanilla)
    shared: frozenset[PoolName] = frozenset(book.upwards(member.pool)) if runs else frozenset()
    lightweight = not target.made and book.is_lightweight(target.pool, member.vanilla)
    # An operation that waits for other operations needs no running slot yet.
    running = not lightweight and member.blocked_by != UPSTREAM
    return first_exceeded_operation_count(tree, book, target, running=running, skipped=shared)


def unfit_pool(
    book: TreeBook, asked: PoolName, target: Target, *, gang: bool, specified_pools_only: bool = False
) -> Refusal | None:
    """Return the refusal of a pool that can never accept the operation, whatever runs there now; None if the pool can."""
    if asked == ROOT_POOL:
        return BadRequest("pool", asked, "a pool below the root, because no operation runs in the root itself")
    if not book.exists(asked):
        if not is_name_for_users(asked):
            return BadRequest("pool", asked, NAME_RULE)
        if specified_pools_only:
            return NotFound("pool", asked, near=near(asked, book.rules.pools))
    rules = book.rules_of(target.pool)
    if rules.forbid_immediate_operations:
        return WrongState(
            "pool",
            target.pool,
            "closed to operations directly in it (forbid_immediate_operations)",
            "a pool below it",
        )
    gangs_anywhere = not book.rules.allow_gang_operations_only_in_fifo_pools or rules.always_allow_gang_operations
    if gang and not gangs_anywhere and not _is_fifo(book, target):
        return WrongState(
            "pool", target.pool, "in mode fair_share", "a fifo pool; gang operations run only in fifo pools"
        )
    return None


def _is_fifo(book: TreeBook, target: Target) -> bool:
    return target.made[-1].mode == "fifo" if target.made else book.is_fifo(target.pool)

"""Sizes of jobs: a pool refuses operations with jobs of a wrong size, and an operation fails if its jobs can never fit its pools.

Each pool and the root have bounds of the resources of one job, `min_job_resource_limits` and `max_job_resource_limits`. A job must be
within the bounds of its pool and of every level above. If bounds change later, running operations are not ended, but the allocator
starts no further jobs that break the new bounds.
"""

from __future__ import annotations

from headrace.durations import format_duration
from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools.amounts import NOTHING, PartialResources, out_of_bounds
from headrace.resources import Resources, format_amount
from headrace.wire.log import StateCause
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.refusals import BadRequest
from headrace_admission.decisions.ends_and_retries import end_operation
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.state.operation import Operation
from headrace_admission.state.state import State
from headrace_admission.state.tree_book import TreeBook


def refused_job_size(tree: TreeName, book: TreeBook, pool: PoolName, spec: OperationSpec) -> BadRequest | None:
    """Return the refusal of an operation whose jobs break the bounds of an existing pool, or None. The first wrong size is refused."""
    for number, size in enumerate(spec.sizes):
        place = f"spec.tasks.{number}.resources" if spec.tasks else "spec.resources"
        refusal = _refused_size(tree, book, pool, size, place)
        if refusal is not None:
            return refusal
    return None


def _refused_size(tree: TreeName, book: TreeBook, pool: PoolName, size: Resources, place: str) -> BadRequest | None:
    """Return the refusal of jobs of this size, or None. The refusal names the highest level whose bounds the size breaks."""
    refusal = None
    for level in book.upwards(pool):
        rules = book.rules.job_size if level == ROOT_POOL else book.rules_of(level).job_size
        broken = out_of_bounds(size, rules.least, rules.most)
        if broken is not None:
            name, word = ("max", "most") if broken.is_above else ("min", "least")
            value, bound = (format_amount(broken.resource, each) for each in (broken.amount, broken.bound))
            where = f"tree {tree}" if level == ROOT_POOL else f"pool {level} in tree {tree}"
            expected = f"at {word} {bound} for each job, {name}_job_resource_limits of {where}"
            refusal = BadRequest(f"{place}.{broken.resource}", value, expected)
    return refusal


def fail_never_fitting(transaction: Transaction, now_ms: int) -> None:
    """Fail the operations whose jobs have exceeded the limits of their pools in every tree for `limiting_ancestor_safe_timeout_ms`.

    `now_ms` is a time of the steady clock. The timeout begins when a call first finds such an operation, and again after a restart.
    """
    state = transaction.state
    limited = _limited(state)
    since = state.too_large_since_ms = {name: state.too_large_since_ms.get(name, now_ms) for name in limited}
    timeout_ms = state.configuration.everywhere.limiting_ancestor_safe_timeout_ms
    for name, words in limited.items():
        if now_ms - since[name] >= timeout_ms:
            del since[name]
            reason = (
                f"{words} (for {format_duration(timeout_ms)} or longer, and enable_limiting_ancestor_check is true)"
            )
            end_operation(transaction, state.live[name], StateCause.TOO_MANY_FAILURES, reason)


def _limited(state: State) -> dict[OperationId, str]:
    """Return the running operations whose jobs fit in none of their trees, because of the limits of pools. Each comes with the reason.

    If an operation is in several trees, the reason names a pool of only one of these trees.
    """
    found: dict[OperationId, str] = {}
    for tree, rules in state.configuration.trees.items():
        book = state.books[tree]
        for pool, members in book.in_pool.items() if rules.enable_limiting_ancestor_check else ():
            if any(_limits_of(book, level) != NOTHING for level in book.upwards(pool)):
                found.update(
                    (name, words) for name in members if (words := _limiting_words(state, state.live[name])) is not None
                )
    return found


def _limiting_words(state: State, operation: Operation) -> str | None:
    """Return why no job of an operation fits the limits of its pools, or None if a job fits in some tree.

    The reason names a pool of the operation's last tree.
    """
    if operation.state is not OperationState.RUNNING or operation.suspended:
        return None
    words = None
    for tree, placement in operation.placements.items():
        book = state.books[tree]
        by_size = [_limiting_pool(tree, book, placement.pool, size) for size in operation.spec.sizes]
        if None in by_size or not book.rules.enable_limiting_ancestor_check:
            return None
        words = by_size[0]
    return words


def _limits_of(book: TreeBook, pool: PoolName) -> PartialResources:
    """Return the largest amount of each resource that may be used below a configured or ephemeral pool. The root has no limits."""
    ephemeral = book.ephemeral.by_name.get(pool) if pool not in book.rules.pools else None
    return book.rules_of(pool).resource_limits if ephemeral is None else PartialResources(**ephemeral.resource_limits)


def _limiting_pool(tree: TreeName, book: TreeBook, pool: PoolName, size: Resources) -> str | None:
    for level in book.upwards(pool):
        broken = out_of_bounds(size, NOTHING, _limits_of(book, level))
        if broken is not None:
            needed, limit = (format_amount(broken.resource, each) for each in (broken.amount, broken.bound))
            asks = f"each job asks for {broken.resource} {needed}"
            return f"{asks}, and resource_limits of pool {level} in tree {tree} are {broken.resource} {limit}"
    return None

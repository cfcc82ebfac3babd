"""Time limits: which limits an operation gets from its pools, which limits its pools refuse, and the end of operations over their limit.

Each pool and the root have a default and a maximum for the runs of jobs (`time_limit`) and for whole operations (`operation_time_limit`).
The maximum of every level applies. An operation that names no limit gets the default of the nearest level that has one, reduced to the
maximum. If no level has a default, the operation gets the maximum. Admission records the limits in force with the start, so that later
changes of a pool concern later operations only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from headrace.durations import exact_duration
from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.wire.log import StateCause
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.refusals import BadRequest
from headrace_admission.decisions.ends_and_retries import end_operation
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.state.rules import TimeLimitRules
from headrace_admission.state.state import State
from headrace_admission.state.tree_book import TreeBook

LimitName = Literal["time_limit", "operation_time_limit"]
_NAMES: Final[tuple[LimitName, ...]] = ("time_limit", "operation_time_limit")


class TimeLimits(NamedTuple):
    """The time limits of an operation, in milliseconds. None: no limit."""

    of_jobs_ms: int | None
    of_operation_ms: int | None


def limits_of(state: State, spec: OperationSpec, pools: Mapping[TreeName, PoolName]) -> TimeLimits | BadRequest:
    """Return the time limits of an operation that starts in these existing pools: its own limits, else those of the pools.

    In several trees the shortest limit applies. A limit above a maximum is refused.
    """
    limits = []
    for name in _NAMES:
        limit_ms = asked_ms = _limit_in(spec, name)
        for tree, pool in pools.items():
            book = state.books[tree]
            if asked_ms is not None:
                refusal = too_long(tree, book, pool, name, asked_ms)
                if refusal is not None:
                    return refusal
            else:
                limit_ms = _shorter(limit_ms, _default(book, pool, name))
        limits.append(limit_ms)
    return TimeLimits(*limits)


def refused_limit(state: State, spec: OperationSpec, pools: Mapping[TreeName, PoolName]) -> BadRequest | None:
    """Return the refusal of a live operation whose time limits exceed a maximum of these existing pools, or None."""
    refusals = (
        too_long(tree, state.books[tree], pool, name, _limit_in(spec, name))
        for name in _NAMES
        for tree, pool in pools.items()
    )
    return next(filter(None, refusals), None)


def too_long(
    tree: TreeName, book: TreeBook, pool: PoolName, name: LimitName, limit_ms: int | None
) -> BadRequest | None:
    """Return the refusal of a time limit that exceeds a maximum of the pool or of a level above, or None. `limit_ms` None: no limit."""
    for level, rules in _levels(book, pool, name):
        if rules.max_ms is not None and (limit_ms is None or limit_ms > rules.max_ms):
            where = f"tree {tree}" if level == ROOT_POOL else f"pool {level} in tree {tree}"
            most = f"at most {exact_duration(rules.max_ms)}, max_{name} of {where}"
            if limit_ms is None:
                return BadRequest.because(name, f"the limit is missing. Set {most}")
            return BadRequest(name, exact_duration(limit_ms), most)
    return None


def end_overdue(transaction: Transaction) -> None:
    """Let the operations fail whose time limit is reached."""
    for name in sorted(transaction.state.limited):
        operation = transaction.state.live[name]
        if 0 < operation.ends_by_ms <= transaction.now_ms:
            limit = exact_duration(operation.spec.operation_time_limit_ms or 0)
            reason = f"the time limit of the operation, {limit}, is reached"
            end_operation(transaction, operation, StateCause.TIME_LIMIT, reason)


def _limit_in(spec: OperationSpec, name: LimitName) -> int | None:
    return spec.time_limit_ms if name == "time_limit" else spec.operation_time_limit_ms


def _default(book: TreeBook, pool: PoolName, name: LimitName) -> int | None:
    default_ms = most_ms = None
    for _, rules in _levels(book, pool, name):
        default_ms = rules.default_ms if default_ms is None else default_ms
        most_ms = _shorter(most_ms, rules.max_ms)
    return _shorter(default_ms, most_ms)


def _levels(book: TreeBook, pool: PoolName, name: LimitName) -> Iterator[tuple[PoolName, TimeLimitRules]]:
    for level in book.upwards(pool):
        rules = book.rules if level == ROOT_POOL else book.rules_of(level)
        yield level, rules.time_limit if name == "time_limit" else rules.operation_time_limit


def _shorter(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((each for each in (one_ms, other_ms) if each is not None), default=None)

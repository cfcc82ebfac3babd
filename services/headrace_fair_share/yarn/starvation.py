"""Starvation in a tree under a YARN policy.

Each update checks the queues of the tree if enough of the cluster is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from headrace.ids import OperationId
from headrace.pools.pool_config import PoolMode
from headrace.pools.tree_options import PreemptionPolicy
from headrace.resources import ZERO, Resources
from headrace.yarn_comparison import ComparedChild, QueuePolicy
from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints
from headrace_fair_share.hdrf.model import PoolInput
from headrace_fair_share.starvation.clocks import NO_TIME, STARVATION, Clocks
from headrace_fair_share.update.algorithm_input import UpdateInput
from headrace_fair_share.update.elements import Elements
from headrace_fair_share.update.update_facts import UpdateFacts
from headrace_fair_share.yarn import queue_shortage
from headrace_fair_share.yarn.shortage import (
    Applicant,
    Due,
    LeafQueue,
    Rules,
    ShareTimes,
    YarnState,
    examine,
    gate_is_open,
)

#: A timeout of at least this many milliseconds means that there is no timeout, as in a YARN allocation file.
_NEVER_MS: Final = 10_000 * 86_400_000
_STARVING: Final = 1
assert STARVATION[_STARVING] == "starving"


class JudgedAmounts(NamedTuple):
    """The amounts that decide whether elements starve, by position."""

    usage: Ints
    demand: Ints
    fair: Ints
    weight: Floats
    #: Order of siblings: the position in a fifo pool, the start of operations in any other pool.
    rank: Ints


def state_after(cut: UpdateFacts, given: UpdateInput, amounts: JudgedAmounts, schedulable: Bools) -> YarnState:
    """Check all queues that can starve. While too little of the cluster is used, nothing is due and no clock advances."""
    options, elements, before = cut.pools.options, given.elements, cut.yarn
    if not cut.usage_counts:
        return before
    there = elements.places
    had = ShareTimes(
        *({key: ms for key, ms in of.items() if key in there} for of in (before.had_share_ms, before.had_minimum_ms))
    )
    used = _resources(amounts.usage[:, 0])
    if not options.yarn.enabled or not gate_is_open(used, cut.total, options.yarn.cluster_utilization_threshold):
        return YarnState(had.fair, had.least)
    rules = Rules(cut.total, options.yarn.min_share_spread, older_release=options.yarn.older_release)
    is_legacy = options.preemption_policy is PreemptionPolicy.YARN_LEGACY
    dues: dict[str, Due] = {}
    paused = _paused(cut)
    for queue in _queues(given, amounts, schedulable, paused):
        if is_legacy:
            queue_shortage.refresh(queue, had, cut.clock_ms, rules)
            dues[queue.key] = queue_shortage.due_to(queue, had, cut.clock_ms, rules)
        else:
            of_queue = {one.key: before.dues[one.key] for one in queue.applicants if one.key in before.dues}
            examine(queue, had, of_queue, cut.clock_ms, rules)
            dues.update(of_queue)
    # An operation that preemption has just handled keeps its shortage. With `claims` False, preemption does not handle the shortage again.
    dues.update((key, before.dues[key]._replace(claims=False)) for key in paused if key in before.dues)
    return YarnState(had.fair, had.least, {key: due for key, due in dues.items() if due.amount != ZERO})


def clocks_of_state(cut: UpdateFacts, elements: Elements, state: YarnState, below: Bools) -> Clocks:
    """Return the clocks of all elements for display. `below` marks the elements that are below their threshold."""
    before, now_ms = cut.clocks.of(elements.keys, elements.places), cut.clock_ms
    had = _column(elements, state.had_share_ms)
    to_fair, to_min, _ = due_amounts(elements, state.dues)
    since = np.where(had != NO_TIME, had, np.where(before.below_since != NO_TIME, before.below_since, now_ms))
    return Clocks(
        elements.keys,
        below_since=np.where(below, since, NO_TIME),
        starving=np.where(to_fair.any(axis=0), _STARVING, 0),
        starving_since=_since(before.starving_since, to_fair, now_ms),
        short_since=np.where(to_min.any(axis=0), _column(elements, state.had_minimum_ms), NO_TIME),
        short_starving_since=_since(before.short_starving_since, to_min, now_ms),
    )


def due_amounts(elements: Elements, dues: Mapping[str, Due]) -> tuple[Ints, Ints, Bools]:
    """Return what each element is short of its fair share and of its minimum, and which elements claim these amounts.

    The amounts of a pool include the amounts of all elements below it.
    """
    to_fair, to_min = (np.zeros((5, len(elements.keys)), np.int64) for _ in range(2))
    claims = np.zeros(len(elements.keys), np.bool_)
    for key, due in dues.items():
        place = elements.places.get(key, -1)
        if place < 0:
            continue
        claims[place] = due.claims
        while True:
            to_fair[:, place] += due.to_fair_share.as_tuple()
            to_min[:, place] += due.to_min_share.as_tuple()
            place = int(elements.parent[place])
            if place <= 0:
                # The root never starves, so the loop stops below it.
                break
    return to_fair, to_min, claims


def _queues(
    given: UpdateInput, amounts: JudgedAmounts, schedulable: Bools, paused: set[OperationId]
) -> Iterator[LeafQueue]:
    """Yield every pool that may starve, or that has operations that may starve."""
    elements, pools = given.elements, given.elements.pools
    own: dict[int, list[Applicant]] = {}
    fair_ms, min_ms = (
        np.where(each[:pools] >= _NEVER_MS, math.inf, each[:pools])
        for each in (elements.starvation_timeout_ms, elements.min_share_timeout_ms)
    )
    has_pools = np.zeros(pools, np.bool_)
    has_pools[elements.parent[1:pools]] = True
    min_ms[has_pools] = math.inf
    awaited = np.isfinite(fair_ms) | np.isfinite(min_ms)
    wants = schedulable[pools:] & awaited[elements.parent[pools:]]
    wants &= (amounts.demand[:, pools:] != amounts.usage[:, pools:]).any(axis=0)
    for place in (pools + np.flatnonzero(wants)).tolist():
        name = elements.names[place]
        if name not in paused:
            usage, demand, fair = (_resources(each[:, place]) for each in amounts[:3])
            sibling = ComparedChild(name, usage, demand, ZERO, float(amounts.weight[place]), int(amounts.rank[place]))
            own.setdefault(int(elements.parent[place]), []).append(Applicant(name, sibling, fair))
    for place in np.flatnonzero(awaited).tolist():
        pool = given.tree.pools[place - 1] if place else None
        least = ZERO
        if pool is not None and not has_pools[place]:
            # The guarantee of slots is left out, since YARN has no user slots.
            least = Resources(0, *(amount or 0 for amount in pool.strong_guarantee[1:]))
        yield LeafQueue(
            elements.keys[place],
            _policy(pool, memory_only=elements.options[place].yarn_memory_only),
            _resources(amounts.usage[:, place]),
            _resources(amounts.demand[:, place]),
            _resources(amounts.fair[:, place]),
            least,
            float(elements.tolerance[place]),
            float(fair_ms[place]),
            float(min_ms[place]),
            own.get(place, ()),
        )


def _policy(pool: PoolInput | None, *, memory_only: bool) -> QueuePolicy:
    if pool is not None and pool.mode is PoolMode.FIFO:
        return QueuePolicy.FIFO
    return QueuePolicy.FAIR if memory_only else QueuePolicy.DRF


def _paused(cut: UpdateFacts) -> set[OperationId]:
    """Return the operations that preemption handled so recently that the pause is not over."""
    yarn = cut.pools.options.yarn
    pause_ms = yarn.wait_before_kill + yarn.heartbeat_allowance + yarn.wait_before_next_check
    return {operation for operation, at_ms in cut.seen_to_ms.items() if cut.clock_ms - at_ms < pause_ms}


def _column(elements: Elements, times_ms: Mapping[str, int]) -> Ints:
    column = np.full(len(elements.keys), NO_TIME)
    for key, time_ms in times_ms.items():
        if key in elements.places:
            column[elements.places[key]] = time_ms
    return column


def _since(before: Ints, amounts: Ints, now_ms: int) -> Ints:
    return np.where(amounts.any(axis=0), np.where(before == NO_TIME, now_ms, before), NO_TIME)


def _resources(column: Ints) -> Resources:
    return Resources(*column.tolist())

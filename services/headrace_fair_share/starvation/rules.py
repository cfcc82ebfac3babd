"""The rules of starvation: satisfaction, scheduling status, effective timeouts and preemption priority of many elements at once. Pure.

Shares are arrays of shape (5, elements), resources in the order of `headrace.resources.RESOURCE_NAMES`.
`headrace.satisfaction.local_satisfaction` states the rule of satisfaction for one element; `tests/unit/fair_share/test_satisfaction.py`
compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.pools import TreeOptions
from headrace.pools.tree_options import PriorityScope
from headrace.resources import EPS
from headrace.satisfaction import INFINITE_SATISFACTION
from headrace.wire.snapshots import PreemptionPriority
from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints

#: An operation counts as owed its whole demand if its fair share is below the demand by at most this share.
NEARLY: Final = 1e-4


def owed_everything(fair: Floats, demand: Floats) -> Bools:
    """Return True where the fair share covers the demand in every resource."""
    return np.asarray((fair + NEARLY >= demand).all(axis=0))


def below_fair_share(
    usage: Floats, fair: Floats, demand: Floats, tolerance: Floats | float, is_operation: Bools
) -> Bools:
    """Return True where an element uses less than min(tolerance * fair share, demand).

    The tolerance is 1 for an operation whose fair share covers its demand. Such an operation is owed all its jobs, and with a smaller
    tolerance it would not starve while only its last job is missing.
    """
    whole = is_operation & owed_everything(fair, demand)
    return _is_above(np.minimum(np.where(whole, 1.0, tolerance) * fair, demand), usage, fair, demand)


def lacks_a_job(usage: Floats, fair: Floats, demand: Floats, min_needed: Floats) -> Bools:
    """Return True where an operation is owed its whole demand, or lacks more of its fair share than its smallest job needs."""
    return owed_everything(fair, demand) | _is_above(fair - usage, min_needed, fair, demand)


def below_guarantee(usage: Floats, strong: Floats, fair: Floats, demand: Floats) -> Bools:
    """Return True where a pool uses less than min(strong guarantee, demand), without tolerance."""
    return _is_above(np.minimum(strong, demand), usage, fair, demand)


def _is_above(one: Floats, other: Floats, fair: Floats, demand: Floats) -> Bools:
    """Return True where `one` is greater than `other` in every resource in which the element's fair share is below its demand.

    If there is no such resource, `one` must be greater in at least one resource.

    A difference up to `EPS` counts as rounding. Otherwise an element that has exactly its fair share could starve forever.
    """
    above, helps = one - other > EPS, fair < demand
    return np.where(helps.any(axis=0), (above | ~helps).all(axis=0), above.any(axis=0))


@dataclass(frozen=True, slots=True, eq=False)
class Timeouts:
    """The time after which elements starve, by position, in milliseconds."""

    starving_ms: Floats
    aggressive_ms: Floats
    aggressive_enabled: Bools
    #: Timeout below the strong guarantee; infinite if the element never starves for it.
    short_ms: Floats


def small_operation_factor(needed_slots: Ints | int, coefficient: float) -> Floats:
    """Return the factor by which the timeouts of operations are shortened, from 0 to 1: min(needed slots / coefficient, 1).

    `coefficient` is the tree's `allocation_count_preemption_timeout_coefficient`, at least 1.
    """
    return np.asarray(np.minimum(needed_slots / coefficient, 1.0))


def effective_timeouts(
    starving_ms: Floats, aggressive_enabled: Bools, short_ms: Floats, needed_slots: Iterable[int], options: TreeOptions
) -> Timeouts:
    """Return the effective timeouts of elements from their settings. Operations that need few slots have shorter timeouts.

    In the arrays, operations come after the pools. `needed_slots` gives the slots that the pending jobs of each operation need. It is read
    only if the option `allocation_count_preemption_timeout_coefficient` is above 1.
    """
    part = np.ones(len(starving_ms))
    coefficient = options.allocation_count_preemption_timeout_coefficient
    if coefficient > 1.0:
        of_operations = small_operation_factor(np.fromiter(needed_slots, np.int64), coefficient)
        part[len(part) - len(of_operations) :] = of_operations
    return Timeouts(
        starving_ms=starving_ms * part,
        aggressive_ms=options.fair_share_aggressive_starvation_timeout * part,
        aggressive_enabled=aggressive_enabled,
        short_ms=short_ms,
    )


#: Priorities by code. The code of a priority equals the code of the starvation status that causes it.
PREEMPTION_PRIORITY: Final = tuple(PreemptionPriority)


def preemption_priorities(starvation: Ints, schedulable: Bools, parent: Ints, pools: int, scope: PriorityScope) -> Ints:
    """Return the priority of each operation. It follows from the operation's own starvation, or from the strongest on its path to the root.

    Elements are the root, `pools` - 1 pools (parents before children), then operations. `parent` is the position of each element's parent,
    -1 for the root.
    """
    priority = starvation.copy()
    if not starvation.any():
        return priority
    if scope is PriorityScope.OPERATION_AND_ANCESTORS:
        for place in range(1, pools):
            priority[place] = max(priority[place], priority[parent[place]])
        priority[pools:] = np.maximum(priority[pools:], priority[parent[pools:]])
    priority[~schedulable] = 0
    priority[:pools] = 0
    return priority


def local_satisfaction_ratios(usage: Floats, fair: Floats, demand: Floats) -> Floats:
    """Return `headrace.satisfaction.local_satisfaction` of each element, for many elements at once."""
    owed = fair > 0.0
    ratio = np.minimum(usage / np.where(owed, fair, 1.0), INFINITE_SATISFACTION)
    more = np.where(owed, ratio, np.where(usage > 0.0, INFINITE_SATISFACTION, 0.0)).max(axis=0)
    least = np.where(owed, ratio, 1.0).min(axis=0)
    helps = fair < demand
    helped = np.where(helps & owed, ratio, 0.0).max(axis=0)
    ratios = np.where((usage > fair).any(axis=0), more, np.where(helps.any(axis=0), helped, least))
    return np.where(fair.max(axis=0) <= EPS, INFINITE_SATISFACTION, ratios)


def satisfaction_ratios(local: Floats, parent: Ints, pools: int) -> Floats:
    """Return the ratio of each element; for a pool the lowest ratio of all operations below it, infinite if it has none.

    Elements are the root, `pools` - 1 pools (parents before children), then operations. `parent` is the position of each element's parent,
    -1 for the root.
    """
    ratios = local.copy()
    ratios[:pools] = INFINITE_SATISFACTION
    np.minimum.at(ratios, parent[pools:], local[pools:])
    # Lists are used because reading an element of an array takes ten times as long, and there may be thousands of pools.
    of_pools, above = ratios[:pools].tolist(), parent[:pools].tolist()
    for place in range(pools - 1, 0, -1):
        if of_pools[place] < of_pools[above[place]]:
            of_pools[above[place]] = of_pools[place]
    ratios[:pools] = of_pools
    return ratios

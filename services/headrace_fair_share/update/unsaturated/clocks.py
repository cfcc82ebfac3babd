"""The starvation clocks of a small unsaturated tree, in which nothing starves. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.ids import OperationId
from headrace.resources import EPS
from headrace_fair_share.starvation.clocks import NO_TIME, Clocks
from headrace_fair_share.starvation.rules import small_operation_factor
from headrace_fair_share.update.algorithm_input import UpdateInput
from headrace_fair_share.update.elements import Elements
from headrace_fair_share.update.unsaturated.shares import PlainShares
from headrace_fair_share.update.update_facts import UpdateFacts


def unsaturated_clocks(
    cut: UpdateFacts, given: UpdateInput, shares: PlainShares, schedulable: Sequence[bool], places: Sequence[int]
) -> Clocks | None:
    """Return the clocks of all elements; only clocks at the given positions can run. None if an element starves or may starve."""
    elements, options = given.elements, cut.pools.options
    before = _running(cut.clocks)
    if before is None:
        return None
    since: list[int | None] = [None] * len(elements.keys)
    for place in places:
        key = elements.keys[place]
        began = before.get(key)
        if not cut.usage_counts:
            since[place] = began if place < elements.pools or _takes_part(cut, key) else None
        elif place < elements.pools and not options.enable_pool_starvation:
            since[place] = began
        elif place and schedulable[place] and _is_below(elements, shares, place):
            since[place] = cut.clock_ms if began is None else began
            if began is not None and _may_starve(cut, given, place, cut.clock_ms - began):
                return None
    if since.count(None) == len(since):
        return Clocks.none(elements.keys)
    below_since = np.array([NO_TIME if time_ms is None else time_ms for time_ms in since], np.int64)
    none = Clocks.none(elements.keys)
    return Clocks(
        elements.keys, below_since, none.starving, none.starving_since, none.short_since, none.short_starving_since
    )


def _running(clocks: Clocks) -> dict[str, int] | None:
    """Return the time since which each element is below its fair share, by key. None if clocks of another kind run."""
    running = clocks.running
    if not len(running):
        return {}
    if clocks.starving[running].any() or (clocks.short_since[running] != NO_TIME).any():
        return None
    keys = (clocks.keys[place] for place in running.tolist())
    return dict(zip(keys, clocks.below_since[running].tolist(), strict=True))


def _takes_part(cut: UpdateFacts, key: str) -> bool:
    return cut.operations[OperationId(key)].takes_part


def _is_below(elements: Elements, shares: PlainShares, place: int) -> bool:
    """Return True if an element has less than its fair share, which equals its demand here. The tolerance applies to pools only."""
    tolerance = elements.options[place].fair_share_starvation_tolerance if place < elements.pools else 1.0
    pairs = zip(shares.fair_share[place], shares.usage_share[place], strict=True)
    return any(min(tolerance * owed, owed) - used > EPS for owed, used in pairs)


def _may_starve(cut: UpdateFacts, given: UpdateInput, place: int, passed_ms: int) -> bool:
    """Return True if an element that has been below its fair share for `passed_ms` may have reached a timeout.

    For an operation the timeouts of its pool are used, since an operation's own timeouts are never shorter.
    """
    elements, tree = given.elements, cut.pools.options
    options = elements.options[place if place < elements.pools else elements.above[place]]
    part, coefficient = 1.0, tree.allocation_count_preemption_timeout_coefficient
    if coefficient > 1.0 and place >= elements.pools:
        part = float(small_operation_factor(given.demands[place - elements.pools].needed_slots, coefficient))
    shortest_ms = min(options.fair_share_starvation_timeout_ms, tree.fair_share_aggressive_starvation_timeout)
    return passed_ms > shortest_ms * part

"""Judges which elements starve, by the rules of Headrace or by the rules of a YARN policy. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.ids import OperationId
from headrace.pools import PreemptionPolicy
from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints, amounts_of, column, shares_of
from headrace_fair_share.starvation.clocks import Clocks, step
from headrace_fair_share.starvation.rules import (
    Timeouts,
    below_fair_share,
    below_guarantee,
    effective_timeouts,
    lacks_a_job,
)
from headrace_fair_share.update.algorithm_input import UpdateInput
from headrace_fair_share.update.elements import Elements
from headrace_fair_share.update.update_facts import UpdateFacts
from headrace_fair_share.yarn.shortage import YarnState
from headrace_fair_share.yarn.starvation import JudgedAmounts, clocks_of_state, state_after


class JudgedShares(NamedTuple):
    """The shares that decide whether elements starve, by position."""

    usage: Floats
    fair: Floats
    demand: Floats
    #: Effective strong guarantee.
    strong: Floats
    weight: Floats
    #: Breaks ties between siblings.
    rank: Ints


class Judged(NamedTuple):
    """The starvation state that lasts from one update to the next: clocks, and the state of a YARN policy."""

    clocks: Clocks
    yarn: YarnState = YarnState()


def judge(cut: UpdateFacts, given: UpdateInput, shares: JudgedShares, schedulable: Bools) -> Judged:
    """Return the starvation state of all elements by the rules of the tree's preemption policy."""
    if cut.pools.options.preemption_policy is PreemptionPolicy.YTSAURUS:
        return Judged(clocks_after(cut, given, shares, schedulable))
    total = column(cut.total)
    usage, fair, demand = (_amounts(each, total) for each in (shares.usage, shares.fair, shares.demand))
    state = state_after(cut, given, JudgedAmounts(usage, demand, fair, shares.weight, shares.rank), schedulable)
    elements = given.elements
    below = below_fair_share(shares.usage, shares.fair, shares.demand, elements.tolerance, elements.is_operation)
    below[0] = False
    return Judged(clocks_of_state(cut, elements, state, below & schedulable), state)


def clocks_after(cut: UpdateFacts, given: UpdateInput, shares: JudgedShares, schedulable: Bools) -> Clocks:
    """Return the starvation clocks of all elements after the update.

    If the usage is too old or incomplete (`usage_counts` is False), only the clocks of operations that are suspended or lost their running
    slot are reset, and all other clocks stay as they are.
    """
    elements = given.elements
    before = cut.clocks.of(elements.keys, elements.places)
    if not cut.usage_counts:
        return before.in_place_of(Clocks.none(elements.keys), _takes_part(cut, elements, before))
    below = schedulable & _below(cut, given, shares)
    short = ~elements.is_operation & np.isfinite(elements.min_share_timeout_ms)
    if short.any():
        short &= below_guarantee(shares.usage, shares.strong, shares.fair, shares.demand)
    below[0] = short[0] = False
    # If no element is below its share or guarantee, all clocks stop.
    is_anybody = below.any() or short.any()
    after = (
        step(before, cut.clock_ms, below, short, timeouts_of(cut, given)) if is_anybody else Clocks.none(before.keys)
    )
    if cut.pools.options.enable_pool_starvation:
        return after
    # With `enable_pool_starvation` off, the starvation of pools is not judged, so their clocks stay as they were.
    return after.in_place_of(before, elements.is_operation)


def _amounts(shares: Floats, total: Ints) -> Ints:
    return np.rint(shares * total).astype(np.int64)


def _takes_part(cut: UpdateFacts, elements: Elements, clocks: Clocks) -> Bools:
    """Return False for operations with a running clock that are suspended or have no running slot any more, else True."""
    takes_part = np.ones(len(elements.names), np.bool_)
    for place in clocks.running[clocks.running >= elements.pools].tolist():
        takes_part[place] = cut.operations[OperationId(elements.names[place])].takes_part
    return takes_part


def _below(cut: UpdateFacts, given: UpdateInput, shares: JudgedShares) -> Bools:
    elements, (usage, fair, demand, *_) = given.elements, shares
    below = below_fair_share(usage, fair, demand, elements.tolerance, elements.is_operation)
    if cut.pools.options.enable_absolute_fair_share_starvation_tolerance:
        places = elements.pools + np.flatnonzero(below[elements.pools :])
        jobs = (given.demands[place - elements.pools].min_needed for place in places.tolist())
        needed = shares_of(amounts_of(jobs, len(places)), column(cut.total))
        below[places] = lacks_a_job(usage[:, places], fair[:, places], demand[:, places], needed)
    return below


def timeouts_of(cut: UpdateFacts, given: UpdateInput) -> Timeouts:
    """Return the effective starvation timeouts of an update."""
    elements = given.elements
    return effective_timeouts(
        elements.starvation_timeout_ms,
        elements.aggressive_enabled,
        elements.min_share_timeout_ms,
        (demand.needed_slots for demand in given.demands),
        cut.pools.options,
    )

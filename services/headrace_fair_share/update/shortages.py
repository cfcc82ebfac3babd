"""Which elements starve, by the tree's own rules or by those of a YARN policy. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.pools import PreemptionPolicy
from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints, column
from headrace_fair_share.starvation.clocks import Clocks
from headrace_fair_share.starvation.rules import below_fair_share
from headrace_fair_share.update.input import UpdateInput
from headrace_fair_share.update.statuses import JudgedShares, clocks_after
from headrace_fair_share.update.update_facts import UpdateFacts
from headrace_fair_share.yarn.starvation import JudgedAmounts, clocks_of_state, state_after
from headrace_fair_share.yarn.state import YarnState


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


def _amounts(shares: Floats, total: Ints) -> Ints:
    return np.rint(shares * total).astype(np.int64)

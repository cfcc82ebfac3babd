"""Watch guarantees: find pools that stay below their strong guarantee although a pending job would fit into the guarantee.

A pool starves for its guarantee once its usage has been below the guarantee for `min_share_preemption_timeout`. From then on preemption and
reservations should give the pool resources within a heartbeat or the length of a job. Each second some more pools are examined, and the
pools that were found a second ago are examined once more.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from headrace.ids import PoolName
from headrace.runtime.engine import Figure, Moment, counter, gauge
from headrace.wire.snapshots import StarvationReason
from headrace_allocator.decision.least_satisfied import LeastSatisfied
from headrace_allocator.effects import Alarm
from headrace_allocator.facts.facts import Facts

#: Seconds that a guarantee may stay unmet after its timeout: the time in which most jobs end or are preempted.
_LONG_S: Final = 120.0
#: Upper bound of the pools that are examined for the first time with each tick.
_MOST_NEW: Final = 32
#: Upper bound of all pools that are examined with each tick.
_MOST_WATCHED: Final = 128


class UnmetGuarantees:
    """Finds pools that starve for their guarantee while jobs within the guarantee wait, and records since when (steady-clock seconds)."""

    def __init__(self) -> None:
        self._since: dict[PoolName, float] = {}
        #: Pools that are still to be examined in this round.
        self._turn: list[PoolName] = []
        self._unmet: set[PoolName] = set()
        self._alarmed = 0

    def on_tick(self, facts: Facts, order: LeastSatisfied, now: Moment) -> list[Alarm]:
        """Examine some more pools, and examine once more the pools that were short at the last tick.

        Return an alarm for each guarantee that has been unmet for too long.
        """
        if not self._turn:
            self._turn = list(facts.pools.pools)
        new = [self._turn.pop() for _ in range(min(_MOST_NEW, len(self._turn)))]
        before, self._since = self._since, {}
        for name in islice(dict.fromkeys([*before, *new]), _MOST_WATCHED):
            if _is_short(facts, order, name):
                self._since[name] = before.get(name, now.steady_s)
        unmet = {name for name, since_s in self._since.items() if now.steady_s - since_s > _LONG_S}
        fresh, self._unmet = unmet - self._unmet, unmet
        self._alarmed += len(fresh)
        says = "a strong guarantee stays unmet although jobs that fit into it wait"
        return [Alarm(says, {"pool": name, "for_s": _LONG_S}) for name in sorted(fresh)]

    def figures(self) -> list[Figure]:
        """Return the metrics of guarantees that are unmet now, and of all guarantees that were found unmet."""
        return [
            gauge(
                "unmet_guarantees",
                "pools",
                len(self._unmet),
                "Pools that have starved for their strong guarantee for two minutes although jobs that fit into it wait.",
            ),
            counter("unmet_guarantees_found", "alarms", self._alarmed, "Pools whose strong guarantee was found unmet."),
        ]


def _is_short(facts: Facts, order: LeastSatisfied, name: PoolName) -> bool:
    """True if the pool starves for its guarantee, and a job below it may start and fits into the guarantee."""
    pool = facts.pools.pool(name)
    if pool.item is None or pool.item.starvation_reason is not StarvationReason.MIN_SHARE or not order.has_pool(name):
        return False
    waiting = order.pool(name)
    left = facts.pools.total.part(pool.item.strong_guarantee_share) - pool.used
    return bool(order.classes.fitting(left) & waiting.classes & waiting.open)

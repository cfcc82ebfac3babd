"""The accumulated volumes of a tree's pools as integral confirmed them, and the advances that integral has not confirmed yet. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import PoolTree
from headrace.resources import Resources
from headrace.runtime.engine import Figure, counter, gauge
from headrace.wire.integral import Advance, Advanced, AdvanceGap, Downtime, PoolFlow, PoolVolume
from headrace.wire.refusals import NotReady, Refusal
from headrace.wire.version import Term
from headrace_fair_share.facts.flows_to_integral import flows_of, with_grants
from headrace_fair_share.facts.pool_inputs import pool_input
from headrace_fair_share.facts.unconfirmed_advances import AdvanceChain

AdvanceAnswer = Advanced | AdvanceGap | Refusal


def saturation_period_s(pools: PoolTree) -> float:
    """Return for how many seconds a pool's flow must be added to an empty volume until the volume is full."""
    return pools.options.integral_guarantees.pool_capacity_saturation_period / 1000


class KnownVolumes:
    """The volumes of one tree, as known in one term of fair_share."""

    def __init__(self, tree: TreeName, term: Term, most_missed_advances: int) -> None:
        self.chain = AdvanceChain(tree, term, most_missed_advances)
        self.of: Mapping[PoolName, PoolVolume] = {}
        #: Time for which no volume was credited or charged, as integral last reported it.
        self.downtime = Downtime()
        #: The flows computed last, with the configuration and total resources from which they were computed; valid while both stay the
        #: same.
        self._flows: tuple[PoolTree, Resources, list[PoolFlow]] | None = None

    def advance(
        self, dt_us: int, total: Resources, pools: PoolTree, grants: Mapping[PoolName, float], at_ms: int
    ) -> None:
        """Record that time passed: add an advance with all flows and with the grants of the previous update."""
        flows = with_grants(self._flows_of(pools, total), grants)
        self.chain.add(dt_us, total, flows, saturation_period_s(pools), at_ms)

    def on_answer(self, answer: AdvanceAnswer) -> Advance | None:
        """Apply integral's answer to the oldest unconfirmed advance. Return the advance to send next; None if no advance is to be sent
        now.
        """
        match answer:
            case Advanced():
                if not self.chain.on_confirmed(answer):
                    return None
                self.of = {volume.pool: volume for volume in answer.pools}
                self.downtime = answer.downtime
            case AdvanceGap():
                self.chain.on_gap(answer)
            case NotReady():
                return None
            case _:
                self.chain.give_up()
        return self.chain.head()

    def figures(self) -> list[Figure]:
        """Return metrics: unconfirmed advances, dropped advances, and time for which no volume was credited."""
        return [
            gauge(
                "advances_waiting", "advances", len(self.chain), "Advances of volumes that integral has not confirmed."
            ),
            counter(
                "advances_given_up",
                "advances",
                self.chain.given_up,
                "Updates of pool volumes that were never sent to integral, because too many waited.",
            ),
            counter(
                "advances_given_up_time",
                "us",
                self.chain.given_up_us,
                "Time that is credited to no volume, since its advances were given up.",
            ),
            counter(
                "advance_chains_broken",
                "chains",
                self.chain.broken,
                "Chains of advances that integral could not continue.",
            ),
            counter(
                "downtime_gaps",
                "gaps",
                self.downtime.gaps,
                "Periods in which no update was computed and volumes did not change.",
            ),
            counter(
                "downtime",
                "ms",
                self.downtime.together_ms,
                "Total length of the periods in which volumes did not change.",
            ),
        ]

    def _flows_of(self, pools: PoolTree, total: Resources) -> list[PoolFlow]:
        if self._flows is None or self._flows[0] is not pools or self._flows[1] != total:
            places = {ROOT_POOL: -1, **{name: place for place, name in enumerate(pools.preorder)}}
            inputs = [
                pool_input(pool, places[pool.parent], pools) for pool in map(pools.pools.__getitem__, pools.preorder)
            ]
            distribute = pools.options.should_distribute_free_volume_among_children
            self._flows = (pools, total, flows_of(inputs, total, distribute=distribute))
        return self._flows[2]

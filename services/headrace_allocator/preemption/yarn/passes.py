"""Passes of preemption under a YARN policy: each pass looks for victims for all operations or pools that claim resources,
and makes plans.

Passes run outside of heartbeats, a bounded number of steps at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from headrace.ids import NodeName
from headrace.pools import PreemptionPolicy
from headrace.runtime.engine import Figure, Moment, Outcome, by_label, counter, gauge
from headrace_allocator.effects import Effect, NudgeNode
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.pool_tree import ShareSnapshot
from headrace_allocator.preemption.yarn.claims import Claims
from headrace_allocator.preemption.yarn.plans import Plans
from headrace_allocator.preemption.yarn.rounds import Rounds


class YarnPasses:
    """Processes claims by the tree's YARN policy. Each decision is kept as a plan until the next heartbeat of its node."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.plans = Plans()
        self.claims = Claims(facts, self.plans)
        self.rounds = Rounds(facts, self.plans)
        self._policy = PreemptionPolicy.YTSAURUS
        self._pass: Iterator[NodeName | None] | None = None

    def on_shares(self, cut: ShareSnapshot) -> None:
        """Record which operations or pools claim something. If the policy changed, drop all earlier claims, plans and warnings."""
        keys: Iterable[str] = (*cut.changed, *cut.removed)
        if cut.options.preemption_policy is not self._policy:
            self._policy, self._pass = cut.options.preemption_policy, None
            self.plans.drop()
            self.claims.forget()
            self.rounds = Rounds(self._facts, self.plans)
            keys = cut.items
        # Under any other policy nothing is claimed, so the items are not read. Most trees have another policy, and ten thousand items may
        # change at once.
        if self._policy is PreemptionPolicy.YARN:
            self.claims.on_shares(cut.items, keys)
        elif self._policy is PreemptionPolicy.YARN_LEGACY:
            self.rounds.on_shares(cut.items, keys)

    def is_due(self, now: Moment) -> bool:
        """True if a pass is running, or one may begin."""
        return self._pass is not None or self._may_begin(now)

    def on_due(self, most: int, now: Moment) -> Outcome[bool, Effect]:
        """Run up to `most` steps. The answer of the outcome is True while the pass is not finished."""
        if self._pass is None:
            self.plans.drop(before_s=now.steady_s)
        if self._pass is None and self._may_begin(now):
            is_legacy = self._policy is PreemptionPolicy.YARN_LEGACY
            self._pass = self.rounds.run(now) if is_legacy else self.claims.handle_all(now)
        effects: list[Effect] = []
        steps: Iterator[NodeName | None] = self._pass or iter(())
        taken = list(islice(steps, most))
        if len(taken) < most:
            self._pass = None
        for planned in taken:
            node = self._facts.nodes.get(planned) if planned is not None else None
            if node is not None and not node.nudged:
                node.nudged = True
                effects.append(NudgeNode(node.record.node))
        return Outcome(self._pass is not None, effects)

    def figures(self) -> list[Figure]:
        """Return the metrics of claims, plans and warnings."""
        plans = counter("plans", "plans", 0, "Preemption plans under a YARN policy, by outcome.")
        return [
            counter(
                "claims_seen_to", "claims", self.claims.seen_to, "Claims of operations that a YARN policy has handled."
            ),
            gauge(
                "warned",
                "allocations",
                self.rounds.warned,
                "Allocations that yarn_legacy has chosen and will preempt if they do not end.",
            ),
            *by_label(plans, "plans", "outcome", {each: self.plans.counts[each] for each in ("made", "dropped")}),
        ]

    def _may_begin(self, now: Moment) -> bool:
        facts, policy = self._facts, self._policy
        if policy is PreemptionPolicy.YTSAURUS or not facts.pools.options.yarn.enabled or not facts.term:
            return False
        if not facts.recovery.complete or facts.superseded or facts.preemption_paused or facts.shares_are_old(now):
            return False
        if policy is PreemptionPolicy.YARN_LEGACY:
            return self.rounds.is_due(now)
        return self.claims.some_may_be_seen_to(now)

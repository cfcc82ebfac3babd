"""Preemption in random fleets, with the real allocator and the real fair share: each decision is held against the plain rules.

Every heartbeat is judged: what started, who lost a place for it and by what right, and whether all sums are those of the allocations.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec
import pytest

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import Pool, PoolConfig, PoolMode, TreeOptions
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.tree_options import PriorityScope, VictimRules
from headrace.resources import Resources
from headrace.wire.heartbeat import Orders
from headrace.wire.ledger import LiveOperation
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.decide import HeartbeatDecision
from headrace_allocator.decision.view import Overlay, View
from headrace_allocator.explain.protected import protecting_rule
from headrace_allocator.explain.reasons import KeptBy
from headrace_allocator.facts.operations import is_owed_a_job
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption.legacy_victims import held_for
from headrace_allocator.preemption.victims import candidates
from tests.support.allocating import an_operation, cores
from tests.support.effort import seeds
from tests.support.preempting import Fleet

GIB: Final = 1024**3
STEPS: Final = 50
FEW: Final = 7
#: Victims by seed.
TAKEN: dict[int, int] = {}
#: Rules by which places were kept.
RULES: set[KeptBy] = set()


class RandomFleet(Fleet):
    """Up to three hosts and five pools. Operations come one after another, so that those who come late starve."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        count = random.randint(1, 3)
        hosts = {f"n{number}": Resources(12, random.choice([400, 600, 800]), 0, 16 * GIB) for number in range(count)}
        self.names = [f"p{number}" for number in range(random.randint(2, 5))]
        self.tree_options = self.options_of_tree(random)
        super().__init__(random, hosts, [a_pool(random, name, self.names) for name in self.names], self.tree_options)
        self.totals = dict(hosts)
        #: Hosts that have less than was given out on them.
        self.shrunk: set[str] = set()
        self.revision = 1

    def step(self) -> None:
        """A second or two, in which something may change."""
        random = self.random
        if len(self.live) < 12 and random.random() < (0.2 if self.live else 1.0):
            self.begin(an_operation_in(random, f"o{len(self.live)}", self.names), random.choice([5, 60, 600]))
        if random.random() < 0.05:
            self.revision += 1
            self.tree_options = self.options_of_tree(random)
            self.reconfigure(
                [a_pool(random, name, self.names) for name in self.names], self.tree_options, self.revision
            )
        self.pass_time(random.choice([0.5, 1.0, 2.0]))
        host = random.choice(list(self.nodes))
        if random.random() < 0.1:
            cpu = random.choice([200, self.totals[host].cpu, self.totals[host].cpu])
            self.nodes[host] = msgspec.structs.replace(self.totals[host], cpu=cpu)
            self.shrunk.add(host)

    def options_of_tree(self, random: Random) -> TreeOptions:
        """The rules by which places are taken."""
        return a_tree(random)

    def look(self, host: str) -> None:
        """All sums are exact, and no more of a node is used than it has, unless it shrank."""
        self.check_sums()
        node = self.node(host)
        self.look_again_at_kept_places(host)
        if not node.total.dominates(node.used):
            assert host in self.shrunk, f"{node.used} of {node.total} is used"
        elif node.total == self.totals[host]:
            self.shrunk.discard(host)

    def look_again_at_kept_places(self, host: str) -> None:
        """Whoever asks why a place is kept hears of a rule for each that no stage would take, and for no other."""
        view = View.of(self.facts, self.node(host), self.engine.ranking.order, pace_ms=0, stirring=())
        for starving in self.facts.operations.values():
            if starving.preemption_priority is not PreemptionPriority.NONE:
                aggressive = starving.preemption_priority is PreemptionPriority.AGGRESSIVE
                overlay = Overlay(view)
                found = candidates(overlay, Group.AGGRESSIVELY_PREEMPTIBLE if aggressive else Group.PREEMPTIBLE)
                may_go = {*found.free, *held_for(overlay, found.held, starving)}
                if is_owed_a_job(starving, starving.held):
                    may_go.update(found.crossing_for(overlay, starving))
                others = [one for one in view.allocations if one.operation != starving.id]
                kept = {one: protecting_rule(overlay, one, starving) for one in others}
                assert may_go.intersection(others) == {one for one in others if kept[one] is None}
                RULES.update(rule.by for rule in kept.values() if rule is not None)


def a_tree(random: Random) -> TreeOptions:
    return TreeOptions(
        fair_share_starvation_timeout=random.choice([0, 1_000, 3_000]),
        fair_share_aggressive_starvation_timeout=random.choice([3_000, 8_000]),
        enable_aggressive_starvation=random.random() < 0.6,
        fair_share_starvation_tolerance=random.choice([0.8, 1.0]),
        scheduling_preemption_priority_scope=random.choice(list(PriorityScope)),
        aggressive_preemption_satisfaction_threshold=random.choice([0.2, 0.5]),
        preemption_satisfaction_threshold=random.choice([1.0, 1.0, 1.3]),
        non_preemptible_resource_usage_threshold=random.choice([NOTHING, NOTHING, PartialResources(user_slots=1)]),
        preemptive_scheduling_backoff=random.choice([0, 0, 2_000]),
        allow_preemption_from_starving_operations=random.random() < 0.2,
        min_spare_allocation_resources_on_node=PartialResources(user_slots=1),
        preemption_exempt_time=random.choice([0, 0, 4_000]),
        preempt_at_bound_for_owed_jobs=random.random() < 0.5,
    )


def a_pool(random: Random, name: str, names: Sequence[str]) -> Pool:
    config = PoolConfig(
        weight=random.choice([1.0, 1.0, 2.0, 5.0]),
        mode=random.choice([PoolMode.FAIR_SHARE, PoolMode.FAIR_SHARE, PoolMode.FIFO]),
        resource_limits=random.choice([NOTHING, NOTHING, PartialResources(cpu=random.choice([200, 500]))]),
        resource_limits_overcommit_tolerance=random.choice([NOTHING, PartialResources(cpu=100)]),
        allow_aggressive_preemption=random.choice([None, None, False]),
        allow_normal_preemption=random.choice([None, None, None, False]),
        use_pool_satisfaction_for_scheduling=random.choice([None, True]),
        preemption_exempt_time=random.choice([None, None, 0, 12_000]),
    )
    above = [ROOT_POOL, *names[: names.index(name)]]
    return Pool(PoolName(name), PoolName(random.choice(above[-2:])), config)


def an_operation_in(random: Random, name: str, pools: Sequence[str]) -> LiveOperation:
    size = Resources(random.choice([1, 1, 2]), random.choice([50, 100, 100, 200, 300]), 0, random.choice([0, GIB]))
    live = an_operation(name, random.choice([3, 60, 200]), size)
    mode = PreemptionMode.GRACEFUL if random.random() < 0.1 else PreemptionMode.NORMAL
    spec = msgspec.structs.replace(live.spec, pool=PoolName(random.choice(pools)), preemption_mode=mode)
    return msgspec.structs.replace(live, spec=spec)


def taken_for_somebody(decided: HeartbeatDecision, orders: Orders) -> int:
    """Counts the victims of a heartbeat. The start and what makes room for it are told in one answer."""
    told = {one.allocation: one for one in orders.take_back}
    victims = 0
    for stage in [one for one in decided.stages if one.placement is not None]:
        assert stage.placement is not None
        starter = stage.placement.operation.id
        assert orders.start[-1].operation == starter
        for one in [one for one in stage.preemptions if one.beneficiary is not None]:
            record = told[one.allocation.id].preemption
            assert record is not None
            assert (record.beneficiary, record.group) == (starter, one.group)
            victims += 1
    return victims


class OlderRules(RandomFleet):
    """The same under the older rules of victims, by which pools are shielded, too."""

    def options_of_tree(self, random: Random) -> TreeOptions:
        return msgspec.structs.replace(
            super().options_of_tree(random),
            victim_rules=VictimRules.LEGACY,
            enable_conditional_preemption=random.random() < 0.7,
            preemption_check_starvation=random.random() < 0.7,
            preemption_check_satisfaction=random.random() < 0.7,
        )


@pytest.mark.parametrize("seed", seeds(FEW, 200))
def test_always_takes_what_the_rules_allow_and_no_more(seed: int) -> None:
    TAKEN[seed] = taken_in(RandomFleet(seed))


@pytest.mark.parametrize("seed", seeds(4, 500))
def test_always_takes_what_the_older_rules_allow_and_no_more(seed: int) -> None:
    taken_in(OlderRules(seed))


def taken_in(fleet: RandomFleet) -> int:
    """How many lose their place in a fleet."""
    taken = 0
    for _ in range(STEPS):
        fleet.step()
        for host in fleet.nodes:
            if fleet.random.random() < 0.8:
                answered = fleet.random.random() < 0.9
                orders = fleet.hear(host, answered=answered)
                fleet.look(host)
                taken += taken_for_somebody(fleet.engine.answers.decided, orders)
    assert fleet.engine.alarms.repeated <= sum(times - 1 for times in fleet.preempted.values())
    return taken


def test_places_are_taken_in_these_fleets() -> None:
    """The seeds of `make test`: preemption is rather the rule than the exception."""
    if len(TAKEN) >= FEW:
        assert sum(TAKEN.values()) > FEW
        assert {KeptBy.FAIR_SHARE, KeptBy.STARVING, KeptBy.ALLOW_NORMAL_PREEMPTION, KeptBy.EXEMPT} <= RULES


class SteadyFleet(Fleet):
    """One operation has all hosts for itself, then others come, and then nothing changes but by preemption.

    One resource, equal jobs that do not end, plain preemption by operations that starve themselves.
    """

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        hosts = {f"n{number}": cores(random.randint(2, 7), slots=99) for number in range(random.randint(1, 3))}
        names = [f"p{number}" for number in range(random.randint(2, 4))]
        pools = [Pool(PoolName(name), ROOT_POOL, PoolConfig(weight=random.choice([1.0, 1.5, 4.0]))) for name in names]
        options = TreeOptions(
            fair_share_starvation_timeout=random.choice([0, 2_000]),
            fair_share_starvation_tolerance=random.choice([0.8, 1.0]),
            scheduling_preemption_priority_scope=PriorityScope.OPERATION_ONLY,
            preemptive_scheduling_backoff=0,
            min_spare_allocation_resources_on_node=PartialResources(user_slots=1),
        )
        super().__init__(random, hosts, pools, options)
        self.begin(self.work("first", names[0]), 1e6)
        self.run_for(6)
        for number in range(random.randint(1, 5)):
            self.begin(self.work(f"later-{number}", random.choice(names)), 1e6)

    def work(self, name: str, pool: str) -> LiveOperation:
        live = an_operation(name, 40, cores(1))
        return msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, pool=PoolName(pool)))

    def run_for(self, steps: int) -> int:
        """Returns how many places were taken meanwhile."""
        before = self.engine.answers.preemptions.total()
        for _ in range(steps):
            self.pass_time(1.0)
            for host in self.nodes:
                self.hear(host, answered=self.random.random() < 0.9)
        return self.engine.answers.preemptions.total() - before


@pytest.mark.parametrize("seed", seeds(4, 100))
def test_never_takes_back_and_forth(seed: int) -> None:
    fleet = SteadyFleet(seed)
    fleet.run_for(60)

    assert max(fleet.preempted.values(), default=0) <= 1
    assert {operation for operation, _ in fleet.preempted} <= {"first"}, "who took something loses nothing"
    assert fleet.run_for(12) == 0
    assert fleet.engine.alarms.repeated == 0

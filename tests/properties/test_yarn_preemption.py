"""Preemption under YARN policies in random fleets, with the real allocator and the real fair share.

At the moment of choosing nobody falls below its fair share under `yarn`, nothing is taken where that is forbidden, and all sums hold.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec
import pytest

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import Pool, PoolConfig, PoolMode, PreemptionPolicy, ShareModel, TreeOptions, YarnOptions
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import Resources
from headrace.wire.ledger import LiveOperation
from headrace_allocator.explain.protected import why_kept_by_yarn
from headrace_allocator.preemption.yarn.plans import Plan
from tests.support.allocating import an_operation, with_task_sizes
from tests.support.effort import seeds
from tests.support.preempting import Fleet

GIB: Final = 1024**3
STEPS: Final = 60
FEW: Final = 6
#: Victims, by policy and seed.
TAKEN: dict[PreemptionPolicy, dict[int, int]] = {PreemptionPolicy.YARN: {}, PreemptionPolicy.YARN_LEGACY: {}}


class YarnFleet(Fleet):
    """Up to three hosts and five pools. Operations come one after another."""

    def __init__(self, seed: int, policy: PreemptionPolicy) -> None:
        random = Random(seed)
        self.policy = policy
        hosts = {
            f"n{number}": Resources(12, random.choice([400, 600, 800]), 0, 16 * GIB)
            for number in range(random.randint(1, 3))
        }
        self.names = [f"p{number}" for number in range(random.randint(2, 5))]
        self.barred: set[str] = set()
        super().__init__(random, hosts, [self.a_pool(name) for name in self.names], self.a_tree())
        plans = self.engine.yarn.plans
        add = plans.add

        def watched(plan: Plan) -> None:
            add(plan)
            self.judge_plan(plan)

        plans.add = watched  # type: ignore[method-assign]

    def a_tree(self) -> TreeOptions:
        random = self._random_of_tree()
        return TreeOptions(
            preemption_policy=self.policy,
            yarn=YarnOptions(
                enabled=True,
                share=random.choice([ShareModel.YARN, ShareModel.YARN, ShareModel.NATIVE]),
                cluster_utilization_threshold=random.choice([0.0, 0.5]),
                wait_before_kill=random.choice([0, 2_000]),
                heartbeat_allowance=1_000,
                wait_before_next_check=1_000,
                legacy_interval=2_000,
            ),
            fair_share_starvation_timeout=random.choice([0, 2_000]),
            fair_share_starvation_tolerance=random.choice([0.5, 0.8, 1.0]),
            min_share_preemption_timeout=random.choice([None, 0, 2_000]),
            min_spare_allocation_resources_on_node=PartialResources(user_slots=1),
        )

    def _random_of_tree(self) -> Random:
        return Random(len(self.names))

    def a_pool(self, name: str) -> Pool:
        random = Random(f"{name} {len(self.names)}")
        above = random.choice([ROOT_POOL, *self.names[: self.names.index(name)]][-2:])
        allowed = random.choice([None, None, None, False])
        if allowed is False or above in self.barred:
            self.barred.add(name)
        config = PoolConfig(
            weight=random.choice([1.0, 1.0, 3.0]),
            mode=random.choice([PoolMode.FAIR_SHARE, PoolMode.FAIR_SHARE, PoolMode.FIFO]),
            strong_guarantee_resources=random.choice([NOTHING, PartialResources(cpu=200, memory=4 * GIB)]),
            allow_preemption_from=allowed,
        )
        return Pool(PoolName(name), PoolName(above), config)

    def step(self) -> None:
        random = self.random
        if len(self.live) < 12 and random.random() < (0.2 if self.live else 1.0):
            self.begin(self.an_operation(f"o{len(self.live)}"), random.choice([5, 60, 600]))
        self.pass_time(random.choice([0.5, 1.0, 2.0]))

    def an_operation(self, name: str) -> LiveOperation:
        random = self.random
        size = Resources(1, random.choice([50, 100, 100, 200]), 0, random.choice([GIB // 2, GIB, 3 * GIB]))
        live = an_operation(name, random.choice([3, 60, 200]), size)
        master, pool = random.random() < 0.3, PoolName(random.choice(self.names))
        spec = msgspec.structs.replace(live.spec, pool=pool, first_job_is_master=master)
        return msgspec.structs.replace(live, spec=spec)

    def judge_plan(self, plan: Plan) -> None:
        """Whoever loses something has its fair share still, by the largest part of the cluster, and may lose it."""
        plans, total = self.engine.yarn.plans, self.facts.pools.total
        for name in {one.operation for one in plan.victims}:
            operation = self.operation(name)
            assert operation.spec.pool not in self.barred
            if self.policy is not PreemptionPolicy.YARN:
                continue
            # The explanation of protected allocations agrees with the victims.
            assert plan.operation is not None
            starving = self.operation(plan.operation)
            assert all(why_kept_by_yarn(self.facts, one, starving) is None for one in plan.victims)
            left, fair = operation.held - plans.taken(name), operation.total.part(operation.fair_share)
            if operation.in_fifo_pool:
                assert left.memory >= fair.memory
            else:
                assert max(left.share_of(total)[1:]) >= max(fair.share_of(total)[1:]) - 1e-9


@pytest.mark.parametrize("policy", TAKEN)
@pytest.mark.parametrize("seed", seeds(FEW, 300))
def test_nobody_falls_below_its_fair_share(seed: int, policy: PreemptionPolicy) -> None:
    fleet = YarnFleet(seed, policy)
    run(fleet)
    TAKEN[policy][seed] = fleet.engine.answers.preemptions.total()


def run(fleet: YarnFleet) -> None:
    for _ in range(STEPS):
        fleet.step()
        for host in fleet.nodes:
            if fleet.random.random() < 0.8:
                fleet.hear(host, answered=fleet.random.random() < 0.9)
                fleet.check_sums()


class TaskFleet(YarnFleet):
    """Operations with jobs of several sizes, some of which fit on no host."""

    def an_operation(self, name: str) -> LiveOperation:
        live, random = super().an_operation(name), self.random
        sizes = [
            Resources(1, cpu, 0, random.choice([1, 2, 6]) * GIB // 2) for cpu in random.sample([50, 100, 200, 900], 3)
        ]
        tasks = [(random.choice([1, 3]), size) for size in sizes]
        return with_task_sizes(live, *tasks)


@pytest.mark.parametrize("seed", seeds(1, 100))
def test_plans_start_jobs_of_the_task_for_which_they_were_made(seed: int) -> None:
    run(TaskFleet(seed, PreemptionPolicy.YARN))


@pytest.mark.parametrize("policy", TAKEN)
def test_places_are_taken_in_these_fleets(policy: PreemptionPolicy) -> None:
    """The seeds of `make test`: preemption is rather the rule than the exception."""
    if len(TAKEN[policy]) >= FEW:
        assert sum(TAKEN[policy].values()) > FEW

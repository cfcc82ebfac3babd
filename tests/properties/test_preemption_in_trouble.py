"""Preemption while all else changes: nodes shrink, vanish, err and come back, limits go to zero, operations end, preemption is paused.

Each decision is held against the plain rules, as in calmer fleets, and after each heartbeat all sums and places are checked.
"""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from headrace.ids import Incarnation, NodeName, OperationId
from headrace.pools import Pool
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.pool_config import PreemptionSwitch
from headrace.resources import Resources
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobEnd, JobResult, JobSlot, RunningJob
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import OperationStateChanged, OperationSuspended, StateCause
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import OperationState
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from tests.properties.test_preemption import GIB, RandomFleet, a_pool, a_tree
from tests.support.effort import seeds

STEPS: Final = 40
LIMITS: Final = [NOTHING, NOTHING, PartialResources(cpu=0), PartialResources(cpu=300, memory=2 * GIB)]
#: Without slots, without cores, and more of one with less of another.
SHAPES: Final = [Resources(0, 400, 0, 16 * GIB), Resources(12, 0, 0, 0), Resources(3, 900, 0, GIB)]


class TroubledFleet(RandomFleet):
    """A fleet in which on each step something may happen that rarely does."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.lives = dict.fromkeys(self.nodes, 1)
        self.silent_until = dict.fromkeys(self.nodes, 0.0)
        self.begun = 0

    def begin(self, live: LiveOperation, job_s: float) -> None:
        self.begun += 1
        super().begin(msgspec.structs.replace(live, operation=OperationId(f"o{self.begun}")), job_s)

    def step(self) -> None:
        super().step()
        random, host = self.random, self.random.choice(list(self.nodes))
        if random.random() < 0.12:
            self.change_tree()
        if self.live and random.random() < 0.1:
            self.change_operation(random.choice(list(self.live)))
        if random.random() < 0.08:
            self.shrunk.add(host)
            self.nodes[host] = random.choice([*SHAPES, self.totals[host], self.totals[host]])
        if random.random() < 0.05:
            record = NodeRecord(NodeName(host), drained=random.random() < 0.5)
            self.engine.on_nodes({record.node: record}, self.now)
        if random.random() < 0.05:
            self.silent_until[host] = self.now_s + random.choice([5, 70, 700])
        if random.random() < 0.3:
            self.tick(self.now_s)

    def change_tree(self) -> None:
        random = self.random
        self.revision += 1
        self.tree_options = msgspec.structs.replace(
            a_tree(random), preemption=random.choice(list(PreemptionSwitch)), pause_preemption=random.random() < 0.2
        )
        pools = [a_pool(random, name, self.names) for name in self.names]
        changes = [
            {"resource_limits": random.choice(LIMITS), "preemption": random.choice([None, *PreemptionSwitch])}
            for _ in pools
        ]
        pools = [
            Pool(pool.name, pool.parent, msgspec.structs.replace(pool.settings, **change))
            for pool, change in zip(pools, changes, strict=True)
        ]
        self.reconfigure(pools, self.tree_options, self.revision)
        self.engine.on_options(self.tree_options, self.now)

    def change_operation(self, name: OperationId) -> None:
        match self.random.choice(["abort", "suspend", "resume", "end"]):
            case "abort":
                self.learn(OperationStateChanged(name, OperationState.ABORTING, StateCause.ABORTED_BY_USER, "", 1))
            case "suspend":
                hard = self.random.random() < 0.5
                self.learn(OperationSuspended(name, suspended=True, at_ms=1, abort_running_jobs=hard))
            case "resume":
                self.learn(OperationSuspended(name, suspended=False, at_ms=1))
            case _:
                del self.live[name]
                self.engine.on_operations(self.live.values(), self.now)
                self._fair_share.on_operations(self.live.values(), self.now)
                self.refresh()

    def shown(self, host: str) -> list[AllocationReport]:
        """What is there, and now and then something that cannot be."""
        reports, random = super().shown(host), self.random
        if reports and random.random() < 0.3:
            at = random.randrange(len(reports))
            if random.random() < 0.3:
                # The end of a job that another attempt, or nobody, has.
                lost = JobEnd(
                    reports[at].operation, random.randrange(9), random.choice([1, 2]), reports[at].id, JobResult.LOST
                )
                self.ends[host][lost.operation, lost.index, lost.attempt] = lost
            reports[at] = msgspec.structs.replace(reports[at], **random.choice(self.mistakes(reports[at])))
        return reports

    def mistakes(self, report: AllocationReport) -> list[dict[str, object]]:
        return [
            {"operation": OperationId(f"o{self.random.randrange(9)}")},
            {"resources": Resources(5, 2_000, 0, GIB)},
            {"state": self.random.choice(list(AllocationState))},
            {"job": RunningJob(self.random.choice([0, 1, 2**31 - 1]), self.random.choice([1, 2]), 5, 5)},
            {"unstarted": [JobSlot(1), JobSlot(1)]},
            {"preemption": PreemptionRecord(PreemptionReason.PREEMPTION)},
        ]

    def look(self, host: str) -> None:
        """Every heartbeat is followed by the engine's own checks, which know of jobs in doubt, too."""


@pytest.mark.parametrize("seed", seeds(6, 150))
def test_always_keeps_rules_and_sums_whatever_happens_to_nodes_and_operations(seed: int) -> None:
    fleet = TroubledFleet(seed)
    for _ in range(STEPS):
        fleet.step()
        for host in fleet.nodes:
            if fleet.silent_until[host] > fleet.now_s or fleet.random.random() < 0.2:
                continue
            if fleet.random.random() < 0.05:
                # Its agent begins another life.
                fleet.lives[host] += 1
                fleet.seq[host] = fleet.applied[host] = 0
                fleet.forget_answer(host)
            life = Incarnation(f"life-{fleet.lives[host]:04}")
            fleet.hear(host, answered=fleet.random.random() < 0.85, incarnation=life)

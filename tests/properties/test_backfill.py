"""Jobs with a time limit run on a reserved node meanwhile, and the operation that has the reservation starts no later for that.

In the model each operation has jobs of one length, so what is expected without other jobs is what happens without them.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headrace.ids import NodeName, OperationId
from headrace.pools.pool_config import PreemptionSwitch
from headrace.wire.heartbeat import Orders
from headrace_allocator.gangs.gang import GangPhase
from tests.support.allocating import cores
from tests.support.effort import seeds
from tests.support.streams import LARGE, StreamFleet

pytestmark = pytest.mark.long

SHORT = OperationId("short-jobs")


class SteadyFleet(StreamFleet):
    """Nodes that jobs of three lengths keep full, and an operation of short jobs with a time limit that comes when a node is reserved."""

    def __init__(self, seed: int, *, limit_ms: int | None, gang: int = 0, runs_s: float = 0.0) -> None:
        random = Random(seed)
        self._limit_ms, self._runs_s = limit_ms, runs_s
        #: Number of the short jobs that started on a reserved node, and the times at which the reserved jobs were expected to fit at first.
        self.lent = 0
        self.expected_s: list[float] = []
        super().__init__(
            random,
            (1.0, 1.0),
            nodes=random.randint(2, 4),
            fair_share_starvation_timeout=2_000,
            preemption=PreemptionSwitch.OFF,
        )
        for number in range(3):
            self.work(OperationId(f"steady-{number}"), "small", 400, cores(1))
            self.job_s[OperationId(f"steady-{number}")] = random.choice([4.0, 9.0, 17.0, 30.0])
        for _ in range(50):
            self.second()
        large: dict[str, Any] = {"is_gang": True} if gang else {}
        self.work(LARGE, "whole", gang or 1, cores(random.choice([2, 3] if gang else [3, 4])), 2, **large)

    def starts_after(self, most_s: int) -> float | None:
        """Let time pass until all jobs of the large operation have started. Return the time at which they did."""
        for _ in range(most_s):
            self.second()
            if not self.expected_s and self.reserved_nodes():
                self.expected_s = [node.reserved.expected_s for node in self.reserved_nodes() if node.reserved]
                self.work(SHORT, "small", 400, cores(1), time_limit_ms=self._limit_ms, interruption_timeout_ms=500)
                self.job_s[SHORT] = self._runs_s
            gang = self.operation(LARGE).gang
            if self.operation(LARGE).allocations and (gang is None or gang.phase is GangPhase.RUNNING):
                return self.now_s
        return None

    def hear(self, host: str, **changes: Any) -> Orders:
        node = self.facts.nodes[NodeName(host)]
        before = node.reserved
        orders = super().hear(host, **changes)
        if before is not None and node.reserved is before:
            self.lent += sum(start.operation == SHORT for start in orders.start)
        return orders


@pytest.mark.parametrize("gang", [0, 2])
@pytest.mark.parametrize("seed", seeds(5, 200))
def test_an_operation_starts_no_later_on_reserved_nodes_that_are_lent(seed: int, gang: int) -> None:
    limit_ms = Random(seed).choice([500, 2_000, 5_000])
    starts_s = {}
    for limit in (limit_ms, None):
        fleet = SteadyFleet(seed, limit_ms=limit, gang=gang, runs_s=(limit_ms + 500) / 1000)
        starts_s[limit] = fleet.starts_after(100)
        assert starts_s[limit] is not None
        # The model is exact: a single job starts when it was expected to start.
        if fleet.expected_s and not gang:
            assert fleet.now_s <= max(fleet.expected_s)

    assert starts_s[limit_ms] == starts_s[None]


def test_short_jobs_run_on_reserved_nodes_only_with_a_time_limit() -> None:
    lent = {limit_ms: sum(_lent(seed, limit_ms) for seed in (0, 4, 11)) for limit_ms in (None, 1_000, 60_000)}

    assert lent[1_000] > 0
    assert lent[None] == lent[60_000] == 0


def _lent(seed: int, limit_ms: int | None) -> int:
    fleet = SteadyFleet(seed, limit_ms=limit_ms, runs_s=1.0)
    fleet.starts_after(100)
    return fleet.lent

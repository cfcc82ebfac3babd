"""Hosts of which some fail every job at once, with the real allocator and the real fair share in simulated time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec

from headrace.ids import ROOT_POOL, NodeName, OperationId, PoolName
from headrace.pools import Pool, TreeOptions
from headrace.pools.amounts import PartialResources
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.nodes import ListNodes
from headrace_allocator.explain.answers import list_nodes
from tests.support.allocating import an_operation, cores
from tests.support.preempting import Fleet, _Place

__all__ = ["FailingFleet"]


class FailingFleet(Fleet):
    """Hosts with the same number of cores. `fails` says whether a job of an operation fails on a host."""

    def __init__(
        self,
        hosts: Iterable[str],
        fails: Callable[[str, OperationId], bool],
        *,
        host_cores: int = 2,
        seed: int = 1,
        step_s: float = 0.25,
        pools: Iterable[str] = ("p",),
        **options: Any,
    ) -> None:
        usual: dict[str, Any] = {
            "min_spare_allocation_resources_on_node": PartialResources(user_slots=1),
            "hold_back_failing_nodes": True,
            "use_pool_satisfaction_for_scheduling": True,
        }
        size = cores(host_cores, slots=host_cores)
        made = [Pool(PoolName(name), ROOT_POOL) for name in pools]
        super().__init__(Random(seed), dict.fromkeys(hosts, size), made, TreeOptions(**usual | options))
        self.fails = fails
        #: Seconds after which a job that fails ends.
        self.fails_after_s = 0.0
        self._step_s = step_s
        #: Ended jobs by host and result, and by operation and result.
        self.ended: Counter[tuple[str, JobResult]] = Counter()
        self.by_operation: Counter[tuple[str, JobResult]] = Counter()
        #: Completed jobs of operations that the ledger has recorded.
        self.recorded: Counter[str] = Counter()
        #: The hosts on which each attempt of a job ended, in order.
        self.tried_on: dict[tuple[str, int], list[str]] = {}

    def work(self, name: str, jobs: int, job_s: float = 1.0, *, user: str = "anna", **changes: Any) -> None:
        """An operation of jobs with one core starts."""
        live = an_operation(name, jobs)
        spec = msgspec.structs.replace(live.spec, **changes)
        self.begin(msgspec.structs.replace(live, spec=spec, user=user), job_s)
        self.update_shares()

    def step(self) -> None:
        """Every host sends a heartbeat, jobs run for a while, and an operation whose jobs are done is over."""
        for host in self.nodes:
            self.hear(host)
        self.pass_time(self._step_s)
        for name, live in list(self.live.items()):
            if self.recorded[name] >= live.spec.job_count:
                self.over(name)
        if int(self.now_s) > int(self.now_s - self._step_s):
            self.tick(self.now_s)

    def over(self, name: str) -> None:
        """An operation is over."""
        del self.live[OperationId(name)]
        self.engine.on_operations(self.live.values(), self.now)
        self.refresh()

    def run(self, most_s: float = 600.0) -> float:
        """Run until every operation is over. Return how long it took, in seconds."""
        began_s = self.now_s
        while self.live and self.now_s - began_s < most_s:
            self.step()
        return self.now_s - began_s

    def run_for(self, seconds: float) -> None:
        """Run for some time."""
        for _ in range(int(seconds / self._step_s)):
            self.step()

    def failed(self, host: str) -> int:
        """Number of jobs that failed on a host."""
        return self.ended[host, JobResult.FAILED]

    def states(self) -> dict[str, str]:
        """The state of each node, as people see it."""
        return {view.node: view.state for view in list_nodes(self.facts, ListNodes(), self.now).nodes}

    def words(self, host: str) -> str:
        """Why a node is held back, as people see it."""
        return {view.node: view.held_back for view in list_nodes(self.facts, ListNodes(), self.now).nodes}[
            NodeName(host)
        ]

    def _record(self, end: JobEnd, node: NodeName) -> None:
        self.recorded[end.operation] += end.result is JobResult.COMPLETED
        super()._record(end, node)

    def _next_job(self, place: _Place) -> None:
        super()._next_job(place)
        host = next(name for name, places in self.places.items() if places.get(place.id) is place)
        if self.fails(host, place.operation):
            place.ends_s = self.now_s + self.fails_after_s

    def _end_job(self, host: str, place: _Place) -> None:
        job, fails = place.job, self.fails(host, place.operation)
        assert job is not None
        super()._end_job(host, place)
        key = (place.operation, job.index, job.attempt)
        end = self.ends[host][key]
        if fails and end.result is JobResult.COMPLETED:
            end = self.ends[host][key] = msgspec.structs.replace(end, result=JobResult.FAILED, exit_code=127)
        self._count(host, end)

    def _count(self, host: str, end: JobEnd) -> None:
        self.ended[host, end.result] += 1
        self.by_operation[end.operation, end.result] += 1
        self.tried_on.setdefault((end.operation, end.index), []).append(host)

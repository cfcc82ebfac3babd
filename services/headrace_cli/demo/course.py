"""The first act of the demo: make the pools, start the operations, watch them, and judge the results."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import anyio

from headrace.client import Client, Operation
from headrace.runtime.clock import Clock
from headrace.wire.heartbeat import JobResult
from headrace.wire.operations import OperationState
from headrace.wire.snapshots import UsageItem
from headrace_cli.demo.averages import Averages, Sample
from headrace_cli.demo.comeback import SCRIPT
from headrace_cli.demo.plan import POOLS
from headrace_cli.demo.show import DemoBars

_POLL_S = 0.1
#: Smallest fraction of its fair share that a pool must use, on average over the time in which all pools wanted more.
_FAIR_ENOUGH = 0.5


class Course:
    """One run of the first act. `troubles` lists what did not go as it should; it is empty if all is well."""

    def __init__(self, client: Client, clock: Clock, bars: DemoBars) -> None:
        self._client = client
        self._clock = clock
        self._bars = bars
        self._operations: dict[str, list[Operation]] = {pool.name: [] for pool in POOLS}
        #: Number of completed jobs by operation.
        self._completed: dict[str, int] = {}
        self._fair_shares: dict[str, float] = {}
        self.averages = Averages([pool.name for pool in POOLS])
        self.done = {pool.name: 0 for pool in POOLS}
        self.troubles: list[str] = []

    async def run(self) -> None:
        """Run the act. Raises `Refused`, `Unanswered`."""
        for pool in POOLS:
            await self._client.pools.create(pool.name, attributes=pool.options.changes())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look_at_shares)
            async with anyio.create_task_group() as waits:
                for pool in POOLS:
                    for jobs in pool.operations:
                        operation = await self._start(pool.name, jobs)
                        self._operations[pool.name].append(operation)
                        waits.start_soon(self._wait, pool.name, operation)
            tasks.cancel_scope.cancel()
        for pool in POOLS:
            for jobs, operation in zip(pool.operations, self._operations[pool.name], strict=True):
                await self._judge(pool.name, jobs, operation)
            self._judge_usage(pool.name)

    async def _start(self, pool: str, jobs: int) -> Operation:
        return await self._client.run(
            [sys.executable, "-I", "-S", str(SCRIPT)],
            pool=pool,
            jobs=jobs,
            memory="64M",
            working_directory="/",
            title="count primes",
        )

    async def _wait(self, pool: str, operation: Operation) -> None:
        def progress(view: object) -> None:
            self._completed[operation.id] = getattr(view, "completed_jobs", 0)
            self.done[pool] = sum(self._completed.get(each.id, 0) for each in self._operations[pool])

        await operation.wait(progress)

    def on_usage(self, operations: Mapping[str, UsageItem]) -> None:
        """Record the usage that the allocator has published. Jobs that are being started count as running."""
        cores: dict[str, float] = {}
        samples: dict[str, Sample] = {}
        for pool, started in self._operations.items():
            items = [item for each in started if (item := operations.get(each.id)) is not None]
            if not items:
                continue
            cores[pool] = sum(item.usage.cpu + item.precommit.cpu for item in items) / 100
            if pool in self._fair_shares:
                waits = any(item.pending_jobs > 0 for item in items)
                samples[pool] = Sample(cores[pool], self._fair_shares[pool], waits)
        self.averages.on_sample(self._clock.steady_s(), samples)
        self._bars.update(self.done, cores)

    async def _look_at_shares(self) -> None:
        while True:
            answer = await self._client.pools.list()
            self._fair_shares = {str(pool.name): pool.fair_resources.cpu / 100 for pool in answer.pools}
            await anyio.sleep(_POLL_S)

    async def _judge(self, pool: str, jobs: int, operation: Operation) -> None:
        view = await operation.view()
        if view.state is not OperationState.COMPLETED or view.completed_jobs != jobs or view.failed_jobs:
            self.troubles.append(
                f"{pool}: {view.completed_jobs} of {jobs} jobs, {view.failed_jobs} failed, {view.state} {view.reason}"
            )
            return
        rows = await operation.jobs()
        good = [row for row in rows if row.result is JobResult.COMPLETED and row.exit_code == 0]
        if len(good) != jobs:
            self.troubles.append(f"{pool}: {len(good)} of {jobs} jobs have exit code 0")
        lines = [line.text async for line in operation.logs()]
        if len(lines) != jobs or not all("primes from" in line for line in lines):
            self.troubles.append(f"{pool}: its logs have {len(lines)} lines, not one for each of {jobs} jobs")

    def _judge_usage(self, pool: str) -> None:
        owed, used = self.averages.fair_share(pool), self.averages.usage(pool)
        if used < owed * _FAIR_ENOUGH:
            self.troubles.append(f"{pool}: used {used:.2f} cores on average, of a fair share of {owed:.2f}")

"""The last act of the demo: an idle pool comes back, and jobs of the pool that borrowed its cores are preempted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import anyio
import msgspec

from headrace.client import Client, Operation
from headrace.resources import EPS, RESOURCE_NAMES
from headrace.wire.happenings import JobEnded
from headrace.wire.operations import FINAL_STATES, OperationState
from headrace.wire.preemption import PreemptionRecord
from headrace_cli.demo.plan import BACKOFF_MS, LENDER, RETURNING, STARVATION_TIMEOUT_MS, Load

SCRIPT: Final = Path(__file__).with_name("primes.py")
_POLL_S: Final = 0.1
_CPU: Final = RESOURCE_NAMES.index("cpu")


class GivenUp(msgspec.Struct, frozen=True):
    """A job that was preempted because the idle pool came back."""

    job: int
    node: str
    ran_s: float
    record: PreemptionRecord


class Comeback:
    """One run of the last act. `troubles` lists what did not go as it should; it is empty if all is well."""

    def __init__(self, client: Client) -> None:
        self._client = client
        #: Preempted jobs, in the order of the decisions.
        self.given_up: list[GivenUp] = []
        self.troubles: list[str] = []

    async def run(self) -> None:
        """Run the act. Raises `Refused`, `Unanswered`."""
        options = {"fair_share_starvation_timeout": STARVATION_TIMEOUT_MS, "preemptive_scheduling_backoff": BACKOFF_MS}
        await self._client.trees.set("default", options)
        lender = await self._start(LENDER)
        await self._until_running(lender, LENDER.jobs)
        returning = await self._start(RETURNING)
        for load, operation in ((RETURNING, returning), (LENDER, lender)):
            await operation.wait()
            await self._judge(load, operation)
        async for page in self._client.happenings.history(lender.id):
            self.given_up += [
                GivenUp(each.slot.index, each.node, (each.ran_ms or 0) / 1000, each.preemption)
                for each in page.happenings
                if isinstance(each, JobEnded) and each.preemption is not None
            ]
        self.given_up.sort(key=lambda each: each.record.decided_at_ms)
        self._judge_given_up(returning)

    async def _start(self, load: Load) -> Operation:
        return await self._client.run(
            [sys.executable, "-I", "-S", str(SCRIPT), str(load.seconds)],
            pool=load.pool,
            jobs=load.jobs,
            memory="64M",
            working_directory="/",
            title="count more primes",
        )

    async def _until_running(self, operation: Operation, jobs: int) -> None:
        while True:
            if len((await operation.places()).running) == jobs or (await operation.view()).state in FINAL_STATES:
                return
            await anyio.sleep(_POLL_S)

    async def _judge(self, load: Load, operation: Operation) -> None:
        view = await operation.view()
        if view.state is not OperationState.COMPLETED or view.completed_jobs != load.jobs or view.failed_jobs:
            self.troubles.append(f"{load.pool}: {view.completed_jobs} of {load.jobs} jobs, {view.state} {view.reason}")

    def _judge_given_up(self, returning: Operation) -> None:
        if not self.given_up:
            self.troubles.append(f"{LENDER.pool}: no job was preempted")
        for each in self.given_up:
            if each.record.beneficiary != returning.id:
                self.troubles.append(f"job {each.job} of {LENDER.pool} was preempted for {each.record.beneficiary}")
            if each.record.share_after[_CPU] < each.record.fair_share[_CPU] - EPS:
                self.troubles.append(f"job {each.job} of {LENDER.pool} was within the fair share of its operation")

"""One allocation on its node: its job, its slots that have not started, and the table of its states."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from headrace.ids import AllocationId, OperationId
from headrace.resources import Resources
from headrace.runtime.engine import NS_PER_MS
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobKey, JobSlot, RunningJob, short_text
from headrace.wire.preemption import PreemptionRecord
from headrace.wire.start_stages import StartRecord
from headrace_agent.runner.protocol import Interrupt, Started

#: Upper bound of the characters in a heartbeat that say why an allocation was returned.
_WHY_CHARACTERS: Final = 100
#: Upper bound of the bytes of this reason in a heartbeat: at most four for each character, and two more.
MOST_REASON_BYTES: Final = 4 * _WHY_CHARACTERS + 2


class AllocationEvent(enum.StrEnum):
    """Events in the life of an allocation."""

    #: The resources of the allocation are free: its first job is sent to the runner.
    ROOM = "room"
    #: The job of the allocation ended, and the next job of the allocation is sent to the runner.
    NEXT = "next"
    #: No further job starts, because the allocation was taken back or the agent stops.
    CLOSE = "close"
    #: The job of the allocation ended, and there is no further job.
    FINISH = "finish"


_S = AllocationState
#: State after an event, by state and event. An event that is not listed for a state cannot happen in that state.
TRANSITIONS: dict[tuple[AllocationState, AllocationEvent], AllocationState] = {
    (_S.WAITING, AllocationEvent.ROOM): _S.RUNNING,
    (_S.WAITING, AllocationEvent.CLOSE): _S.ENDED,
    (_S.RUNNING, AllocationEvent.NEXT): _S.RUNNING,
    (_S.RUNNING, AllocationEvent.CLOSE): _S.CLOSING,
    (_S.RUNNING, AllocationEvent.FINISH): _S.ENDED,
    (_S.CLOSING, AllocationEvent.CLOSE): _S.CLOSING,
    (_S.CLOSING, AllocationEvent.FINISH): _S.ENDED,
    (_S.ENDED, AllocationEvent.CLOSE): _S.ENDED,
}


class Job(msgspec.Struct, frozen=True):
    """The job that an allocation has at the runner. Never changed in place: each change makes a new `Job`."""

    key: JobKey
    #: The runner's report that the job runs; None: the runner has not reported it yet.
    started: Started | None = None
    #: Progress in thousandths; None: the job has not reported any.
    progress: int | None = None


class Allocation(msgspec.Struct):
    """One allocation. No attribute is changed in place: setting an attribute drops the cached report."""

    id: AllocationId
    operation: OperationId
    resources: Resources
    state: AllocationState
    #: Slots whose jobs have not started, in the order in which they will run; in a closing or ended allocation: slots that are
    #: returned to the allocator.
    unstarted: tuple[JobSlot, ...]
    job: Job | None = None
    #: The interruption that was last sent to the runner. It is sent again if the runner may have missed it.
    interrupt: Interrupt | None = None
    #: Record of the preemption of this allocation, from the newest order that carried such a record.
    preemption: PreemptionRecord | None = None
    #: CLOCK_BOOTTIME in nanoseconds until which the allocation may wait for free resources; None: no limit.
    waits_until_ns: int | None = None
    #: Number of slots at the front of `unstarted` that are queued at the runner, which starts them by itself.
    ahead: int = 0
    #: Pending closes: for each, the milliseconds from the interruption of the running job to its kill (None: no interruption) and the
    #: reason. The closes take effect when the runner has confirmed that no job is queued.
    closes_for: tuple[tuple[int | None, str], ...] = ()
    #: Why the node itself, without an order, returned the allocation or the slots behind its running job; empty: it returned nothing.
    given_back_for: str = ""
    #: Record of the decision that started the allocation, from its start order; None if the order had none.
    start: StartRecord | None = None
    #: Names of the GPU devices that the allocation holds, as long as it holds its resources.
    gpus: tuple[str, ...] = ()
    jobs_ended: int = 0
    jobs_ended_ms: int = 0
    #: The cached report; dropped at each change. Most allocations do not change from one heartbeat to the next.
    _report: AllocationReport | None = None

    def __setattr__(self, name: str, value: object) -> None:
        """Change one attribute, and drop the cached report."""
        super().__setattr__("_report", None)
        super().__setattr__(name, value)

    def key_of(self, slot: JobSlot) -> JobKey:
        """Return the key of the job of a slot."""
        return JobKey(self.operation, slot.index, slot.attempt)

    def has(self, key: JobKey) -> bool:
        """True if the job is one of the unstarted slots."""
        return any(self.key_of(slot) == key for slot in self.unstarted)

    def report(self) -> AllocationReport:
        """Return the report for a heartbeat, cached since the last change."""
        report = self._report
        if report is None:
            report = self._report = self.new_report()
        return report

    def new_report(self) -> AllocationReport:
        """Build the report from the present attributes."""
        job = None
        if self.job is not None:
            started = self.job.started
            at_ms = started.started_at_ms if started is not None else 0
            boottime_ms = started.started_boottime_ns // NS_PER_MS if started is not None else 0
            account = started.account if started is not None else ""
            key, progress = self.job.key, self.job.progress
            job = RunningJob(key.index, key.attempt, max(0, at_ms), max(0, boottime_ms), account, progress)
        return AllocationReport(
            id=self.id,
            operation=self.operation,
            state=self.state,
            resources=self.resources,
            job=job,
            unstarted=list(self.unstarted),
            jobs_ended=self.jobs_ended,
            jobs_ended_ms=self.jobs_ended_ms,
            preemption=self.preemption,
            given_back_for=short_text(self.given_back_for, _WHY_CHARACTERS),
        )

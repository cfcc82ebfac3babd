"""One allocation on its node: its job, its slots that did not start yet, and the table of its states."""

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

#: Of the words in a heartbeat on why it was given back.
_WHY_CHARACTERS: Final = 100
#: The same in bytes: a character takes four at most.
MOST_REASON_BYTES: Final = 4 * _WHY_CHARACTERS + 2


class AllocationEvent(enum.StrEnum):
    """Events in the life of an allocation."""

    #: Its room is free: its first job goes to the runner.
    ROOM = "room"
    #: Its job ended and it has another one.
    NEXT = "next"
    #: No next job: taken back, or the agent stops.
    CLOSE = "close"
    #: Its job ended and there is no next one.
    FINISH = "finish"


_S = AllocationState
#: A pair that is missing cannot happen.
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
    """The job that an allocation has at the runner. It is replaced by what is new of it."""

    key: JobKey
    #: None until the runner has said that it runs.
    started: Started | None = None
    #: In thousandths, if it says so.
    progress: int | None = None


class Allocation(msgspec.Struct):
    """One allocation. Its attributes hold nothing that changes in place, so that its report is new after each change."""

    id: AllocationId
    operation: OperationId
    resources: Resources
    state: AllocationState
    #: In the order in which they will run; of a closing or ended one: given back.
    unstarted: tuple[JobSlot, ...]
    job: Job | None = None
    #: What the runner was told last to end the job with; told again to a runner that may have missed it.
    interrupt: Interrupt | None = None
    #: What it was preempted for, by the newest order that said so.
    preemption: PreemptionRecord | None = None
    #: CLOCK_BOOTTIME until which it may wait for room; None: for ever.
    waits_until_ns: int | None = None
    #: So many of `unstarted`, from the first on, are ahead at the runner: it starts them without being asked.
    ahead: int = 0
    #: Times and reasons for which it is to close as soon as nothing is ahead. The runner was asked for that.
    closes_for: tuple[tuple[int | None, str], ...] = ()
    #: Why the node gave it, or the jobs behind its running one, back by itself; empty: it did not.
    given_back_for: str = ""
    #: How it got its place, as its order said; None of one whose order did not.
    start: StartRecord | None = None
    jobs_ended: int = 0
    jobs_ended_ms: int = 0
    #: Kept until anything of the allocation changes: most are in heartbeat after heartbeat as they are.
    _report: AllocationReport | None = None

    def __setattr__(self, name: str, value: object) -> None:
        """Changes one attribute, and so drops the report."""
        super().__setattr__("_report", None)
        super().__setattr__(name, value)

    def key_of(self, slot: JobSlot) -> JobKey:
        """The key of the job of a slot."""
        return JobKey(self.operation, slot.index, slot.attempt)

    def has(self, key: JobKey) -> bool:
        """True if the job is one of those that have not started."""
        return any(self.key_of(slot) == key for slot in self.unstarted)

    def report(self) -> AllocationReport:
        """Its lines in a heartbeat."""
        report = self._report
        if report is None:
            report = self._report = self.new_report()
        return report

    def new_report(self) -> AllocationReport:
        """The report, made now."""
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

"""A node's own books: which allocations it holds, where each stands, what room is left, which ends are not recorded yet.

Pure. Invariants (`check`): a running or closing allocation has exactly one job and holds its room; a waiting or ended one has neither;
a job is in one allocation or among the ends, never in both; specs are kept for exactly the operations that have allocations here.
Room may be overdrawn only by jobs that were adopted from a former life of the agent.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from headrace.ids import AllocationId, OperationId
from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import (
    MOST_ENDS_PER_HEARTBEAT,
    AllocationReport,
    AllocationState,
    JobEnd,
    JobKey,
    JobSlot,
    JobSpec,
    RunningJob,
)
from headrace_agent.runner.protocol import Interrupt, Started

__all__ = [
    "NS_PER_MS",
    "TRANSITIONS",
    "Allocation",
    "AllocationEvent",
    "Job",
    "Moment",
    "NodeAllocations",
    "next_state",
]

NS_PER_MS = 1_000_000
#: What a report of an allocation without slots, and a slot, take at most in a message; for judging the picture's size cheaply.
_REPORT_BYTES = 200
_SLOT_BYTES = 12


class Moment(NamedTuple):
    """One moment on two clocks: CLOCK_BOOTTIME, by which everything is measured, and Unix time for people."""

    boottime_ns: int
    wall_ms: int


class AllocationEvent(enum.StrEnum):
    """What can happen to an allocation."""

    #: Its room is free: its first job goes to the runner.
    ROOM = "room"
    #: Its job ended and it has another one.
    NEXT = "next"
    #: No next job: taken back, or the agent stops.
    CLOSE = "close"
    #: Its job ended and there is no next one.
    FINISH = "finish"


_S = AllocationState
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
_HOLDS_ROOM = frozenset({_S.RUNNING, _S.CLOSING})


def next_state(state: AllocationState, event: AllocationEvent) -> AllocationState | None:
    """Where the event leads; None for a pair that cannot happen."""
    return TRANSITIONS.get((state, event))


class Job(msgspec.Struct):
    """The job that an allocation has at the runner."""

    key: JobKey
    #: Process id of the runner that it was handed to.
    runner_pid: int
    #: None until the runner has said that it runs.
    started: Started | None = None


class Allocation(msgspec.Struct):
    """One allocation."""

    id: AllocationId
    operation: OperationId
    resources: Resources
    state: AllocationState
    #: In the order in which they will run; of a closing or ended one: given back.
    unstarted: list[JobSlot]
    job: Job | None = None
    #: What the runner was told last to end the job with; told again to a runner that may have missed it.
    interrupt: Interrupt | None = None
    jobs_ended: int = 0
    jobs_ended_ms: int = 0

    def report(self, now: Moment) -> AllocationReport:
        job = None
        if self.job is not None:
            started = self.job.started
            at_ms = started.started_at_ms if started is not None else 0
            ran_ns = now.boottime_ns - started.started_boottime_ns if started is not None else 0
            job = RunningJob(self.job.key.index, self.job.key.attempt, max(0, at_ms), max(0, ran_ns) // NS_PER_MS)
        return AllocationReport(
            id=self.id,
            operation=self.operation,
            state=self.state,
            resources=self.resources,
            job=job,
            unstarted=list(self.unstarted),
            jobs_ended=self.jobs_ended,
            jobs_ended_ms=self.jobs_ended_ms,
        )


class _KeptEnd(NamedTuple):
    end: JobEnd
    size_bytes: int


_encoder = msgspec.msgpack.Encoder()


class NodeAllocations:
    """`total` is what the host offers."""

    def __init__(self, total: Resources) -> None:
        self.total = total
        self.allocations: dict[AllocationId, Allocation] = {}
        self.by_job: dict[JobKey, Allocation] = {}
        self.specs: dict[OperationId, JobSpec] = {}
        self._ends: dict[JobKey, _KeptEnd] = {}
        #: In the order in which they came.
        self._waiting: dict[AllocationId, Allocation] = {}
        self._used = ZERO
        self._slots = 0

    def free(self) -> Resources:
        """What no running or closing allocation holds; negative where adopted jobs overdraw a host that offers less than before."""
        return self.total - self._used

    def waiting(self) -> list[Allocation]:
        return list(self._waiting.values())

    def add(self, allocation: Allocation) -> None:
        """Enters an allocation with an id that is not in the books."""
        assert allocation.id not in self.allocations, allocation.id
        self.allocations[allocation.id] = allocation
        self._slots += len(allocation.unstarted)
        if allocation.job is not None:
            self.by_job[allocation.job.key] = allocation
        if allocation.state in _HOLDS_ROOM:
            self._used += allocation.resources
        elif allocation.state is _S.WAITING:
            self._waiting[allocation.id] = allocation

    def move(self, allocation: Allocation, event: AllocationEvent) -> None:
        """Takes an allocation along the table; a pair that is not in it is a mistake of the caller's."""
        before, after = allocation.state, next_state(allocation.state, event)
        assert after is not None, f"{allocation.id}: {event} while {before}"
        allocation.state = after
        if before is _S.WAITING and after is not _S.WAITING:
            del self._waiting[allocation.id]
        if after in _HOLDS_ROOM and before not in _HOLDS_ROOM:
            self._used += allocation.resources
        elif before in _HOLDS_ROOM and after not in _HOLDS_ROOM:
            self._used -= allocation.resources

    def hand_out(self, allocation: Allocation, runner_pid: int) -> JobKey:
        """Makes the next slot of an allocation its job."""
        assert allocation.job is None, allocation.id
        slot = allocation.unstarted.pop(0)
        self._slots -= 1
        key = JobKey(allocation.operation, slot.index, slot.attempt)
        allocation.job = Job(key, runner_pid)
        self.by_job[key] = allocation
        return key

    def extend(self, allocation: Allocation, slots: Iterable[JobSlot]) -> None:
        before = len(allocation.unstarted)
        allocation.unstarted.extend(slots)
        self._slots += len(allocation.unstarted) - before

    def job_over(self, allocation: Allocation, now: Moment) -> None:
        """Takes the job out of its allocation, which then must be moved on."""
        assert allocation.job is not None, allocation.id
        started = allocation.job.started
        del self.by_job[allocation.job.key]
        allocation.job = None
        allocation.interrupt = None
        allocation.jobs_ended += 1
        if started is not None:
            allocation.jobs_ended_ms += max(0, now.boottime_ns - started.started_boottime_ns) // NS_PER_MS

    def forget(self, allocation_id: AllocationId) -> bool:
        """Strikes an ended allocation; False when it is not ended or not known."""
        allocation = self.allocations.get(allocation_id)
        if allocation is None or allocation.state is not _S.ENDED:
            return False
        del self.allocations[allocation_id]
        self._slots -= len(allocation.unstarted)
        return True

    def drop_specs(self) -> None:
        """Specs of operations without an allocation here go."""
        held = {allocation.operation for allocation in self.allocations.values()}
        for operation in [operation for operation in self.specs if operation not in held]:
            del self.specs[operation]

    def keep_end(self, end: JobEnd) -> None:
        self._ends[end.key] = _KeptEnd(end, len(_encoder.encode(end)))

    def has_end(self, key: JobKey) -> bool:
        return key in self._ends

    def strike_end(self, key: JobKey) -> bool:
        """The end is recorded elsewhere; False for one that is not kept."""
        return self._ends.pop(key, None) is not None

    def newest_attempt(self, operation: str, index: int) -> int | None:
        """Of a job that runs here or whose end is not recorded yet."""
        attempts = [
            key.attempt
            for keys in (self.by_job, self._ends)
            for key in keys
            if key.operation == operation and key.index == index
        ]
        return max(attempts, default=None)

    def ends(self) -> int:
        return len(self._ends)

    def ends_within(self, size_bytes: int) -> list[JobEnd]:
        """The oldest ends that fit one heartbeat: so many bytes, so many ends."""
        ends: list[JobEnd] = []
        for kept in self._ends.values():
            size_bytes -= kept.size_bytes
            if size_bytes < 0 or len(ends) == MOST_ENDS_PER_HEARTBEAT:
                break
            ends.append(kept.end)
        return ends

    def fresh(self, operation: OperationId, slots: Iterable[JobSlot]) -> list[JobSlot]:
        """Those of the slots that are not to run, running or ended here already.

        What a closing or ended allocation gives back does not count: it may come again.
        """
        taken = {(key.index, key.attempt) for key in self._ends if key.operation == operation}
        for allocation in self.allocations.values():
            if allocation.operation != operation:
                continue
            if allocation.job is not None:
                taken.add((allocation.job.key.index, allocation.job.key.attempt))
            if allocation.state in (_S.WAITING, _S.RUNNING):
                taken.update((slot.index, slot.attempt) for slot in allocation.unstarted)
        fresh: list[JobSlot] = []
        for slot in slots:
            if (slot.index, slot.attempt) not in taken:
                taken.add((slot.index, slot.attempt))
                fresh.append(slot)
        return fresh

    def report(self, now: Moment) -> list[AllocationReport]:
        return [allocation.report(now) for allocation in self.allocations.values()]

    def picture_bytes(self) -> int:
        """About what the report takes in a message, at most."""
        return _REPORT_BYTES * len(self.allocations) + _SLOT_BYTES * self._slots

    def statistics(self) -> dict[str, int]:
        counts = {state.value: 0 for state in AllocationState}
        for allocation in self.allocations.values():
            counts[allocation.state.value] += 1
        return {**counts, "jobs": len(self.by_job), "ends": len(self._ends), "slots": self._slots}

    def check(self) -> None:
        """Raises AssertionError where an invariant of the module's docstring does not hold."""
        used, slots = ZERO, 0
        for name, allocation in self.allocations.items():
            assert name == allocation.id
            busy = allocation.state in _HOLDS_ROOM
            assert busy == (allocation.job is not None), f"{name}: {allocation.state}, job {allocation.job}"
            assert (allocation.state is _S.WAITING) == (name in self._waiting), f"{name}: {allocation.state}"
            assert allocation.state is not _S.WAITING or allocation.unstarted, f"{name} waits with nothing to run"
            if allocation.job is not None:
                assert self.by_job.get(allocation.job.key) is allocation, f"{allocation.job.key} is not found"
                assert allocation.job.key not in self._ends, f"{allocation.job.key} runs and has ended"
                used += allocation.resources
            slots += len(allocation.unstarted)
        assert used == self._used, f"{self._used} are booked, {used} are used"
        assert slots == self._slots
        assert len(self.by_job) == sum(allocation.job is not None for allocation in self.allocations.values())
        assert self._waiting.keys() <= self.allocations.keys()

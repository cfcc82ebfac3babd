"""All allocations of this node, the room that they leave, and the ends of jobs that are not recorded yet.

Pure. Invariants (`check`): a running or closing allocation has exactly one job and holds its room, a waiting or ended one has neither.
A job is in one allocation or among the ends, never in both. Specs are kept only for operations that have allocations here.
The report that an allocation keeps is as it would be made now.
Room may be overdrawn only by jobs that were adopted from a former life of the agent.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

import msgspec

from headrace.ids import AllocationId, OperationId
from headrace.resources import ZERO, Resources
from headrace.runtime.engine import NS_PER_MS, Figure, Moment, by_label, gauge
from headrace.wire.heartbeat import (
    LARGEST_ALLOCATION_JOBS,
    LARGEST_REMARKS_BYTES,
    MOST_RECORDS_PER_HEARTBEAT,
    AllocationReport,
    AllocationState,
    JobEnd,
    JobKey,
    JobSlot,
    JobSpec,
)
from headrace.wire.preemption import LARGEST_RECORD_BYTES
from headrace_agent.allocations.allocation import MOST_REASON_BYTES, TRANSITIONS, Allocation, AllocationEvent, Job
from headrace_agent.allocations.unrecorded_ends import UnrecordedEnds

_S = AllocationState
_HOLDS_ROOM = frozenset({_S.RUNNING, _S.CLOSING})
#: With so many allocations a heartbeat has room for the record and the reason of each.
_FEW_REPORTS: Final = LARGEST_REMARKS_BYTES // (LARGEST_RECORD_BYTES + MOST_REASON_BYTES)


class NodeAllocations:
    """The allocations of one node. `total` is what its host offers."""

    def __init__(self, total: Resources) -> None:
        self.total = total
        self.by_id: dict[AllocationId, Allocation] = {}
        self.by_job: dict[JobKey, Allocation] = {}
        self.specs: dict[OperationId, JobSpec] = {}
        self.ends = UnrecordedEnds()
        #: In the order in which they came.
        self._waiting: dict[AllocationId, Allocation] = {}
        self._used = ZERO
        self._slots = 0

    def free(self) -> Resources:
        """The resources that no running or closing allocation holds.

        They are negative where adopted jobs overdraw a host that offers less than before.
        """
        return self.total - self._used

    def waiting(self) -> list[Allocation]:
        """Those that wait for room, in the order in which they came."""
        return list(self._waiting.values())

    def first_wait_ends_ns(self) -> int | None:
        """CLOCK_BOOTTIME at which the first of those that wait has waited long enough, or None."""
        until = [one.waits_until_ns for one in self._waiting.values() if one.waits_until_ns is not None]
        return min(until, default=None)

    def add(self, allocation: Allocation) -> None:
        """Enters an allocation whose id is not listed yet."""
        assert allocation.id not in self.by_id, allocation.id
        self.by_id[allocation.id] = allocation
        self._slots += len(allocation.unstarted)
        if allocation.job is not None:
            self.by_job[allocation.job.key] = allocation
        if allocation.state in _HOLDS_ROOM:
            self._used += allocation.resources
        elif allocation.state is _S.WAITING:
            self._waiting[allocation.id] = allocation

    def move(self, allocation: Allocation, event: AllocationEvent) -> None:
        """Takes an allocation to its next state and books its room. A pair that is not in the table is a mistake of the caller."""
        before = allocation.state
        after = TRANSITIONS[before, event]
        allocation.state = after
        if before is _S.WAITING and after is not _S.WAITING:
            del self._waiting[allocation.id]
        if after in _HOLDS_ROOM and before not in _HOLDS_ROOM:
            self._used += allocation.resources
        elif before in _HOLDS_ROOM and after not in _HOLDS_ROOM:
            self._used -= allocation.resources

    def hand_out(self, allocation: Allocation, place: int = 0) -> JobKey:
        """Makes a slot of an allocation its job: the next one, or that at `place`."""
        assert allocation.job is None, allocation.id
        slots = allocation.unstarted
        slot = slots[place]
        allocation.unstarted = slots[:place] + slots[place + 1 :]
        self._slots -= 1
        key = allocation.key_of(slot)
        allocation.job = Job(key)
        self.by_job[key] = allocation
        return key

    def strike(self, allocation: Allocation, ended: Container[JobKey]) -> None:
        """Takes out the slots whose jobs have ended."""
        left = tuple(slot for slot in allocation.unstarted if allocation.key_of(slot) not in ended)
        self._slots -= len(allocation.unstarted) - len(left)
        allocation.unstarted = left

    @property
    def is_recalling(self) -> bool:
        """True if an allocation is to close as soon as nothing of it is ahead."""
        return any(allocation.closes_for for allocation in self.by_job.values())

    def extend(self, allocation: Allocation, slots: Iterable[JobSlot]) -> None:
        """Adds slots behind those that an allocation has."""
        before = len(allocation.unstarted)
        allocation.unstarted = (*allocation.unstarted, *slots)
        self._slots += len(allocation.unstarted) - before

    def job_over(self, allocation: Allocation, moment: Moment) -> None:
        """Takes the job out of its allocation, which then must be moved on."""
        assert allocation.job is not None, allocation.id
        started = allocation.job.started
        del self.by_job[allocation.job.key]
        allocation.job = None
        allocation.interrupt = None
        allocation.jobs_ended += 1
        if started is not None:
            allocation.jobs_ended_ms += max(0, moment.steady_ns - started.started_boottime_ns) // NS_PER_MS

    def unstarted_behind(self, end: JobEnd) -> int:
        """Counts the jobs that follow in the allocation of one that ended, 0 if that starts no more."""
        allocation = self.by_id.get(end.allocation)
        return len(allocation.unstarted) if allocation is not None and allocation.state is _S.RUNNING else 0

    def forget(self, allocation_id: AllocationId) -> bool:
        """Drops an ended allocation. Returns False if it is not ended or not known."""
        allocation = self.by_id.get(allocation_id)
        if allocation is None or allocation.state is not _S.ENDED:
            return False
        del self.by_id[allocation_id]
        self._slots -= len(allocation.unstarted)
        return True

    def drop_specs(self) -> None:
        """Drops the specs of operations that have no allocation here."""
        held = {allocation.operation for allocation in self.by_id.values()}
        for operation in [operation for operation in self.specs if operation not in held]:
            del self.specs[operation]

    def newest_attempt(self, operation: str, index: int) -> int | None:
        """The newest attempt at a job that runs here or whose end is not recorded yet."""
        attempts = [
            key.attempt
            for keys in (self.by_job, self.ends)
            for key in keys
            if key.operation == operation and key.index == index
        ]
        return max(attempts, default=None)

    def fresh(self, operation: OperationId, slots: Iterable[JobSlot]) -> list[JobSlot]:
        """The slots whose job is not waiting, running or ended here already.

        Slots that a closing or ended allocation gives back do not count: they may come again.
        """
        mine = [allocation for allocation in self.by_id.values() if allocation.operation == operation]
        taken = {slot for one in mine if one.state in (_S.WAITING, _S.RUNNING) for slot in one.unstarted}
        fresh: list[JobSlot] = []
        for slot in slots:
            key = JobKey(operation, slot.index, slot.attempt)
            if slot not in taken and key not in self.by_job and key not in self.ends:
                taken.add(slot)
                fresh.append(slot)
        return fresh

    def report(self) -> list[AllocationReport]:
        """All allocations, as a heartbeat tells them.

        Of very many, some have no record of their preemption, or no reason for which they were given back: the log of the agent has it.
        """
        reports = [allocation.report() for allocation in self.by_id.values()]
        if len(reports) <= _FEW_REPORTS:
            return reports
        with_record = [place for place, report in enumerate(reports) if report.preemption is not None]
        for place in with_record[MOST_RECORDS_PER_HEARTBEAT:]:
            reports[place] = msgspec.structs.replace(reports[place], preemption=None)
        left_bytes = LARGEST_REMARKS_BYTES - LARGEST_RECORD_BYTES * min(len(with_record), MOST_RECORDS_PER_HEARTBEAT)
        for place, report in enumerate(reports):
            if report.given_back_for:
                left_bytes -= MOST_REASON_BYTES
                if left_bytes < 0:
                    reports[place] = msgspec.structs.replace(report, given_back_for="")
        return reports

    @property
    def unstarted(self) -> int:
        """The slots of all allocations that have not begun."""
        return self._slots

    def figures(self) -> list[Figure]:
        """Allocations by state, and what they have."""
        counts = {state: 0 for state in AllocationState}
        for allocation in self.by_id.values():
            counts[allocation.state] += 1
        found = gauge("allocations", "allocations", 0, "Allocations on this node, by state.")
        return [
            *by_label(found, "allocations", "state", {state.value: count for state, count in counts.items()}),
            gauge("jobs", "jobs", len(self.by_job), "Jobs on this node."),
            gauge("unstarted_slots", "slots", self._slots, "Places for jobs that have not started."),
            gauge("unrecorded_ends", "ends", len(self.ends), "Ends of jobs that admission has not recorded."),
        ]

    def check(self) -> list[str]:
        """Broken invariants of the module's docstring, in words."""
        broken: list[str] = []
        used, slots, jobs = ZERO, 0, 0
        for name, allocation in self.by_id.items():
            broken += self._check_one(name, allocation)
            slots += len(allocation.unstarted)
            if allocation.job is not None:
                jobs += 1
                used += allocation.resources
        if used != self._used:
            broken.append(f"{self._used} are booked, {used} are used")
        if slots != self._slots:
            broken.append(f"{self._slots} slots are booked, {slots} are there")
        if jobs != len(self.by_job):
            broken.append(f"{len(self.by_job)} jobs are booked, allocations have {jobs}")
        if not self._waiting.keys() <= self.by_id.keys():
            broken.append("an allocation waits that is not here")
        if not self.specs.keys() <= {allocation.operation for allocation in self.by_id.values()}:
            broken.append("specs of operations that are not here")
        return broken

    def _check_one(self, name: AllocationId, allocation: Allocation) -> list[str]:
        job, state = allocation.job, allocation.state
        rules = (
            (name == allocation.id, "it is listed under another id"),
            ((state in _HOLDS_ROOM) == (job is not None), "it holds room without a job, or has a job without room"),
            (
                (state is _S.WAITING) == (name in self._waiting),
                "it waits and is not listed, or is listed and does not wait",
            ),
            (state is not _S.WAITING or bool(allocation.unstarted), "it waits with nothing to run"),
            (len(allocation.unstarted) <= LARGEST_ALLOCATION_JOBS, "it has more slots than a heartbeat can tell"),
            (job is None or self.by_job.get(job.key) is allocation, "its job is not found"),
            (job is None or job.key not in self.ends, "its job runs and has ended"),
            (allocation.ahead <= len(allocation.unstarted), "more is ahead than it has"),
            (state is _S.RUNNING or not (allocation.ahead or allocation.closes_for), "it does not run, and goes on"),
            (allocation.report() == allocation.new_report(), "its report is not as it is"),
        )
        return [f"allocation {allocation.id} ({state}, {job}): {words}" for is_kept, words in rules if not is_kept]

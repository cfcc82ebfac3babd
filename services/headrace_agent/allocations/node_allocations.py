"""All allocations of this node, the resources that they leave free, and the ends of jobs that are not recorded yet.

Pure. Invariants (`check`):

* A running or closing allocation has exactly one job, and resources of the node are booked for it. A waiting or ended allocation has no
  job, and no resources are booked for it.
* A job is either in one allocation or among the ends, never in both.
* Specs are kept only for operations that have allocations here.
* The cached report of an allocation equals a newly built one.
* No two allocations hold the same GPU device, and none holds more devices than it has GPUs.

Only jobs that were adopted from an earlier agent process may take more resources than the node offers, or hold other GPU devices
than the node offers.
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
#: Number of allocations up to which a heartbeat can hold the preemption record and the return reason of every allocation.
_FEW_REPORTS: Final = LARGEST_REMARKS_BYTES // (LARGEST_RECORD_BYTES + MOST_REASON_BYTES)


class NodeAllocations:
    """The allocations of one node. `total` are the resources that the host offers, and `gpus` the names of the GPU devices among them."""

    def __init__(self, total: Resources, gpus: tuple[str, ...] = ()) -> None:
        self.total = total
        self.gpus = gpus
        self.by_id: dict[AllocationId, Allocation] = {}
        self.by_job: dict[JobKey, Allocation] = {}
        self.specs: dict[OperationId, JobSpec] = {}
        self.ends = UnrecordedEnds()
        #: Waiting allocations in the order of their arrival.
        self._waiting: dict[AllocationId, Allocation] = {}
        self._used = ZERO
        self._slots = 0

    def free(self) -> Resources:
        """Return the resources that no running or closing allocation holds.

        They are negative if the host now offers less than the adopted jobs take.
        """
        return self.total - self._used

    def waiting(self) -> list[Allocation]:
        """Return the allocations that wait for free resources, in the order of their arrival."""
        return list(self._waiting.values())

    def first_wait_ends_ns(self) -> int | None:
        """Return the earliest CLOCK_BOOTTIME in nanoseconds at which a waiting allocation may not wait any longer, or None."""
        until = [one.waits_until_ns for one in self._waiting.values() if one.waits_until_ns is not None]
        return min(until, default=None)

    def gpu_holders(self) -> dict[str, AllocationId]:
        """Return the holder of each GPU device that the node offers or an allocation holds; "" for a free device."""
        if not self.gpus and not self._used.gpu:
            return {}
        held = {name: allocation.id for allocation in self.by_id.values() for name in allocation.gpus}
        return {**dict.fromkeys(self.gpus, AllocationId("")), **held}

    def add(self, allocation: Allocation) -> None:
        """Add an allocation whose id is not listed yet."""
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
        """Move an allocation to its next state and book its resources.

        Raises KeyError for an event that cannot happen in the state of the allocation.
        """
        before = allocation.state
        after = TRANSITIONS[before, event]
        allocation.state = after
        if before is _S.WAITING and after is not _S.WAITING:
            del self._waiting[allocation.id]
        if after in _HOLDS_ROOM and before not in _HOLDS_ROOM:
            self._used += allocation.resources
            if allocation.resources.gpu:
                free = [name for name, holder in self.gpu_holders().items() if not holder]
                allocation.gpus = tuple(free[: allocation.resources.gpu])
        elif before in _HOLDS_ROOM and after not in _HOLDS_ROOM:
            self._used -= allocation.resources
            allocation.gpus = ()

    def hand_out(self, allocation: Allocation, place: int = 0) -> JobKey:
        """Make a slot of an allocation its job: the next slot, or the slot at position `place`. Return the key of the job."""
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
        """Remove the unstarted slots whose jobs are in `ended`: the runner started these jobs by itself, and they have ended."""
        left = tuple(slot for slot in allocation.unstarted if allocation.key_of(slot) not in ended)
        self._slots -= len(allocation.unstarted) - len(left)
        allocation.unstarted = left

    @property
    def is_recalling(self) -> bool:
        """True if any allocation is to close, and waits for the runner's confirmation that none of its jobs is queued."""
        return any(allocation.closes_for for allocation in self.by_job.values())

    def extend(self, allocation: Allocation, slots: Iterable[JobSlot]) -> None:
        """Append slots to an allocation, behind the slots that it has."""
        before = len(allocation.unstarted)
        allocation.unstarted = (*allocation.unstarted, *slots)
        self._slots += len(allocation.unstarted) - before

    def job_over(self, allocation: Allocation, now: Moment) -> None:
        """Take the ended job out of its allocation. The caller must then move the allocation to its next state."""
        assert allocation.job is not None, allocation.id
        started = allocation.job.started
        del self.by_job[allocation.job.key]
        allocation.job = None
        allocation.interrupt = None
        allocation.jobs_ended += 1
        if started is not None:
            allocation.jobs_ended_ms += max(0, now.steady_ns - started.started_boottime_ns) // NS_PER_MS

    def unstarted_behind(self, end: JobEnd) -> int:
        """Return the number of unstarted slots behind a job that ended; 0 if its allocation starts no more jobs."""
        allocation = self.by_id.get(end.allocation)
        return len(allocation.unstarted) if allocation is not None and allocation.state is _S.RUNNING else 0

    def forget(self, allocation_id: AllocationId) -> bool:
        """Drop an ended allocation. Return False if the allocation is not ended or not known."""
        allocation = self.by_id.get(allocation_id)
        if allocation is None or allocation.state is not _S.ENDED:
            return False
        del self.by_id[allocation_id]
        self._slots -= len(allocation.unstarted)
        return True

    def drop_specs(self) -> None:
        """Drop the specs of operations that have no allocation here."""
        held = {allocation.operation for allocation in self.by_id.values()}
        for operation in [operation for operation in self.specs if operation not in held]:
            del self.specs[operation]

    def newest_attempt(self, operation: str, index: int) -> int | None:
        """Return the newest attempt of a job among the attempts that run here or whose end is not recorded yet; None if there is none."""
        attempts = [
            key.attempt
            for keys in (self.by_job, self.ends)
            for key in keys
            if key.operation == operation and key.index == index
        ]
        return max(attempts, default=None)

    def fresh(self, operation: OperationId, slots: Iterable[JobSlot]) -> list[JobSlot]:
        """Return the slots whose jobs are neither waiting nor running on this node, and are not among the unrecorded ends.

        Slots that a closing or ended allocation returns are included: the allocator may assign them again.
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
        """Return the reports of all allocations for a heartbeat.

        If there are very many allocations, some reports lack the preemption record, or the reason why the allocation was returned.
        The agent's log has both.
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
        """Number of slots in all allocations that have not started."""
        return self._slots

    def figures(self) -> list[Figure]:
        """Return the metrics of allocations by state, jobs, slots and unrecorded ends."""
        counts = {state: 0 for state in AllocationState}
        for allocation in self.by_id.values():
            counts[allocation.state] += 1
        found = gauge("allocations", "allocations", 0, "Allocations on this node, by state.")
        return [
            *by_label(found, "allocations", "state", {state.value: count for state, count in counts.items()}),
            gauge("jobs", "jobs", len(self.by_job), "Jobs on this node."),
            gauge("unstarted_slots", "slots", self._slots, "Slots for jobs that have not started."),
            gauge("unrecorded_ends", "ends", len(self.ends), "Ends of jobs that admission has not recorded."),
        ]

    def check(self) -> list[str]:
        """Return a description of each broken invariant of the module's docstring."""
        broken: list[str] = []
        used, slots, jobs = ZERO, 0, 0
        for name, allocation in self.by_id.items():
            broken += self._check_one(name, allocation)
            slots += len(allocation.unstarted)
            if allocation.job is not None:
                jobs += 1
                used += allocation.resources
        if used != self._used:
            broken.append(f"{self._used} are booked, but {used} are used")
        if slots != self._slots:
            broken.append(f"{self._slots} slots are booked, but allocations have {slots}")
        if jobs != len(self.by_job):
            broken.append(f"{len(self.by_job)} jobs are booked, but allocations have {jobs}")
        held = [name for allocation in self.by_id.values() for name in allocation.gpus]
        if len(held) > len(set(held)):
            broken.append(f"a GPU device is held twice: {sorted(held)}")
        if not self._waiting.keys() <= self.by_id.keys():
            broken.append("an allocation that is not on this node is listed as waiting")
        if not self.specs.keys() <= {allocation.operation for allocation in self.by_id.values()}:
            broken.append("specs are kept of operations without an allocation on this node")
        return broken

    def _check_one(self, name: AllocationId, allocation: Allocation) -> list[str]:
        job, state = allocation.job, allocation.state
        rules = (
            (name == allocation.id, "it is listed under another id"),
            (
                (state in _HOLDS_ROOM) == (job is not None),
                "it holds resources without a job, or has a job without resources",
            ),
            (
                (state is _S.WAITING) == (name in self._waiting),
                "it waits but is not listed as waiting, or is listed but does not wait",
            ),
            (state is not _S.WAITING or bool(allocation.unstarted), "it waits, but has no job to start"),
            (len(allocation.unstarted) <= LARGEST_ALLOCATION_JOBS, "it has more slots than a heartbeat can report"),
            (job is None or self.by_job.get(job.key) is allocation, "its job is not found by its key"),
            (job is None or job.key not in self.ends, "its job is recorded as running and as ended"),
            (allocation.ahead <= len(allocation.unstarted), "the runner has more of its jobs queued than it has slots"),
            (
                state is _S.RUNNING or not (allocation.ahead or allocation.closes_for),
                "it does not run, but has queued jobs or a reason to close",
            ),
            (
                len(allocation.gpus) <= (allocation.resources.gpu if state in _HOLDS_ROOM else 0),
                "it holds more GPU devices than it has GPUs",
            ),
            (allocation.report() == allocation.new_report(), "its report is out of date"),
        )
        return [f"allocation {allocation.id} ({state}, {job}): {words}" for is_kept, words in rules if not is_kept]

"""Allocations: places on nodes that operations own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.resources import Resources
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobSlot, RunningJob, TakeBackReason
from headrace.wire.preemption import PreemptionRecord
from headrace.wire.start_stages import StartRecord, StartStage

#: The operation of an allocation whose own is over, or not known.
NOBODY: Final = OperationId("")

#: Looked up once: the lookup of a member in its enumeration costs as much as ten comparisons.
_RUNNING: Final = AllocationState.RUNNING
_WAITING: Final = AllocationState.WAITING


#: Sorts the allocations of an operation, the oldest progress first.
Place = tuple[int, int, int]
#: Before all others, and behind them.
FIRST_PLACE: Final[Place] = (-1, 0, 0)
NO_PLACE: Final[Place] = (2, 0, 0)
#: Stands for rules that nothing was made by yet.
NEVER: Final = -1


class Rest:
    """The rest that heartbeats may give the allocations of one operation. A small object of its own, since each heartbeat asks."""

    __slots__ = ("cut_at", "job_ms", "preemptible_from")

    def __init__(self, job_ms: float) -> None:
        #: Mean length of its jobs, or 0 where any of its allocations may need an order.
        self.job_ms = job_ms
        #: The rules of the tree by which its groups were cut (`PoolTree.rules`), `NEVER` where its share or options are others now.
        self.cut_at = NEVER
        #: The first place that those who merely starve may be given while nothing is freed, `NO_PLACE` for none; None until somebody asks.
        self.preemptible_from: Place | None = None

    def keeps(self, newest: Allocation, rules: int) -> bool:
        """True if all of its allocations up to this one are known to be kept by the rules of today."""
        first = self.preemptible_from
        # Where all are kept the allocation itself need not be looked at: it is in no cache.
        return first is not None and self.cut_at == rules and (first is NO_PLACE or newest.place < first)


_NO_REST: Final = Rest(0.0)


class Picture:
    """The picture of a node that is booked as it is. If the very same comes again it need not be looked at.

    Invariant (`Node.check`): it shows nothing new. Whatever changes the jobs of an allocation drops it, and so does one that comes or goes.
    """

    __slots__ = ("booked", "rests")

    def __init__(self) -> None:
        self.booked: Sequence[AllocationReport] | None = None
        #: While it is booked, and no allocation of the node needs an order but for its rest: these, each with the newest allocation
        #: that it is for. Else None.
        self.rests: Mapping[Rest, Allocation] | None = None

    def book(self, reports: Sequence[AllocationReport]) -> None:
        """Notes a picture that shows nothing new."""
        if self.booked is None:
            self.rests = None
        self.booked = reports


class Allocation:
    """A place on a node that an operation owns. Its jobs run in it one after another."""

    # There are very many, and a heartbeat looks at each of its node.
    __slots__ = (
        "confirmed",
        "id",
        "job",
        "node",
        "observed",
        "operation",
        "orphan_of",
        "picture",
        "place",
        "preemption",
        "progress_started_ms",
        "resources",
        "rest",
        "settled",
        "shown",
        "slots",
        "stage",
        "start",
        "state",
        "take_back",
        "usage",
    )

    def __init__(self, name: AllocationId, operation: OperationId, node: NodeName, resources: Resources) -> None:
        self.id = name
        self.operation = operation
        #: Its former operation, if that is over or not known.
        self.orphan_of = NOBODY
        self.node = node
        self.resources = resources
        #: The stage in which it got its place; None of one that is older than this allocator, until its node tells.
        self.stage: StartStage | None = None
        #: The same with the shares, once its node is told of it.
        self.start: StartRecord | None = None
        #: Its node's.
        self.picture = Picture()
        #: Its operation's, none once that is over.
        self.rest = _NO_REST
        #: Among the allocations of its operation.
        self.place = FIRST_PLACE
        #: The amount that counts as used: nothing once it is decided that others get the room.
        self.usage = resources
        #: Jobs given to it that have not ended, the running one included, by index.
        self.slots: dict[int, JobSlot] = {}
        #: True while it is known to run the one job that it has: no more than that job need be looked at in a report.
        self.settled = False
        #: The report that showed nothing new, while that is so. The very same need not be looked at again.
        self.shown: AllocationReport | None = None
        #: False until a heartbeat shows it; it counts as precommit so long.
        self.confirmed = False
        self.state = AllocationState.WAITING
        self.job: RunningJob | None = None
        #: When the job began that runs now or ran last, by the node's clock; None before the first.
        self.progress_started_ms: int | None = None
        #: The reason for which it is to be taken back; ordered again with each answer until the node shows it closing.
        self.take_back: TakeBackReason | None = None
        #: The record of its preemption, from the decision on.
        self.preemption: PreemptionRecord | None = None
        #: The record of the last preemption that its pool only observed: nothing was taken.
        self.observed: PreemptionRecord | None = None

    def shows_nothing_new(self, report: AllocationReport) -> bool:
        """True if all that a report says is booked already, but for how long its job has run."""
        if report is self.shown:
            return True
        if not self._is_booked(report):
            return False
        self.shown = report
        return True

    def _is_booked(self, report: AllocationReport) -> bool:
        job, known = report.job, self.job
        if job is None or known is None or report.state is not _RUNNING:
            return False
        if job.progress != known.progress:
            return False
        if self.settled:
            return (
                job.index == known.index
                and job.attempt == known.attempt
                and job.started_at_ms == known.started_at_ms
                and not report.unstarted
            )
        slots = self.slots
        index, waiting = job.index, report.unstarted
        slot = slots.get(index)
        return (
            slot is not None
            and self.state is _RUNNING
            and slot.attempt == job.attempt == known.attempt
            and index == known.index
            and job.started_at_ms == known.started_at_ms
            and len(slots) == 1 + len(waiting)
            and (not waiting or all(slots.get(each.index) == each for each in waiting))
        )

    def exempt_ms(self, exempt_time_ms: int, boottime_ms: int) -> int:
        """The time until its job has run for so long, at that time of its host's CLOCK_BOOTTIME. 0 where no job of it has begun."""
        # The host's own clock: it tells when the job began after a restart of any service, and nobody sets it.
        if not exempt_time_ms or self.job is None or not self.job.started_boottime_ms:
            return 0
        return max(0, exempt_time_ms - self.job.ran_ms(boottime_ms))

    def settle(self) -> None:
        """Notes whether it runs the one job that it has. Whoever changes its state or its job says so."""
        job = self.job
        self.picture.booked = self.shown = None
        self.settled = self._runs_its_only(job) if job is not None else False

    def hold(self, slots: Iterable[JobSlot]) -> None:
        """Gives it more jobs."""
        self.slots.update((slot.index, slot) for slot in slots)
        self._unsettle()

    def drop(self, index: int) -> None:
        """Takes a job out of it."""
        del self.slots[index]
        self._unsettle()

    def _unsettle(self) -> None:
        self.settled = False
        self.picture.booked = self.shown = None

    def check(self) -> list[str]:
        """Broken invariants in words, none if all hold."""
        broken = []
        if self.settled and (self.job is None or not self._runs_its_only(self.job)):
            broken.append("is settled and does not run the one job that it has")
        if self.shown is not None and not self._is_booked(self.shown):
            broken.append("is not what was shown of it last")
        return [f"allocation {self.id} {words}" for words in broken]

    def _runs_its_only(self, job: RunningJob) -> bool:
        return self.state is _RUNNING and self.slots == {job.index: JobSlot(job.index, job.attempt)}

    def note_start(self, record: StartRecord | None) -> None:
        """Notes how it got its place, if that is not known."""
        if record is not None and self.start is None:
            self.stage, self.start = record.stage, record

    def orphan(self) -> None:
        """Its operation is over. The same id may come again: a tree that had lost all its jobs of an operation draws others."""
        self.take_back = TakeBackReason.OPERATION_ENDED
        self.slots.clear()
        self._unsettle()
        self.orphan_of, self.operation, self.rest = self.operation, NOBODY, _NO_REST

    @property
    def unstarted(self) -> int:
        """The number of its jobs that have not begun."""
        # The node may run a job in it that is booked elsewhere, or of an operation that is over.
        return len(self.slots) - (self.job is not None and self.job.index in self.slots)


def waits_for_room(allocations: Iterable[Allocation]) -> bool:
    """True if one of a node's allocations that it has shown still waits there for another to go."""
    return any(one.state is _WAITING and one.confirmed for one in allocations)


def shown_slots(report: AllocationReport) -> list[JobSlot]:
    """All jobs that a node shows in an allocation, the running one first."""
    running = [] if report.job is None else [JobSlot(report.job.index, report.job.attempt)]
    return [*running, *report.unstarted]


def shown_indexes(report: AllocationReport) -> set[int]:
    """The indexes of these jobs."""
    shown = {slot.index for slot in report.unstarted}
    if report.job is not None:
        shown.add(report.job.index)
    return shown


def rests_of(allocations: Iterable[Allocation]) -> dict[Rest, Allocation]:
    """The rests of allocations that are not to go, each with the newest that it is for."""
    rests: dict[Rest, Allocation] = {}
    for one in allocations:
        if one.place >= rests.setdefault(one.rest, one).place:
            rests[one.rest] = one
    return rests

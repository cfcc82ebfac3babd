"""Allocations: what operations hold on nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.resources import Resources
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobSlot, RunningJob, TakeBackReason
from headrace.wire.preemption import PreemptionRecord
from headrace.wire.start_stages import StartRecord, StartStage

#: Operation id of an allocation whose operation is over or unknown.
NO_OPERATION: Final = OperationId("")

#: The enum member is looked up only once here, because a look-up costs as much as ten comparisons.
_RUNNING: Final = AllocationState.RUNNING
_WAITING: Final = AllocationState.WAITING


#: Position of an allocation among the allocations of its operation, which are sorted by the time at which their progress began, the
#: earliest first. Progress is the work that preemption would destroy (`Facts.set_job`).
Position = tuple[int, int, int]
#: The position before all allocations.
FIRST_POSITION: Final[Position] = (-1, 0, 0)
#: The position behind all allocations.
NO_POSITION: Final[Position] = (2, 0, 0)
#: Used in place of a `PoolStates.rules` number: "not computed by any rules yet".
NO_RULES_YET: Final = -1


class Rest:
    """Facts that tell the decision of a heartbeat that it need not send orders for the allocations of an operation.

    Every decision on a heartbeat reads these fields, so they are kept in a small object, separate from the operation.
    """

    __slots__ = ("cut_at", "job_ms", "preemptible_from")

    def __init__(self, job_ms: float) -> None:
        #: Mean length of the operation's jobs in milliseconds; 0 if the operation is in a state in which its allocations may need orders.
        self.job_ms = job_ms
        #: Value of `PoolStates.rules` when the operation's allocations were last divided into preemption groups; `NO_RULES_YET` if the
        #: operation's share or options changed since.
        self.cut_at = NO_RULES_YET
        #: Position of the first of the operation's allocations that the normal preemptive stage may preempt, as long as no allocation has
        #: been preempted. `NO_POSITION` if the stage may preempt none of them; None until the position is computed.
        self.preemptible_from: Position | None = None

    def keeps(self, newest: Allocation, rules: int) -> bool:
        """True if `newest` and all older allocations of the operation are known to be protected under the rules numbered `rules`."""
        first = self.preemptible_from
        # `NO_POSITION` is checked first. Then the allocation need not be read from memory, which would be slow: it is in no CPU cache.
        return first is not None and self.cut_at == rules and (first is NO_POSITION or newest.place < first)


_NO_REST: Final = Rest(0.0)


class AgreedReport:
    """The newest node report that agrees with what the allocator has booked for the node. If the next report is the same object, it need
    not be compared.

    Invariant (`Node.check`): the report shows nothing new. It is dropped when the jobs of an allocation change, and when the node gains
    or loses an allocation.
    """

    __slots__ = ("booked", "rests")

    def __init__(self) -> None:
        self.booked: Sequence[AllocationReport] | None = None
        #: The `Rest` of each operation on the node, with the operation's newest allocation there. None if no report is booked, or if an
        #: allocation may need an order although nothing in the `Rest` of its operation shows this.
        self.rests: Mapping[Rest, Allocation] | None = None

    def book(self, reports: Sequence[AllocationReport]) -> None:
        """Remember a node report that shows nothing new."""
        if self.booked is None:
            self.rests = None
        self.booked = reports


class Allocation:
    """An amount of resources that an operation holds on a node. Jobs of the operation run in it one after another."""

    # The slots save memory: there are very many allocations, and a heartbeat looks at each allocation of its node.
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
        #: If the allocation's operation is over or unknown: the id of that operation. Else `NO_OPERATION`.
        self.orphan_of = NO_OPERATION
        self.node = node
        self.resources = resources
        #: Scheduling stage that started the allocation. None for an allocation older than this allocator, until its node reports the
        #: stage.
        self.stage: StartStage | None = None
        #: Record of the start: the stage, and the shares at that time. None until the start is sent to the node or reported by the node.
        self.start: StartRecord | None = None
        #: The newest report of the allocation's node that agrees with what is booked; all allocations of the node share this object.
        self.picture = AgreedReport()
        #: The `Rest` shared by the operation's allocations; `_NO_REST` once the operation is over.
        self.rest = _NO_REST
        #: Position among the allocations of the operation.
        self.place = FIRST_POSITION
        #: Amount that counts as used: all resources, or zero once the allocation is preempted and other operations may get them.
        self.usage = resources
        #: Jobs given to the allocation that have not ended, the running job included, by index.
        self.slots: dict[int, JobSlot] = {}
        #: True while the allocation is known to run the only job that it has. While it is True, a report is compared with that job alone.
        self.settled = False
        #: The last report about the allocation that showed nothing new; None if the allocation has changed since that report. If the next
        #: report is the same object, it need not be compared.
        self.shown: AllocationReport | None = None
        #: True once a heartbeat has shown the allocation. Before that the allocation's usage counts as precommit: usage that no node has
        #: confirmed.
        self.confirmed = False
        self.state = AllocationState.WAITING
        self.job: RunningJob | None = None
        #: Start of the running job or of the last job, in milliseconds of the node's clock; None before the first job.
        self.progress_started_ms: int | None = None
        #: Reason to take the allocation back. The order is repeated with each answer until the node shows the allocation as closing.
        self.take_back: TakeBackReason | None = None
        #: Record of the allocation's preemption, from the decision on.
        self.preemption: PreemptionRecord | None = None
        #: Record of the last preemption that did not happen, because the operation's pool only observes preemption.
        self.observed: PreemptionRecord | None = None

    def shows_nothing_new(self, report: AllocationReport) -> bool:
        """True if a report shows only what is booked already, apart from how long the job has run."""
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
        """Return the milliseconds until the running job has run for `exempt_time_ms`; 0 if no job runs.

        `boottime_ms` is the present CLOCK_BOOTTIME of the node's host.
        """
        # CLOCK_BOOTTIME is used because nobody can set it to another time, and because restarts of services do not affect it.
        if not exempt_time_ms or self.job is None or not self.job.started_boottime_ms:
            return 0
        return max(0, exempt_time_ms - self.job.ran_ms(boottime_ms))

    def settle(self) -> None:
        """Record whether the allocation runs the only job that it has. Call this after each change of the allocation's state or running
        job.
        """
        job = self.job
        self.picture.booked = self.shown = None
        self.settled = self._runs_its_only(job) if job is not None else False

    def hold(self, slots: Iterable[JobSlot]) -> None:
        """Give the allocation more jobs."""
        self.slots.update((slot.index, slot) for slot in slots)
        self._unsettle()

    def drop(self, index: int) -> None:
        """Take a job out of the allocation."""
        del self.slots[index]
        self._unsettle()

    def _unsettle(self) -> None:
        self.settled = False
        self.picture.booked = self.shown = None

    def check(self) -> list[str]:
        """Return one text for each broken invariant; an empty list if all invariants hold."""
        broken = []
        if self.settled and (self.job is None or not self._runs_its_only(self.job)):
            broken.append("is marked as settled and does not run exactly one job")
        if self.shown is not None and not self._is_booked(self.shown):
            broken.append("differs from the last report about it")
        return [f"allocation {self.id} {words}" for words in broken]

    def _runs_its_only(self, job: RunningJob) -> bool:
        return self.state is _RUNNING and self.slots == {job.index: JobSlot(job.index, job.attempt)}

    def note_start(self, record: StartRecord | None) -> None:
        """Record how the allocation was started, unless that is known already."""
        if record is not None and self.start is None:
            self.stage, self.start = record.stage, record

    def orphan(self) -> None:
        """Detach the allocation from its operation, which is over.

        The operation's id may become known again later: a tree that has released all its job indexes of an operation may lease indexes of
        this operation again.
        """
        self.take_back = TakeBackReason.OPERATION_ENDED
        self.slots.clear()
        self._unsettle()
        self.orphan_of, self.operation, self.rest = self.operation, NO_OPERATION, _NO_REST

    @property
    def unstarted(self) -> int:
        """Number of the allocation's jobs that have not begun."""
        # The job that the node runs in this allocation may be booked in another allocation, or belong to an operation that is over; then
        # it is not among `slots`.
        return len(self.slots) - (self.job is not None and self.job.index in self.slots)


def waits_for_room(allocations: Iterable[Allocation]) -> bool:
    """True if the node has confirmed one of these allocations, but this allocation still waits until another allocation on the node frees
    resources.
    """
    return any(one.state is _WAITING and one.confirmed for one in allocations)


def shown_slots(report: AllocationReport) -> list[JobSlot]:
    """Return all jobs that a node shows in an allocation, the running job first."""
    running = [] if report.job is None else [JobSlot(report.job.index, report.job.attempt)]
    return [*running, *report.unstarted]


def shown_indexes(report: AllocationReport) -> set[int]:
    """Return the indexes of all jobs that a node shows in an allocation."""
    shown = {slot.index for slot in report.unstarted}
    if report.job is not None:
        shown.add(report.job.index)
    return shown


def rests_of(allocations: Iterable[Allocation]) -> dict[Rest, Allocation]:
    """Return for each `Rest` the newest of its allocations. The caller must leave out allocations that are to be taken back."""
    rests: dict[Rest, Allocation] = {}
    for one in allocations:
        if one.place >= rests.setdefault(one.rest, one).place:
            rests[one.rest] = one
    return rests

"""Reconciling the books with a heartbeat: which orders were obeyed, which jobs ended, which allocations exist, and which are gone.

A heartbeat carries the whole node report. So an allocation that is booked and missing in the report does not exist on the node. There is
one exception: while `ends_waiting` says that some ends of jobs did not fit into the heartbeat, a job that is missing in the report may have
ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

import msgspec

from headrace.ids import AllocationId, OperationId
from headrace.resources import MOST_OF_A_NODE, ZERO, Resources
from headrace.retry_rules import sizes_of_retries
from headrace.wire.heartbeat import (
    MOST_RECORDS_PER_HEARTBEAT,
    AllocationReport,
    AllocationState,
    Heartbeat,
    JobEnd,
    JobKey,
    JobResult,
    JobSlot,
    RunningJob,
    SessionSpan,
    TakeBackReason,
)
from headrace.wire.start_stages import StartRecord
from headrace_allocator.facts.allocations import NO_OPERATION, Allocation, shown_indexes, shown_slots
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.job_slots import has_ended
from headrace_allocator.facts.lost_jobs import LostJob, PlaceTaken, UnknownToNode, lose
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation, break_up, note_in_gang
from headrace_allocator.facts.preempted import settle_preemption, undo_preemption
from headrace_allocator.gangs.gang import GangPhase
from headrace_allocator.gangs.holds import restore_hold

#: Results of jobs that were not interrupted for other operations. Only the run times of such jobs count for the mean length of an
#: operation's jobs.
_WHOLE_RUNS: Final = (JobResult.COMPLETED, JobResult.FAILED, JobResult.TIMED_OUT)


class Findings:
    """The changes that a heartbeat caused."""

    def __init__(self) -> None:
        #: Ends to report to the ledger.
        self.ends: list[JobEnd] = []
        #: Lost jobs: no node will report how they ended.
        self.lost: list[LostJob] = []
        #: Jobs that this node holds although another allocation holds them, each with the allocation on this node.
        self.held_twice: list[tuple[JobKey, AllocationId]] = []
        #: Allocations whose operation is unknown, each with the operation id that the node reports.
        self.unknown: list[tuple[AllocationId, OperationId]] = []
        #: Jobs that ended because their allocation was preempted.
        self.preempted: list[JobKey] = []
        #: Number of preemptions undone because the node never got the order.
        self.undone = 0
        #: The node's claims on jobs that it was never given, as texts. They change nothing.
        self.foreign: list[str] = []
        #: Ends that the node may forget: the ledger has recorded them, or they were reported too late or are forged.
        self.forget_ends: list[JobKey] = []
        #: Allocations that are no longer booked, so that the node may forget them.
        self.forget_allocations: list[AllocationId] = []
        #: Session spans to report to the ledger.
        self.sessions: list[SessionSpan] = []
        #: Session spans that the node may forget: the ledger has recorded them, or the node never had their jobs.
        self.forget_sessions: list[SessionSpan] = []
        #: Operations that hold other resources than before, or have other jobs that can be given out.
        self.operations: set[OperationId] = set()


def reconcile(facts: Facts, node: Node, heartbeat: Heartbeat) -> Findings | None:
    """Bring the books of one node in line with its heartbeat. Returns None if nothing is new, as in most heartbeats."""
    picture = heartbeat.allocations
    is_plain = node.sent is None and not heartbeat.ends and not (heartbeat.sessions or node.sessions)
    if is_plain and (picture is node.picture.booked or node.shows_nothing_new(picture)):
        node.picture.book(picture)
        node.recorded.clear()
        return None
    return _Reconciliation(facts, node, heartbeat).run()


class _Reconciliation:
    """The comparison of one heartbeat with the books."""

    def __init__(self, facts: Facts, node: Node, heartbeat: Heartbeat) -> None:
        self._facts = facts
        self._node = node
        self._heartbeat = heartbeat
        self._findings = Findings()

    @cached_property
    def _picture(self) -> dict[AllocationId, AllocationReport]:
        return {report.id: report for report in self._heartbeat.allocations}

    @cached_property
    def _lacks_records(self) -> bool:
        """True if the node report may show preempted allocations without their records."""
        records = sum(report.preemption is not None for report in self._heartbeat.allocations)
        return records >= MOST_RECORDS_PER_HEARTBEAT

    def run(self) -> Findings:
        # Sessions are processed before ends: a job whose end is processed is no longer booked, so its sessions would be dropped.
        self._take_sessions()
        self._take_ends()
        self._settle_sent()
        reports, allocations = self._heartbeat.allocations, self._node.allocations
        # Most node reports list the booked allocations in the same order, and most of the allocation reports are the very same objects.
        others = [pair for pair in zip(reports, allocations.values(), strict=False) if pair[0] is not pair[1].shown]
        if len(reports) == len(allocations) and all(report.id == one.id for report, one in others):
            for report, one in others:
                if not one.shows_nothing_new(report):
                    self._take_report(report)
            if self._node.shows_nothing_new(reports):
                # The report is remembered here: the next heartbeat most likely shows the same, and the allocations are in the CPU cache
                # now.
                self._node.picture.book(reports)
        else:
            self._take_picture()
        return self._findings

    def _take_picture(self) -> None:
        """Process a node report whose list of allocations differs from the booked list, or has another order."""
        allocations = self._node.allocations
        shown = 0
        # If an allocation is listed twice, the last report counts. If both were counted in `shown`, a missing allocation would not be
        # noticed.
        for report in self._picture.values():
            known = allocations.get(report.id)
            if known is not None and known.shows_nothing_new(report):
                shown += 1
            else:
                self._take_report(report)
                shown += report.id in allocations
        if self._heartbeat.ends_waiting == 0 and shown < len(allocations):
            for allocation in [one for one in allocations.values() if one.id not in self._picture]:
                self._lose_slots(allocation, allocation.slots.values(), allocation.job)
                self._remove(allocation)

    def _take_sessions(self) -> None:
        """Report the session spans of jobs that the node has, and all spans that ended.

        An ended span is not checked here: the ledger knows which node reported the beginning of the span.
        """
        node, spans = self._node, dict.fromkeys(self._heartbeat.sessions)
        node.sessions = {span: node.sessions[span] for span in spans if span in node.sessions}
        for span in spans:
            if node.sessions.get(span):
                self._findings.forget_sessions.append(span)
            elif span in node.sessions or span.ended_at_ms or self._has_job(span):
                node.sessions[span] = False
                self._findings.sessions.append(span)
            else:
                self._findings.forget_sessions.append(span)
                operation = self._facts.operations.get(span.job.operation)
                if operation is not None and not has_ended(operation.slots, span.job.index, span.job.attempt):
                    self._note_foreign("has sessions with", span.job, span.allocation)

    def _has_job(self, span: SessionSpan) -> bool:
        """True if the job of a span is booked on this node, or may run on this node because the job is unconfirmed."""
        allocation = self._node.allocations.get(span.allocation)
        if allocation is None or allocation.operation != span.job.operation:
            operation, slot = self._facts.operations.get(span.job.operation), JobSlot(span.job.index, span.job.attempt)
            return operation is not None and operation.slots.may_hold(slot)
        booked = allocation.slots.get(span.job.index)
        return booked is not None and booked.attempt == span.job.attempt

    def _take_ends(self) -> None:
        node = self._node
        if not self._heartbeat.ends:
            node.recorded.clear()
            return
        ends = {end.key: end for end in self._heartbeat.ends}
        node.recorded &= ends.keys()
        for key, end in ends.items():
            if key in node.recorded:
                self._findings.forget_ends.append(key)
            elif key not in node.reporting:
                holder = self._holder(end)
                if holder is None and not self._is_unconfirmed(end):
                    # The agent may forget a late or forged end. But if the job was lost, the agent keeps the end until the ledger has
                    # recorded the loss: otherwise, if this allocator were killed before the record, nothing would say that the attempt
                    # ended.
                    if key not in self._facts.recovery.unrecorded_losses:
                        self._findings.forget_ends.append(key)
                    continue
                node.reporting.add(key)
                end = self._with_own_records(end, holder)
                self._findings.ends.append(end)
                self._book_end(end, holder)

    def _with_own_records(self, end: JobEnd, holder: Allocation | None) -> JobEnd:
        """Return the end, completed by what the allocator knows better than the node: the start record of the allocation, and the memory of
        the job if it was raised.
        """
        operation, start = self._facts.operations.get(end.operation), end.start
        if holder is not None and holder.start is not None:
            # The end that the node reports may lack the start record: the runner may be of an older version, or may not have seen the end
            # of the job.
            start = holder.start
        is_raised = holder is not None and operation is not None and operation.slots.memory_steps.get(end.index)
        memory = holder.resources.memory if holder is not None and is_raised else 0
        if (start, memory) == (end.start, end.memory_bytes):
            return end
        return msgspec.structs.replace(end, start=start, memory_bytes=memory)

    def _holder(self, end: JobEnd) -> Allocation | None:
        """Return the allocation of this node that holds the ended job; None if no allocation of the node is booked with the job."""
        allocation = self._node.allocations.get(end.allocation)
        if allocation is None or allocation.operation != end.operation:
            return None
        slot = allocation.slots.get(end.index)
        return allocation if slot is not None and slot.attempt == end.attempt else None

    def _is_unconfirmed(self, end: JobEnd) -> bool:
        """True if the job is unconfirmed, so that any node may hold it and the end that this node reports counts.

        If the job must be on another node, the end is recorded as a foreign claim. In three cases the end is only late, and no claim is
        recorded: the operation is over, the attempt is over, or the allocation is being taken back because another allocation holds the
        job.
        """
        operation = self._facts.operations.get(end.operation)
        if operation is None or has_ended(operation.slots, end.index, end.attempt):
            return False
        if operation.slots.may_hold(JobSlot(end.index, end.attempt)):
            return True
        allocation = self._node.allocations.get(end.allocation)
        if allocation is None or allocation.take_back is None:
            self._note_foreign("ended", end.key, end.allocation)
        return False

    def _note_foreign(self, claim: str, job: JobKey, allocation: AllocationId) -> None:
        where = f"attempt {job.attempt} of job {job.index} of operation {job.operation} in allocation {allocation}"
        self._findings.foreign.append(f"reports that it {claim} {where}, which was not given to it")

    def _book_end(self, end: JobEnd, holder: Allocation | None) -> None:
        if holder is not None:
            holder.drop(end.index)
        # An earlier allocator may have preempted the allocation. Then only the end has the record of the preemption.
        record = end.preemption if holder is None else holder.preemption
        if record is not None and end.result is JobResult.ABORTED:
            self._findings.preempted.append(end.key)
        operation = self._facts.operations.get(end.operation)
        if operation is not None:
            if end.result is not JobResult.COMPLETED and operation.slots.is_of_gang(end.index):
                break_up(operation)
            operation.slots.end(end.index, end.attempt)
            self._facts.failing.note_end(self._node, operation, end)
            self._touch(operation.id)
            # Jobs that fail at once say nothing about the length of other jobs. If their lengths counted, the jobs would seem short,
            # allocations on other nodes would get many jobs in advance, and operations without allocations would wait.
            has_failed_at_once = end.result is JobResult.FAILED and self._facts.failing.is_on
            has_length = end.result in _WHOLE_RUNS and not has_failed_at_once
            if has_length and end.ended_at_ms >= end.started_at_ms > 0:
                operation.note_length(end.ended_at_ms - end.started_at_ms)

    def _settle_sent(self) -> None:
        """Confirm the orders of the last answer if the node obeyed them, and undo them in the books if it did not."""
        sent, heartbeat = self._node.sent, self._heartbeat
        if sent is None:
            return
        self._node.sent = None
        same_life = heartbeat.incarnation == sent.incarnation
        obeyed = same_life and heartbeat.applied >= sent.seq
        # If the agent restarted, its earlier incarnation may have obeyed. The jobs of these orders may have ended since, and their ends may
        # be among the ends that did not fit into the heartbeat.
        never_happened = not obeyed and (same_life or heartbeat.ends_waiting == 0)
        for start in sent.start:
            allocation = self._node.allocations.get(start.allocation)
            if allocation is None:
                continue
            if obeyed or allocation.id in self._picture:
                self._facts.confirm(allocation)
            elif never_happened and restore_hold(self._facts, allocation):
                self._findings.operations.add(allocation.operation)
            elif never_happened:
                self._give_back(allocation, list(allocation.slots.values()))
                self._remove(allocation)
        for take_back in sent.take_back if not obeyed else ():
            # The order was not obeyed, so the start for which the allocation was preempted did not happen either. If an earlier incarnation
            # of the agent did obey the order, the allocation is closing or gone, and its preemption stays.
            allocation = self._node.allocations.get(take_back.allocation)
            if allocation is None or allocation.preemption is None or self._is_going(allocation):
                continue
            # For a gang, allocations are preempted on all its nodes at once. So if the answer to one of the nodes was lost, the preemption
            # is not undone: the order is sent again.
            if not _gathers_all(self._facts, allocation.preemption.beneficiary):
                undo_preemption(self._facts, allocation)
                self._findings.undone += 1
                self._findings.operations.add(allocation.operation)
        for extend in sent.extend if never_happened else ():
            allocation = self._node.allocations.get(extend.allocation)
            report = self._picture.get(extend.allocation)
            if allocation is not None and report is not None:
                shown = shown_indexes(report)
                self._give_back(allocation, [slot for slot in extend.slots if slot.index not in shown])

    def _is_going(self, allocation: Allocation) -> bool:
        """True if the node report shows the allocation as preempted or ended, or does not show it."""
        report = self._picture.get(allocation.id)
        if report is None or report.state is AllocationState.ENDED or report.preemption is not None:
            return True
        # The preemption record may be missing because the heartbeat was full. The order to preempt is repeated until the record fits.
        return report.state is AllocationState.CLOSING and self._lacks_records

    def _take_report(self, report: AllocationReport) -> None:
        allocation = self._node.allocations.get(report.id)
        ended, start = report.state is AllocationState.ENDED, self._heartbeat.starts.get(report.id)
        is_orphan = allocation is not None and self._is_orphan_of(allocation, report.operation)
        if allocation is not None and is_orphan:
            # The operation is known by now, or has come back to this tree, so the allocation is booked anew.
            self._facts.remove(allocation)
            start, allocation = allocation.start, None
        if allocation is None:
            if ended:
                self._note_unbegun(self._told_to_go_before(report, start), report)
                self._findings.forget_allocations.append(report.id)
                return
            allocation = self._adopt(report, is_orphan=is_orphan)
            allocation.note_start(start)
        if report.job is not None or report.unstarted:
            self._adopt_slots(allocation, report)
        allocation.state, ran = report.state, allocation.job
        if report.job is not ran:
            self._facts.set_job(allocation, report.job)
        if ended or report.state is AllocationState.CLOSING:
            allocation.take_back = None
            self._note_unbegun(allocation, report)
            if report.unstarted:
                # If a preemption came before the first job began, that job ends with the allocation (`_note_unbegun`).
                preemption = allocation.preemption or report.preemption
                is_unbegun = preemption is not None and report.job is None and not (ended or report.jobs_ended)
                self._give_back(allocation, report.unstarted[is_unbegun:])
        if allocation.preemption != report.preemption and not ended:
            settle_preemption(self._facts, allocation, report.preemption)
            self._findings.operations.add(allocation.operation)
        elif allocation.usage == ZERO and allocation.preemption is None and not self._lacks_records:
            # The node does not know of the preemption: the report has all preemption records, and none for this allocation.
            self._facts.set_usage(allocation, allocation.resources)
            self._findings.operations.add(allocation.operation)
        if allocation.slots and self._heartbeat.ends_waiting == 0:
            shown = shown_indexes(report)
            gone = [slot for slot in allocation.slots.values() if slot.index not in shown]
            self._lose_slots(allocation, gone, ran)
        allocation.settle()
        if ended and not allocation.slots:
            self._remove(allocation)
            self._findings.forget_allocations.append(report.id)

    def _told_to_go_before(self, report: AllocationReport, start: StartRecord | None) -> Allocation:
        """Build an ended allocation from its report. It is not in the books, because an earlier allocator gave it to the node."""
        allocation = Allocation(report.id, report.operation, self._node.record.node, report.resources)
        allocation.preemption = report.preemption
        allocation.note_start(start)
        operation = self._facts.operations.get(report.operation)
        if operation is not None and report.preemption is not None and not report.jobs_ended:
            adopted = [slot for slot in report.unstarted[:1] if operation.slots.adopt(slot)]
            allocation.slots = {slot.index: slot for slot in adopted}
        return allocation

    def _note_unbegun(self, allocation: Allocation, report: AllocationReport) -> None:
        """End the first job of a preempted allocation that ended before any of its jobs began."""
        if allocation.preemption is None or report.state is not AllocationState.ENDED or report.jobs_ended:
            return
        first = [slot for slot in report.unstarted[:1] if allocation.slots.get(slot.index) == slot]
        for one in lose(self._facts, self._node, allocation, first, PlaceTaken()):
            self._findings.lost.append(one)
            self._findings.preempted.append(one.key)
            self._touch(one.operation)

    def _is_orphan_of(self, allocation: Allocation, name: OperationId) -> bool:
        """True if the allocation belonged to this operation while the operation was unknown, and an earlier allocator leased the
        operation's jobs.

        The second condition is needed because a node may guess the id of an operation and name it before the operation is started. The node
        must not get a job in this way.
        """
        operation = self._facts.operations.get(name)
        is_nobodys = allocation.operation == NO_OPERATION and allocation.orphan_of == name
        return is_nobodys and operation is not None and operation.block_term < self._facts.term

    def _adopt(self, report: AllocationReport, *, is_orphan: bool) -> Allocation:
        """Book an allocation that is not in the books: an earlier allocator started it, or its operation is over.

        The allocation counts for its operation if the node may hold one of the allocation's jobs. In the node's first report of this term,
        the allocation also counts if its jobs are over. Any other allocation counts for no operation: otherwise a faulty node could use up
        an operation's fair share.
        """
        operation = self._facts.operations.get(report.operation)
        slots, node = shown_slots(report), self._node.record.node
        may_hold = operation is not None and (
            any(operation.slots.may_hold(slot, ready=is_orphan) for slot in slots)
            or (self._facts.recovery.awaits(node) and not any(_is_foreign(operation, slot) for slot in slots))
        )
        size = _size_of(operation, report)
        # The size is reduced so that the node's usage stays within `MOST_OF_A_NODE`, and all sums within what messages and tables can hold.
        size = size.within(MOST_OF_A_NODE - self._node.used)
        allocation = Allocation(report.id, report.operation if may_hold else NO_OPERATION, node, size)
        allocation.confirmed = True
        self._facts.add(allocation, since_ms=None if report.job is None else report.job.started_at_ms)
        self._findings.operations.add(report.operation)
        if operation is None:
            allocation.orphan_of = report.operation
            self._findings.unknown.append((report.id, report.operation))
        elif is_orphan:
            self._adopt_slots(allocation, report, ready=True)
        elif may_hold:
            note_in_gang(operation, allocation, [slot.index for slot in slots])
        else:
            for slot in slots:
                self._note_refused(operation, allocation, slot)
        if operation is None or operation.ending or not may_hold:
            allocation.take_back = TakeBackReason.OPERATION_ENDED
        if report.state is AllocationState.CLOSING and report.preemption is None and self._lacks_records:
            # The report has no space for more preemption records. So most likely this closing allocation was preempted too, although its
            # record is missing, and other operations got its resources.
            self._facts.set_usage(allocation, ZERO)
        return allocation

    def _adopt_slots(self, allocation: Allocation, report: AllocationReport, *, ready: bool = False) -> None:
        """Book the jobs that the node shows in an allocation and that are not booked in it: an earlier allocator gave them out."""
        # The operation comes from the booked allocation and not from the report: otherwise a node that named another operation would get
        # jobs booked for that operation.
        operation = self._facts.operations.get(allocation.operation)
        if operation is None:
            return
        for slot in shown_slots(report):
            if allocation.slots.get(slot.index) == slot:
                continue
            if operation.slots.adopt(slot, ready=ready):
                allocation.hold([slot])
                note_in_gang(operation, allocation, [slot.index])
                self._touch(operation.id)
            elif report.state in (AllocationState.WAITING, AllocationState.RUNNING) and allocation.take_back is None:
                # The node must not run the job: the attempt was given up, the job is done, or it runs elsewhere. Two attempts of a job must
                # not run side by side.
                allocation.take_back = TakeBackReason.OPERATION_ENDED
                self._note_refused(operation, allocation, slot)

    def _note_refused(self, operation: Operation, allocation: Allocation, slot: JobSlot) -> None:
        """Record a job that the node shows but may not run, if that is alarming.

        It is not alarming if the attempt is over, because then the report is only late.
        """
        key = JobKey(operation.id, slot.index, slot.attempt)
        if operation.slots.is_out(slot.index):
            self._findings.held_twice.append((key, allocation.id))
        elif _is_foreign(operation, slot):
            self._note_foreign("holds", key, allocation.id)

    def _give_back(self, allocation: Allocation, slots: Iterable[JobSlot]) -> None:
        """Return jobs of an allocation that never ran. They are ready again at once, with the same attempt."""
        # Duplicates are dropped: a node may list a slot twice.
        returned = [slot for slot in dict.fromkeys(slots) if allocation.slots.get(slot.index) == slot]
        if not returned:
            return
        for slot in returned:
            allocation.drop(slot.index)
        operation = self._facts.operations.get(allocation.operation)
        if operation is not None:
            operation.slots.give_back(returned)
            self._touch(operation.id)

    def _lose_slots(self, allocation: Allocation, slots: Iterable[JobSlot], ran: RunningJob | None) -> None:
        """End the jobs of these slots as lost, because the node no longer shows them.

        `ran` is the job that ran in the allocation according to the node's previous report.
        """
        began = JobSlot(ran.index, ran.attempt) if ran is not None and ran.started_at_ms else None
        lost = []
        for slot in list(slots):
            why = UnknownToNode(has_begun=slot == began)
            lost += lose(self._facts, self._node, allocation, [slot], why)
        if lost:
            self._findings.lost += lost
            self._touch(allocation.operation)

    def _remove(self, allocation: Allocation) -> None:
        self._facts.remove(allocation)
        self._findings.operations.add(allocation.operation)

    def _touch(self, operation: OperationId) -> None:
        known = self._facts.operations.get(operation)
        if known is not None:
            self._facts.note_jobs(known)
        self._findings.operations.add(operation)


def _size_of(operation: Operation | None, report: AllocationReport) -> Resources:
    """Return the size of an allocation that is not in the books: the size of its jobs, or the size in the report if no job is known.

    If the operation has jobs whose memory was raised after they ran out of memory, the size in the report is used, but at least the normal
    size and at most the raised size. The reported size can be smaller than the raised size: when the job started, the raise may have been
    capped by another limit.
    """
    if operation is None:
        return report.resources
    if operation.slots.memory_steps:
        least, most = operation.spec.resources, sizes_of_retries(operation.spec)
        steps = (operation.slots.task_of(slot.index) for slot in shown_slots(report))
        return report.resources.within(most[max(steps, default=0)]).or_more(least)
    if not operation.spec.tasks:
        return operation.spec.resources
    sizes = (found.task.resources for slot in shown_slots(report) if (found := operation.spec.task_of(slot.index)))
    return next(sizes, report.resources)


def _is_foreign(operation: Operation, slot: JobSlot) -> bool:
    """True if no allocation can hold this attempt of the job, because no allocator gave it out."""
    slots = operation.slots
    return not (slots.is_out(slot.index) or slots.may_hold(slot) or has_ended(slots, slot.index, slot.attempt))


def _gathers_all(facts: Facts, beneficiary: OperationId) -> bool:
    """True if the beneficiary is a gang that has not started yet, in a tree where everything that a gang needs is preempted at once."""
    gang = None if beneficiary not in facts.operations else facts.operations[beneficiary].gang
    return gang is not None and facts.pools.options.preempt_gangs_whole and gang.phase is GangPhase.GATHERING

"""Holding a heartbeat against the books: what was obeyed, what ended, what is there, what is gone.

A heartbeat is the whole picture, so whatever the books have and the picture lacks does not exist on that node. The one exception
are ends that did not fit into the heartbeat (`ends_waiting`): while there are any, a slot that is nowhere may be among them.
"""

from __future__ import annotations

from headrace.ids import AllocationId, OperationId
from headrace.wire.heartbeat import (
    AllocationReport,
    AllocationState,
    Heartbeat,
    JobEnd,
    JobKey,
    JobResult,
    JobSlot,
    TakeBackReason,
)
from headrace_allocator.facts.facts import Allocation, Books, Node

__all__ = ["Findings", "lost_end", "reconcile"]


class Findings:
    """What a heartbeat showed."""

    def __init__(self) -> None:
        #: Ends to tell the ledger.
        self.ends: list[JobEnd] = []
        #: Ends that the ledger has, allocations that are booked out.
        self.forget_ends: list[JobKey] = []
        self.forget_allocations: list[AllocationId] = []
        #: Operations whose usage or jobs to give out changed.
        self.operations: set[OperationId] = set()


def lost_end(operation: str, slot: JobSlot, allocation: str, reason: str, now_ms: int) -> JobEnd:
    """The end of a job of which nobody knows how it ended."""
    return JobEnd(
        operation=operation,  # type: ignore[arg-type]
        index=slot.index,
        attempt=slot.attempt,
        allocation=AllocationId(allocation),
        result=JobResult.LOST,
        reason=reason,
        ended_at_ms=now_ms,
    )


def reconcile(books: Books, node: Node, heartbeat: Heartbeat, now_ms: int) -> Findings:
    """Brings the books of one node in line with its heartbeat."""
    findings = Findings()
    picture = {report.id: report for report in heartbeat.allocations}
    findings.operations = {allocation.operation for allocation in node.allocations.values()}
    findings.operations |= {end.operation for end in heartbeat.ends}
    _take_ends(books, node, heartbeat, findings)
    _settle_sent(books, node, heartbeat, picture)
    for report in heartbeat.allocations:
        _take_report(books, node, heartbeat, report, findings, now_ms)
    for allocation in [one for one in node.allocations.values() if one.id not in picture]:
        if heartbeat.ends_waiting == 0:
            _lose_slots(books, node, allocation, list(allocation.slots.values()), findings, now_ms)
            books.remove(allocation)
    return findings


def _take_ends(books: Books, node: Node, heartbeat: Heartbeat, findings: Findings) -> None:
    shown = {end.key for end in heartbeat.ends}
    node.recorded &= shown
    for end in heartbeat.ends:
        key = end.key
        if key in node.recorded:
            findings.forget_ends.append(key)
        elif key not in node.reporting:
            node.reporting.add(key)
            findings.ends.append(end)
            _book_end(books, node, end)


def _book_end(books: Books, node: Node, end: JobEnd) -> None:
    operation = books.operations.get(end.operation)
    allocation = node.allocations.get(end.allocation)
    if allocation is not None and allocation.slots.get(end.index) == JobSlot(end.index, end.attempt):
        del allocation.slots[end.index]
    if operation is not None:
        operation.slots.end(end.index, end.attempt)
        books.touched.add(operation.id)
        if end.result in (JobResult.COMPLETED, JobResult.FAILED) and end.ended_at_ms >= end.started_at_ms > 0:
            operation.note_length(end.ended_at_ms - end.started_at_ms)


def _settle_sent(books: Books, node: Node, heartbeat: Heartbeat, picture: dict[AllocationId, AllocationReport]) -> None:
    """Confirms or takes back what the last answer ordered."""
    sent = node.sent
    if sent is None:
        return
    node.sent = None
    obeyed = heartbeat.incarnation == sent.orders.incarnation and heartbeat.applied >= sent.seq
    for start in sent.orders.start:
        allocation = node.allocations.get(start.allocation)
        if allocation is None:
            continue
        if allocation.id in picture or obeyed:
            books.confirm(allocation)
        elif heartbeat.ends_waiting == 0:
            _give_back(books, allocation, list(allocation.slots.values()))
            books.remove(allocation)
    if obeyed:
        return
    for extend in sent.orders.extend:
        allocation = node.allocations.get(extend.allocation)
        report = picture.get(extend.allocation)
        if allocation is not None and report is not None:
            shown = _shown_indexes(report)
            _give_back(books, allocation, [slot for slot in extend.slots if slot.index not in shown])


def _take_report(
    books: Books, node: Node, heartbeat: Heartbeat, report: AllocationReport, findings: Findings, now_ms: int
) -> None:
    allocation = node.allocations.get(report.id)
    if allocation is None:
        if report.state is AllocationState.ENDED:
            findings.forget_allocations.append(report.id)
            return
        allocation = _adopt(books, node, report)
    allocation.state = report.state
    books.set_job(allocation, report.job)
    if report.state in (AllocationState.CLOSING, AllocationState.ENDED):
        allocation.take_back = None
        _give_back(books, allocation, report.unstarted)
    if heartbeat.ends_waiting == 0:
        shown = _shown_indexes(report)
        vanished = [slot for slot in allocation.slots.values() if slot.index not in shown]
        _lose_slots(books, node, allocation, vanished, findings, now_ms)
    if report.state is AllocationState.ENDED and not allocation.slots:
        books.remove(allocation)
        findings.forget_allocations.append(report.id)


def _adopt(books: Books, node: Node, report: AllocationReport) -> Allocation:
    """An allocation that the books do not have: of a former allocator, or of an operation that is over."""
    allocation = Allocation(report.id, report.operation, node.record.node, report.resources)
    allocation.confirmed = True
    books.add(allocation)
    operation = books.operations.get(report.operation)
    if operation is None or operation.ending:
        allocation.take_back = TakeBackReason.OPERATION_ENDED
    if operation is None:
        return allocation
    held = [JobSlot(report.job.index, report.job.attempt)] if report.job else []
    for slot in [*held, *report.unstarted]:
        if operation.slots.adopt(slot):
            allocation.slots[slot.index] = slot
        else:
            # That attempt was given up or is done; the job must not go on beside its successor.
            allocation.take_back = TakeBackReason.OPERATION_ENDED
    return allocation


def _give_back(books: Books, allocation: Allocation, slots: list[JobSlot]) -> None:
    """Slots that never ran: ready again at once, with the same attempt."""
    returned = [slot for slot in slots if allocation.slots.get(slot.index) == slot]
    for slot in returned:
        del allocation.slots[slot.index]
    operation = books.operations.get(allocation.operation)
    if operation is not None and returned:
        operation.slots.give_back(returned)
        books.touched.add(operation.id)


def _lose_slots(
    books: Books, node: Node, allocation: Allocation, slots: list[JobSlot], findings: Findings, now_ms: int
) -> None:
    for slot in slots:
        del allocation.slots[slot.index]
        reason = f"node {node.record.node} does not know this job any more"
        end = lost_end(allocation.operation, slot, allocation.id, reason, now_ms)
        node.reporting.add(end.key)
        findings.ends.append(end)
        operation = books.operations.get(allocation.operation)
        if operation is not None:
            operation.slots.end(slot.index, slot.attempt)
            books.touched.add(operation.id)


def _shown_indexes(report: AllocationReport) -> set[int]:
    shown = {slot.index for slot in report.unstarted}
    if report.job is not None:
        shown.add(report.job.index)
    return shown

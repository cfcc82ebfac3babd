"""Records session spans: from when until when a person had sessions with which job on which node.

The allocator reports the beginning of a span only if the node has the job. The end of a span counts only if the node that reported
the beginning reports it. If no node reports the end, the span ends with its job, or when the same person begins a new span with the
job on this node: then the agent was restarted and did not know the old span any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from headrace.ids import OperationId
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot
from headrace.wire.ledger import ReportedSession
from headrace.wire.log import SessionEnd, SessionNoted
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.state.operation import MOST_OPEN_SESSIONS, MOST_SESSIONS_RECORDED, Operation
from headrace_admission.state.operation_states import is_final


def note_sessions(transaction: Transaction, reported: Iterable[ReportedSession]) -> None:
    """Record new spans, and the ends of open spans.

    A report that brings nothing new is ignored, and so are spans of operations that have ended.
    """
    for one in reported:
        operation = transaction.state.operations.get(OperationId(one.span.job.operation))
        if operation is not None and not is_final(operation.state):
            _note(transaction, operation, one)


def end_with_job(transaction: Transaction, operation: Operation, end: JobEnd) -> None:
    """End the open spans of a run that has ended. If the run was lost, the time of their end is recorded as unknown."""
    ended = [each for each in operation.open_sessions if each.slot == JobSlot(end.index, end.attempt)]
    if end.result is JobResult.LOST:
        _end_all(transaction, ended, SessionEnd.UNKNOWN)
    else:
        _end_all(transaction, ended, SessionEnd.JOB_ENDED, end.ended_at_ms)


def end_with_operation(transaction: Transaction, operation: Operation) -> None:
    """End the open spans of an operation that ends. The time of their end is recorded as unknown."""
    _end_all(transaction, list(operation.open_sessions), SessionEnd.UNKNOWN)


def _note(transaction: Transaction, operation: Operation, one: ReportedSession) -> None:
    span, slot = one.span, JobSlot(one.span.job.index, one.span.job.attempt)
    of_person = [
        each for each in operation.open_sessions if (each.slot, each.node, each.user) == (slot, one.node, span.user)
    ]
    known = next((each for each in of_person if each.began_at_ms == span.began_at_ms), None)
    if span.ended_at_ms:
        if known is not None:
            ended = replace(known, end=SessionEnd.CLOSED, ended_at_ms=span.ended_at_ms, sessions=span.sessions)
            transaction.record(replace(ended, at_ms=transaction.now_ms))
    elif known is None:
        _end_all(transaction, of_person, SessionEnd.UNKNOWN)
        if len(operation.open_sessions) < MOST_OPEN_SESSIONS and operation.sessions_recorded < MOST_SESSIONS_RECORDED:
            began = SessionNoted(operation.id, slot, one.node, span.user, span.began_at_ms, transaction.now_ms)
            transaction.record(began)


def _end_all(transaction: Transaction, spans: Iterable[SessionNoted], end: SessionEnd, ended_at_ms: int = 0) -> None:
    for each in spans:
        transaction.record(replace(each, end=end, ended_at_ms=ended_at_ms, at_ms=transaction.now_ms))

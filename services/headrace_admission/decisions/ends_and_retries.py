"""What the allocator asks: indexes to give out, ends to book, operations that no node holds any more."""

from __future__ import annotations

from collections.abc import Callable

from headrace.ids import OperationId, TreeName
from headrace.wire import ledger as ledger_wire
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot
from headrace.wire.log import BlockDrawn, JobsEnded, LoggedEnd, StateCause
from headrace.wire.operations import OperationState
from headrace.wire.refusals import NotFound, StaleTerm, WrongState
from headrace_admission.decisions.transaction import Deciding, Decision
from headrace_admission.queries import page_of_live
from headrace_admission.state.ledger import Verdict
from headrace_admission.state.life import is_ending, is_final
from headrace_admission.state.operation import Operation

__all__ = ["LedgerEngine"]


class LedgerEngine(Deciding):
    """Decides on jobs."""

    def __init__(self, *, keep_finished: int = 10_000) -> None:
        super().__init__(keep_finished=keep_finished)
        #: Ends of jobs that were never out: something is wrong with who reported them.
        self.impossible_ends = 0

    def on_attach(
        self, request: ledger_wire.Attach, sequence: int, admission_term: int
    ) -> ledger_wire.Attached | StaleTerm:
        """From now on blocks are of this allocator's term."""
        stale = self._stale(request.tree, request.term)
        return stale or ledger_wire.Attached(term=request.term, sequence=sequence, admission_term=admission_term)

    def on_draw(self, request: ledger_wire.DrawBlock) -> Decision:
        """Lets more indexes out, up to the number of jobs."""
        operation = self.operations.get(request.operation)
        stale = self._stale(request.tree, request.term)
        if stale is not None:
            return self._answer(stale)
        if operation is None:
            return self._answer(self._no_operation(request.operation))
        if operation.state is not OperationState.RUNNING:
            return self._answer(WrongState("operation", operation.id, operation.state.value, "running"))
        if request.below > operation.ledger.block and operation.ledger.block < operation.spec.job_count:
            below = min(request.below, operation.spec.job_count)
            self._record(BlockDrawn(operation=operation.id, below=below, term=request.term))
        return self._answer(ledger_wire.DrawAnswer(operation=operation.id, below=operation.ledger.block))

    def on_report(self, request: ledger_wire.ReportEnds, now_ms: int) -> Decision:
        """Books ends of jobs; decides which run again and which operations are over by it."""
        stale = self._stale(request.tree, request.term)
        if stale is not None:
            return self._answer(stale)
        self._begin(now_ms)
        for operation, reported in _by_operation(request.ends, self.operations.get):
            self._on_ends(operation, reported)
        recorded = [one.end.key for one in request.ends]
        return self._answer(ledger_wire.ReportAnswer(recorded=recorded))

    def on_released(self, request: ledger_wire.Released, now_ms: int) -> Decision:
        """What was ending is over."""
        stale = self._stale(request.tree, request.term)
        if stale is not None:
            return self._answer(stale)
        self._begin(now_ms)
        for name in request.operations:
            operation = self.operations.get(name)
            if operation is not None:
                self._change(operation, StateCause.RELEASED, operation.reason)
        return self._answer(ledger_wire.ReleasedAnswer(operations=list(request.operations)))

    def on_whole(
        self, request: ledger_wire.WholeOperationsRequest, sequence: int, admission_term: int
    ) -> ledger_wire.WholeOperations:
        """A page of live operations, in the order of their ids, as of `sequence`."""
        page, more = page_of_live(self.live, request)
        book = None if request.after else self.books.get(request.tree)
        pools = [] if book is None else list(book.ephemeral.values())
        return ledger_wire.WholeOperations(sequence, admission_term, page, more=more, ephemeral_pools=pools)

    def _on_ends(self, operation: Operation, reported: list[ledger_wire.ReportedEnd]) -> None:
        logged: list[LoggedEnd] = []
        failed = operation.ledger.counts[JobResult.FAILED]
        for one in reported:
            verdict = operation.ledger.judge(one.end)
            if verdict is not Verdict.NEW or is_final(operation.state):
                self.impossible_ends += verdict is Verdict.NEVER_OUT
                continue
            failed += one.end.result is JobResult.FAILED
            ending = is_ending(operation.state) or failed >= operation.spec.max_failed_job_count
            retry = None
            if one.end.result is not JobResult.COMPLETED and not ending:
                retry = JobSlot(one.end.index, one.end.attempt + 1)
            operation.ledger.record(one.end, one.node, retry)
            logged.append(LoggedEnd(end=one.end, node=one.node, retry=retry))
        if logged:
            # Booked already, one after the other; applying it again changes nothing.
            self._record(JobsEnded(operation=operation.id, ends=logged, at_ms=self._now_ms))
        if operation.ledger.all_done:
            self._change(operation, StateCause.JOBS_DONE)
        elif failed >= operation.spec.max_failed_job_count:
            self._change(operation, StateCause.TOO_MANY_FAILURES, _failure_words(operation))

    def _no_operation(self, name: str) -> NotFound:
        near: list[str] = [other for other in self.operations if name and other.startswith(name)]
        return NotFound("operation", name, near=near[:3])

    def _stale(self, tree: TreeName, term: int) -> StaleTerm | None:
        known = self._allocator_terms.get(tree, 0)
        if term < known:
            return StaleTerm(role=f"allocator.{tree}", known=known, got=term)
        self._see_term(tree, term)
        return None


def _by_operation(
    ends: list[ledger_wire.ReportedEnd], find: Callable[[OperationId], Operation | None]
) -> list[tuple[Operation, list[ledger_wire.ReportedEnd]]]:
    grouped: dict[OperationId, list[ledger_wire.ReportedEnd]] = {}
    for one in ends:
        grouped.setdefault(one.end.operation, []).append(one)
    found = ((find(name), group) for name, group in grouped.items())
    return [(operation, group) for operation, group in found if operation is not None]


def _failure_words(operation: Operation) -> str:
    count = operation.ledger.counts[JobResult.FAILED]
    limit = operation.spec.max_failed_job_count
    words = f"{count} failed job{'' if count == 1 else 's'}, max_failed_job_count is {limit}"
    if operation.ledger.failures:
        words += "; the last: " + _end_words(operation.ledger.failures[-1])
    return words[:4000]


def _end_words(end: JobEnd) -> str:
    how = end.reason or (f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}")
    return f"job {end.index} attempt {end.attempt}: {how}"

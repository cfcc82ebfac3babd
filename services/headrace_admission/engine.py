"""The decisions of admission: which operations start, how their jobs' ends change them, when they are over.

Event sourced: every `on_…` looks at the state, decides on events, applies them at once and returns them with the answer. The
shell records the events, and only then lets the answer out. Replaying recorded events through `apply` gives the same state, and
applying an event twice changes nothing, so that a checkpoint may be followed by events that it contains already.

Invariants (`check`): an operation is in `live` exactly while its state is not final; every ledger's own; the order of
`operations` is the order of their starts.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, TypeVar, assert_never

import msgspec

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName, operation_id, pool_name
from headrace.resources import RESOURCE_NAMES
from headrace.wire import ledger as ledger_wire
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot
from headrace.wire.log import (
    FIRST_BLOCK,
    BlockDrawn,
    Event,
    JobsEnded,
    LoggedEnd,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
    StateCause,
)
from headrace.wire.nodes import Enrol, NodeRecord
from headrace.wire.operations import (
    AbortOperation,
    GetJobs,
    GetOperation,
    JobPage,
    ListOperations,
    OperationList,
    OperationState,
    OperationView,
    StartAnswer,
    StartOperation,
)
from headrace.wire.refusals import BadRequest, Exists, NotFound, Refusal, StaleTerm, WrongState
from headrace_admission.ledger import Verdict
from headrace_admission.operation import Operation, OperationRecord
from headrace_admission.queries import list_operations, page_of_live
from headrace_admission.states import after, is_ending, is_final

__all__ = ["LARGEST_SPEC_BYTES", "AdmissionEngine", "Decision"]

A = TypeVar("A", bound=msgspec.Struct)

#: A spec travels in one event, which must fit into one entry of the log beside others.
LARGEST_SPEC_BYTES: Final = 128 * 1024


class Decision(msgspec.Struct, frozen=True):
    """Events to record, in this order, and the answer to let out when they are durable."""

    events: list[Event]
    answer: msgspec.Struct


class AdmissionEngine:
    """All operations, of all trees."""

    def __init__(self, *, keep_finished: int = 10_000) -> None:
        self._keep_finished = keep_finished
        #: In the order of their starts.
        self.operations: dict[OperationId, Operation] = {}
        self.live: dict[OperationId, Operation] = {}
        self._finished: dict[OperationId, None] = {}
        self._pools: dict[TreeName, frozenset[PoolName]] = {}
        #: Live operations of each pool.
        self._in_pool: Counter[tuple[TreeName, PoolName]] = Counter()
        self._allocator_terms: dict[TreeName, int] = {}
        #: Ends of jobs that were never out: something is wrong with who reported them.
        self.impossible_ends = 0

    # --- what people ask ------------------------------------------------------------------------------------------

    def on_start(self, request: StartOperation, user: str, now_ms: int) -> Decision:
        """Starts an operation, or repeats the answer that its id got before."""
        known = self.operations.get(request.operation)
        if known is not None:
            if known.user != user:
                return _answer(Exists(what="operation", name=request.operation, where="of another user"))
            return _answer(self._start_answer(known, repeated=True))
        refusal = self._refuse_start(request)
        if refusal is not None:
            return _answer(refusal)
        spec = request.spec
        event = OperationStarted(
            operation=request.operation,
            user=user,
            spec=spec,
            state=OperationState.RUNNING,
            ephemeral_pool=spec.pool not in self._pools[spec.tree],
            block=min(FIRST_BLOCK, spec.job_count),
            block_term=self._allocator_terms.get(spec.tree, 0),
            at_ms=now_ms,
        )
        self.apply(event)
        return Decision([event], self._start_answer(self.operations[request.operation], repeated=False))

    def on_get(self, request: GetOperation) -> OperationView | Refusal:
        operation = self.operations.get(request.operation)
        return operation.view() if operation else self._no_operation(request.operation)

    def on_list(self, request: ListOperations) -> OperationList | Refusal:
        """Newest first; an unknown state is refused."""
        return list_operations(self.operations, request)

    def on_jobs(self, request: GetJobs) -> JobPage | Refusal:
        operation = self.operations.get(request.operation)
        if operation is None:
            return self._no_operation(request.operation)
        rows = operation.ledger.rows(request.first, request.limit)
        return JobPage(operation=operation.id, jobs=rows, job_count=operation.spec.job_count)

    def on_abort(self, request: AbortOperation, user: str, now_ms: int) -> Decision:
        """Ends an operation; one that is ending or over is left as it is."""
        operation = self.operations.get(request.operation)
        if operation is None:
            return _answer(self._no_operation(request.operation))
        words = f"aborted by {user}" + (f": {request.reason}" if request.reason else "")
        events = self._move(operation, StateCause.ABORTED_BY_USER, words, now_ms)
        return Decision(events, operation.view())

    # --- what the allocator asks ----------------------------------------------------------------------------------

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
            return _answer(stale)
        if operation is None:
            return _answer(self._no_operation(request.operation))
        if operation.state is not OperationState.RUNNING:
            return _answer(WrongState("operation", operation.id, operation.state.value, "running"))
        events: list[Event] = []
        if request.below > operation.ledger.block and operation.ledger.block < operation.spec.job_count:
            below = min(request.below, operation.spec.job_count)
            events.append(BlockDrawn(operation=operation.id, below=below, term=request.term))
            self.apply(events[0])
        return Decision(events, ledger_wire.DrawAnswer(operation=operation.id, below=operation.ledger.block))

    def on_report(self, request: ledger_wire.ReportEnds, now_ms: int) -> Decision:
        """Books ends of jobs; decides which run again and which operations are over by it."""
        stale = self._stale(request.tree, request.term)
        if stale is not None:
            return _answer(stale)
        events: list[Event] = []
        for operation, reported in _by_operation(request.ends, self.operations.get):
            events += self._on_ends(operation, reported, now_ms)
        recorded = [one.end.key for one in request.ends]
        return Decision(events, ledger_wire.ReportAnswer(recorded=recorded))

    def on_released(self, request: ledger_wire.Released, now_ms: int) -> Decision:
        """What was ending is over."""
        stale = self._stale(request.tree, request.term)
        if stale is not None:
            return _answer(stale)
        events: list[Event] = []
        for name in request.operations:
            operation = self.operations.get(name)
            if operation is not None:
                events += self._move(operation, StateCause.RELEASED, operation.reason, now_ms)
        return Decision(events, ledger_wire.ReleasedAnswer(operations=list(request.operations)))

    def on_whole(
        self, request: ledger_wire.WholeOperationsRequest, sequence: int, admission_term: int
    ) -> ledger_wire.WholeOperations:
        """A page of live operations, in the order of their ids, as of `sequence`."""
        page, more = page_of_live(self.live, request)
        return ledger_wire.WholeOperations(sequence, admission_term, page, more=more)

    # --- nodes and configuration ----------------------------------------------------------------------------------

    def on_enrol(self, request: Enrol, known: NodeRecord | None, now_ms: int) -> NodeRecord | Refusal:
        """The record to keep of a node; a node stays in its tree and keeps its drain."""
        if known is None:
            return NodeRecord(
                node=request.node, tree=request.tree, tags=sorted(set(request.tags)), enrolled_at_ms=now_ms
            )
        if known.tree != request.tree:
            return WrongState("node", request.node, f"in tree {known.tree}", f"a node of tree {request.tree}")
        return msgspec.structs.replace(known, tags=sorted(set(request.tags)))

    def on_pools(self, tree: TreeName, pools: Iterable[PoolName]) -> None:
        """The configured pools of a tree, as the mirror has them."""
        self._pools[tree] = frozenset(pools)

    def knows_pool(self, tree: TreeName, pool: PoolName) -> bool:
        """True for a configured pool and for one that lives by its operations."""
        return pool in self._pools.get(tree, frozenset()) or self._in_pool[tree, pool] > 0

    # --- state ----------------------------------------------------------------------------------------------------

    def apply(self, event: Event, sequence: int = 0) -> None:
        """Takes an event that was decided or recorded. One that was applied before changes nothing."""
        operation = self.operations.get(event.operation)
        match event:
            case OperationStarted():
                operation = operation or self._add(event)
            case OperationStateChanged():
                self._change_state(operation, event)
            case BlockDrawn():
                if operation is not None:
                    operation.ledger.draw(event.below, event.term)
                    self._see_term(operation.spec.tree, event.term)
            case JobsEnded():
                if operation is not None:
                    _book(operation, event.ends)
            case OperationSuspended():
                if operation is not None:
                    operation.suspended = event.suspended
            case ParametersChanged():
                if operation is not None:
                    self._change_parameters(operation, event)
            case _:
                assert_never(event)
        if operation is not None and sequence:
            operation.sequence = sequence

    def restore(self, records: Iterable[OperationRecord]) -> None:
        """Takes what a checkpoint kept, in the order of the starts."""
        for record in records:
            operation = Operation.from_record(record)
            self.operations[operation.id] = operation
            self._see_term(operation.spec.tree, operation.ledger.block_term)
            if is_final(operation.state):
                self._finished[operation.id] = None
            else:
                self._enliven(operation)

    def check(self) -> list[str]:
        """Broken invariants, in words; empty when all hold."""
        broken = [
            f"{name} is {operation.state} and {'' if name in self.live else 'not '}in live"
            for name, operation in self.operations.items()
            if (name in self.live) == is_final(operation.state)
        ]
        for name, operation in self.operations.items():
            broken += [f"{name}: {what}" for what in operation.ledger.check()]
        return broken

    def statistics(self) -> dict[str, int]:
        return {
            "operations": len(self.operations),
            "live": len(self.live),
            "finished": len(self._finished),
            "impossible_ends": self.impossible_ends,
        }

    def _add(self, event: OperationStarted) -> Operation:
        operation = Operation(event.operation, event.user, event.spec, event.state, event.at_ms)
        operation.ephemeral_pool = event.ephemeral_pool
        operation.ledger.draw(event.block, event.block_term)
        self.operations[operation.id] = operation
        self._enliven(operation)
        self._see_term(event.spec.tree, event.block_term)
        return operation

    def _enliven(self, operation: Operation) -> None:
        self.live[operation.id] = operation
        self._in_pool[operation.spec.tree, operation.spec.pool] += 1

    def _change_parameters(self, operation: Operation, event: ParametersChanged) -> None:
        if operation.id in self.live:
            self._in_pool[operation.spec.tree, operation.spec.pool] -= 1
            self._in_pool[operation.spec.tree, event.pool] += 1
        operation.spec = msgspec.structs.replace(operation.spec, pool=event.pool, weight=event.weight)
        operation.ephemeral_pool = event.ephemeral_pool

    def _change_state(self, operation: Operation | None, event: OperationStateChanged) -> None:
        if operation is None or is_final(operation.state):
            return
        operation.state = event.state
        operation.reason = event.reason
        if is_final(event.state):
            operation.ended_at_ms = event.at_ms
            del self.live[operation.id]
            self._in_pool[operation.spec.tree, operation.spec.pool] -= 1
            self._finished[operation.id] = None
            while len(self._finished) > self._keep_finished:
                oldest = next(iter(self._finished))
                del self._finished[oldest]
                del self.operations[oldest]

    def _move(self, operation: Operation, cause: StateCause, reason: str, now_ms: int) -> list[Event]:
        state = after(operation.state, cause)
        if state is None:
            return []
        event = OperationStateChanged(operation=operation.id, state=state, cause=cause, reason=reason, at_ms=now_ms)
        self.apply(event)
        return [event]

    def _on_ends(self, operation: Operation, reported: list[ledger_wire.ReportedEnd], now_ms: int) -> list[Event]:
        events: list[Event] = []
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
            entry = LoggedEnd(end=one.end, node=one.node, retry=retry)
            operation.ledger.record(one.end, one.node, retry)
            logged.append(entry)
        if logged:
            events.append(JobsEnded(operation=operation.id, ends=logged, at_ms=now_ms))
        if operation.ledger.all_done:
            events += self._move(operation, StateCause.JOBS_DONE, "", now_ms)
        elif failed >= operation.spec.max_failed_job_count:
            events += self._move(operation, StateCause.TOO_MANY_FAILURES, _failure_words(operation), now_ms)
        return events

    def _refuse_start(self, request: StartOperation) -> Refusal | None:
        spec = request.spec
        try:
            operation_id(request.operation)
            pool_name(spec.pool)
        except BadInput as error:
            return BadRequest(error.place, str(error.value), error.expected)
        if spec.tree not in self._pools:
            return NotFound("tree", spec.tree, near=_near(spec.tree, self._pools))
        if spec.resources.user_slots < 1:
            return BadRequest("spec.resources.user_slots", str(spec.resources.user_slots), "at least 1")
        if not any(spec.resources.as_tuple()[1:]):
            names = ", ".join(RESOURCE_NAMES[1:])
            return BadRequest("spec.resources", "none", f"some of {names} for each job")
        size = len(msgspec.msgpack.encode(spec))
        if size > LARGEST_SPEC_BYTES:
            return BadRequest(
                "spec", f"{size} bytes", f"at most {LARGEST_SPEC_BYTES} (command and environment together)"
            )
        return None

    def _start_answer(self, operation: Operation, *, repeated: bool) -> StartAnswer:
        near = _near(operation.spec.pool, self._pools.get(operation.spec.tree, ())) if operation.ephemeral_pool else []
        return StartAnswer(
            operation=operation.id,
            state=operation.state,
            pool=operation.spec.pool,
            ephemeral_pool=operation.ephemeral_pool,
            near=near,
            repeated=repeated,
        )

    def _no_operation(self, name: str) -> NotFound:
        near: list[str] = [other for other in self.operations if name and other.startswith(name)]
        return NotFound("operation", name, near=near[:3])

    def _stale(self, tree: TreeName, term: int) -> StaleTerm | None:
        known = self._allocator_terms.get(tree, 0)
        if term < known:
            return StaleTerm(role=f"allocator.{tree}", known=known, got=term)
        self._see_term(tree, term)
        return None

    def _see_term(self, tree: TreeName, term: int) -> None:
        self._allocator_terms[tree] = max(term, self._allocator_terms.get(tree, 0))


def _answer(answer: msgspec.Struct) -> Decision:
    return Decision([], answer)


def _book(operation: Operation, ends: list[LoggedEnd]) -> None:
    for one in ends:
        if operation.ledger.judge(one.end) is Verdict.NEW:
            operation.ledger.record(one.end, one.node, one.retry)


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


def _near(name: str, names: Iterable[str]) -> list[str]:
    candidates = [other for other in names if other != ROOT_POOL]
    return difflib.get_close_matches(name, candidates, n=3, cutoff=0.5)

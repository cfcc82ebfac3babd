"""The log, read entry by entry from the server's own store, as nobody in the product reads it; what it must never say.

It is the measure of all answers: a process may start only a job that the log let out, a runner may forget only an end that the log
has, a person may be told only of an operation that it holds.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.ids import OperationId, PoolName, TreeName
from headrace.wire.codec import BadMessage, decode
from headrace.wire.heartbeat import JobKey, JobResult
from headrace.wire.log import (
    AllocatorAttached,
    BlockDrawn,
    Event,
    IndexesReturned,
    JobsEnded,
    LogBatch,
    LoggedEnd,
    OperationLeftTree,
    OperationPlaced,
    OperationStarted,
    OperationStateChanged,
)
from headrace.wire.operations import FINAL_STATES, OperationSpec, OperationState
from headrace.wire.placements import TreePlacement
from tests.simulation.store import Stream

__all__ = ["Recorded", "Violation"]


class Violation(AssertionError):
    """Something that must always hold does not, or something that must come true did not."""


class _Operation(msgspec.Struct):
    spec: OperationSpec
    state: OperationState
    #: Indexes below may be out.
    block: int
    #: The newest attempt of an index past its first.
    attempts: dict[int, int] = {}
    ends: dict[tuple[int, int], JobResult] = {}
    #: The pool in each tree where it has a slot.
    pools: dict[TreeName, PoolName] = {}
    #: Of one in several trees: which tree drew which index.
    owners: dict[int, TreeName] | None = None


class Recorded:
    """Everything that is durable, by what it says."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._sequence = 0
        self._term = 0
        #: Of the allocator that drew last in each tree.
        self._block_terms: dict[TreeName, int] = {}
        #: Of each tree's newest allocator.
        self._attached: dict[TreeName, int] = {}
        self.operations: dict[OperationId, _Operation] = {}
        self.preempted = 0
        #: Preempted jobs of an entry that do not run again.
        self._over: list[tuple[OperationId, int]] = []
        #: The most that may run at once, by tree and pool; of the whole tree under "".
        self.running_limits: Mapping[tuple[TreeName, PoolName | str], int] = {}

    def follow(self) -> None:
        """Reads what is new. Raises `Violation`."""
        if self._stream.last_sequence == self._sequence:
            return
        for entry in self._stream.after(self._sequence):
            assert entry.sequence <= self._sequence + 1, "the log forgot what was not looked at yet"
            self._sequence = entry.sequence
            try:
                batch = decode(entry.data, LogBatch)
            except BadMessage as error:
                raise Violation(f"entry {entry.sequence} of the log cannot be read: {error}") from error
            if batch.term < self._term:
                raise Violation(f"entry {entry.sequence} of the log is of term {batch.term}, after one of {self._term}")
            self._term = batch.term
            for event in batch.events:
                self._take(event)
            self._judge_lost_places()

    def judge_answered(self, operation: OperationId) -> None:
        """Somebody was told that an operation is accepted. Raises `Violation` if the log does not have it."""
        self.follow()
        if operation not in self.operations:
            raise Violation(f"{operation} was accepted, and the log does not have it")

    def defect_of_start(self, job: JobKey, tree: TreeName) -> str:
        """Words on why a process of this job must not start now on a host of this tree, or nothing."""
        self.follow()
        operation = self.operations.get(job.operation)
        if operation is None:
            return f"{job} starts, and the log does not know its operation"
        attempt = operation.attempts.get(job.index, 1)
        if job.index >= operation.block:
            return f"{job} starts, and the log let out only jobs below {operation.block}"
        if operation.state is OperationState.RUNNING and job.attempt != attempt:
            return f"{job} starts, and the log let out attempt {attempt}"
        if operation.ends.get((job.index, attempt)) is JobResult.COMPLETED:
            return f"{job} starts, and the log says that it is completed"
        owner = operation.owners.get(job.index) if operation.owners is not None else tree
        if operation.state is OperationState.RUNNING and owner != tree:
            return f"{job} starts in tree {tree}, and the log let it out to {owner or 'none'}"
        return ""

    def defect_of_forgetting(self, job: JobKey) -> str:
        """Words on why a runner must not forget the end of this job, or nothing."""
        self.follow()
        operation = self.operations.get(job.operation)
        if operation is None or operation.state is not OperationState.RUNNING:
            return ""
        if (job.index, job.attempt) in operation.ends or job.attempt < operation.attempts.get(job.index, 1):
            return ""
        return f"the end of {job} is forgotten, and the log does not have it"

    def end_of(self, job: JobKey) -> JobResult | None:
        """As what the end of a job counts, or None if it is not recorded."""
        operation = self.operations.get(job.operation)
        return operation.ends.get((job.index, job.attempt)) if operation is not None else None

    # --- entries --------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        match event:
            case OperationStarted():
                self._start(event)
            case AllocatorAttached():
                known = self._attached.get(event.tree, 0)
                if event.term <= known:
                    raise Violation(f"the allocator of term {event.term} attaches after that of term {known}")
                self._attached[event.tree] = event.term
            case BlockDrawn():
                operation = self._known(event.operation)
                self._note_drawer(event.tree or operation.spec.tree, event.term)
                operation.block = max(operation.block, event.below)
                self._give(event, operation)
            case IndexesReturned():
                owners = self._known(event.operation).owners or {}
                told = {index for run in event.runs for index in range(run.first, run.below)} or set(owners)
                for index in [each for each in told if owners.get(each) == event.tree]:
                    del owners[index]
            case OperationPlaced():
                self._place(self._known(event.operation), event.placement)
            case OperationLeftTree():
                self._known(event.operation).pools.pop(event.tree, None)
            case OperationStateChanged():
                operation = self._known(event.operation)
                if operation.state in FINAL_STATES:
                    raise Violation(f"{event.operation} was {operation.state} and becomes {event.state}")
                operation.state = event.state
            case JobsEnded():
                for logged in event.ends:
                    self._end(event.operation, self._known(event.operation), logged)
            case _:
                return
        self._judge_limits()

    def _start(self, event: OperationStarted) -> None:
        self._note_drawer(event.spec.tree, event.block_term)
        known = self.operations.get(event.operation)
        if known is not None and known.state is not OperationState.PENDING:
            raise Violation(f"{event.operation} was {known.state} and is started again")
        owners: dict[int, TreeName] | None = {} if len(event.placements) > 1 else None
        operation = _Operation(event.spec, event.state, event.block, owners=owners)
        self.operations[event.operation] = operation
        for placement in event.placements:
            self._place(operation, placement)

    def _place(self, operation: _Operation, placement: TreePlacement) -> None:
        if placement.blocked_by is None:
            operation.pools[placement.tree] = placement.pool

    def _give(self, event: BlockDrawn, operation: _Operation) -> None:
        if operation.owners is None or event.tree is None:
            return
        for index in (index for run in event.runs for index in range(run.first, run.below)):
            if index in operation.owners:
                raise Violation(f"{event.tree} draws {index} of {event.operation}: {operation.owners[index]} has it")
            if (index, operation.attempts.get(index, 1)) in operation.ends:
                raise Violation(f"{event.tree} draws {index} of {event.operation}, which is over")
            operation.owners[index] = event.tree

    def _note_drawer(self, tree: TreeName, term: int) -> None:
        known = self._block_terms.get(tree, 0)
        if term < known:
            raise Violation(f"jobs are drawn by an allocator of term {term}, after term {known}")
        self._block_terms[tree] = term

    def _end(self, name: OperationId, operation: _Operation, logged: LoggedEnd) -> None:
        end = logged.end
        job, attempt = (end.index, end.attempt), operation.attempts.get(end.index, 1)
        if end.index >= operation.block:
            raise Violation(f"job {job} of {name} ended, and jobs below {operation.block} were drawn")
        if job in operation.ends:
            raise Violation(f"the end of job {job} of {name} is counted twice")
        if end.attempt != attempt:
            raise Violation(f"job {job} of {name} ended, and attempt {attempt} was let out")
        operation.ends[job] = end.result
        if end.started_at_ms and end.start is None:
            raise Violation(
                f"{end.key} ran, and its end ({end.result} {end.reason}) does not say how its allocation started"
            )
        if end.preemption is not None:
            self._judge_preempted(name, operation, logged)
        if operation.owners is not None:
            operation.owners.pop(end.index, None)
        if logged.retry is not None:
            if end.result is JobResult.COMPLETED or logged.retry.attempt <= attempt:
                raise Violation(f"job {job} of {name} ended {end.result} and runs again as {logged.retry}")
            operation.attempts[end.index] = logged.retry.attempt

    def _judge_preempted(self, name: OperationId, operation: _Operation, logged: LoggedEnd) -> None:
        """A job that lost its place counts against nobody and runs again, unless its operation ends."""
        end, record = logged.end, logged.end.preemption
        self.preempted += end.result is JobResult.ABORTED
        if record is not None and 0 < record.ran_ms < record.exempt_time_ms:
            raise Violation(f"{end.key} made room after {record.ran_ms} of {record.exempt_time_ms} ms")
        if end.result is JobResult.FAILED:
            raise Violation(f"{end.key} was preempted and counts as failed")
        if end.result is JobResult.ABORTED and operation.state is OperationState.RUNNING and logged.retry is None:
            self._over.append((name, end.index))

    def _judge_lost_places(self) -> None:
        """Ends of one report may fail their operation, which is told behind them all, in the same entry."""
        over, self._over = self._over, []
        for name, index in over:
            if self.operations[name].state is OperationState.RUNNING:
                raise Violation(f"job {index} of {name} was preempted and does not run again")

    def _known(self, name: OperationId) -> _Operation:
        if name not in self.operations:
            raise Violation(f"the log speaks of {name}, which never started")
        return self.operations[name]

    def _judge_limits(self) -> None:
        running = [each for each in self.operations.values() if each.state is OperationState.RUNNING]
        for (tree, pool), most in self.running_limits.items():
            count = sum(1 for each in running if tree in each.pools and pool in ("", each.pools[tree]))
            if count > most:
                raise Violation(f"{count} operations run in {pool or 'the tree'}, where {most} may")

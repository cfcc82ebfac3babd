"""Admission in a replay: its engine, and the events that the engine records. The events count as durable at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from headrace.ids import AllocationId, OperationId, PoolName
from headrace.pools import Tree
from headrace.runtime.engine import Moment, Outcome
from headrace.wire import operations as wire
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.ledger import (
    Attach,
    DrawAnswer,
    DrawBlock,
    LiveOperation,
    Released,
    ReportedEnd,
    ReportEnds,
)
from headrace.wire.log import EphemeralPoolSet, Event
from headrace.wire.refusals import Refusal
from headrace.wire.replay import ReplayTask, ToldEntry
from headrace_admission import queries
from headrace_admission.engine import AdmissionEngine
from headrace_admission.state.ledger import Verdict
from headrace_admission.state.rules import GlobalRules, rules_of
from headrace_allocator.effects import Draw
from headrace_simulator.recording import Action, JobRun
from headrace_simulator.results import PoolAccount

A = TypeVar("A")
#: The limit of operations of all users together. It is a setting of admission and no part of a tree's configuration, so a replay has no
#: such limit.
_NO_LIMIT = 10**9
_NO_BYTES_LIMIT = 2**62


class ReplayedLedger:
    """The operations of a replay, kept by the engine of admission."""

    def __init__(
        self, task: ReplayTask, past: Sequence[ToldEntry], after: Tree, now: Moment, *, keep_finished: int
    ) -> None:
        self._tree = task.tree
        everywhere = GlobalRules(
            max_operation_count=_NO_LIMIT,
            most_operation_bytes=_NO_BYTES_LIMIT,
            most_operation_bytes_of_a_user=_NO_BYTES_LIMIT,
        )
        self.engine = AdmissionEngine(everywhere, keep_finished=keep_finished, keep_finished_bytes=_NO_BYTES_LIMIT)
        self._recorded: list[Sequence[Event]] = []
        self.engine.on_configuration(self._tree, rules_of(task.configured), now)
        for entry in past:
            self.engine.on_entry(entry.events, entry.sequence, entry.term, now)
        self._sequence = self.engine.state.sequence
        self.allocator_term = self.engine.state.allocator_terms.get(self._tree, 0) + 1
        self._decide(self.engine.on_attach(Attach(self._tree, self.allocator_term), now), now)
        self._decide(self.engine.on_configuration(self._tree, rules_of(after), now), now)
        # The events are dropped, since they are already part of the live operations that the allocator and fair_share learn at the start.
        self._recorded.clear()

    def live(self) -> list[LiveOperation]:
        """Return all live operations in the form in which the allocator and fair_share learn them."""
        return [queries.live_operation(operation, self._tree) for operation in self.engine.state.live.values()]

    def ephemeral_pools(self) -> list[Event]:
        """Return the existing ephemeral pools, as events."""
        return [
            EphemeralPoolSet(each.tree, pool) for each in self.engine.state.ephemeral_pools() for pool in each.pools
        ]

    def is_out(self, run: JobRun) -> bool:
        """True if, according to the ledger, this run of a job may be running."""
        operation = self.engine.state.live.get(run.operation)
        if operation is None:
            return False
        end = JobEnd(run.operation, run.index, run.attempt, AllocationId(""), JobResult.ABORTED)
        return operation.ledger.judge(end) is Verdict.NEW

    def pool_of(self, operation: OperationId) -> PoolName:
        """Return the pool of an operation."""
        return self.engine.state.operations[operation].spec.pool

    def take(self) -> list[Sequence[Event]]:
        """Return the entries recorded since the last call."""
        taken, self._recorded = self._recorded, []
        return taken

    def act(self, action: Action, account: PoolAccount, now: Moment) -> None:
        """Repeat a request of a user. It has no effect if the operation has already ended."""
        engine, user, request = self.engine, action.user, action.request
        match request:
            case wire.StartOperation():
                answer = self._decide(engine.on_start(request, user, now), now)
                if isinstance(answer, wire.StartAnswer):
                    account.on_operation(request.operation, answer.pool, now.wall_ms)
                elif isinstance(answer, Refusal):
                    account.on_refused(request.spec.pool, f"{request.operation}: {answer.text()}")
            case wire.AbortOperation():
                self._decide(engine.on_abort(request, user, now), now)
            case wire.CompleteOperation():
                self._decide(engine.on_complete(request, user, now), now)
            case wire.SuspendOperation():
                self._decide(engine.on_suspend(request, user, now), now)
            case wire.ResumeOperation():
                self._decide(engine.on_resume(request, user, now), now)
            case wire.UpdateOperation():
                self._decide(engine.on_update(request, user, now), now)

    def report(self, ends: list[ReportedEnd], now: Moment) -> None:
        """Record ends of jobs."""
        self._decide(self.engine.on_report(ReportEnds(self._tree, self.allocator_term, ends), now), now)

    def draw(self, draw: Draw, now: Moment) -> DrawAnswer | None:
        """Lease more indexes of an operation. Return None if the lease is refused."""
        request = DrawBlock(self._tree, self.allocator_term, draw.operation, draw.below, draw.more)
        answer = self._decide(self.engine.on_draw(request, now), now)
        return answer if isinstance(answer, DrawAnswer) else None

    def release(self, operations: list[OperationId], now: Moment) -> None:
        """Record that no node holds allocations of these operations any more."""
        request = Released(self._tree, self.allocator_term, operations)
        self._decide(self.engine.on_released(request, now), now)

    def look_at_times(self, now: Moment) -> None:
        """Retry failed jobs whose pause is over, and end operations whose time limit is reached."""
        if self.engine.state.pausing:
            self._decide(self.engine.on_retries_due(now), now)
        if self.engine.state.limited:
            self._decide(self.engine.on_time_limits_due(now), now)

    def scan(self, now: Moment) -> None:
        """Examine all queues for operations that may run now."""
        self._decide(self.engine.on_scan(now), now)

    def _decide(self, outcome: Outcome[A, Event], now: Moment) -> A:
        events: Sequence[Event] = outcome.effects
        if outcome.effects:
            self._sequence += 1
            self.engine.on_recorded(events, self._sequence, now)
            self._recorded.append(outcome.effects)
        return outcome.answer

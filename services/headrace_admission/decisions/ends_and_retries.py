"""Ends of jobs and their consequences: the job is retried, or the operation ends.

An end counts once, however often it is reported. A failed, aborted or lost job is retried with its next attempt
(`next_attempt`), unless the operation is ending or has failed too often. A job that timed out is given up, and so is a job whose
failure is not to be retried (`is_retried`). A failed job waits before its retry (`retry_at_ms`), and the wait grows with its
failures.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.ids import AllocationId, NodeName, OperationId, TreeName
from headrace.retry_rules import last_step, parse_failures
from headrace.wire.codec import runs_within
from headrace.wire.heartbeat import LONGEST_SHORT_TEXT, JobEnd, JobResult, Retry
from headrace.wire.ledger import Released, ReleasedAnswer, ReportAnswer, ReportedEnd, ReportEnds
from headrace.wire.log import (
    AllocatorAttached,
    IndexesReturned,
    JobsEnded,
    JobsRetried,
    LoggedEnd,
    OperationLeftTree,
    OperationSuspended,
    StateCause,
)
from headrace.wire.operation_spec import OnLostNode, OperationSpec
from headrace.wire.operations import OperationState
from headrace.wire.refusals import Refusal
from headrace_admission.decisions.index_leases import refused_term
from headrace_admission.decisions.operation_ends import end_and_offer_slots
from headrace_admission.decisions.sessions import end_with_job, note_sessions
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.decisions.upstream import judge_held_back, release_jobs
from headrace_admission.log.byte_budget import ENDS_OF_AN_EVENT_BYTES
from headrace_admission.queries import end_words, failed_for_good, failed_runs_of_gang, failure_words
from headrace_admission.state.ledger import MOST_PAUSING, Verdict, retry_of
from headrace_admission.state.operation import Operation
from headrace_admission.state.operation_states import is_ending, is_final

_MOST_DOUBLINGS: Final = 40


def report(transaction: Transaction, request: ReportEnds) -> tuple[ReportAnswer | Refusal, int]:
    """Record the session spans and ends of jobs that an allocator reports, as far as they are new.

    Return the answer, and the number of impossible ends: ends of jobs that were never leased.
    """
    refused = refused_term(transaction, request.tree, request.term)
    if refused is not None:
        return refused, 0
    note_sessions(transaction, request.sessions)
    reported: dict[OperationId, list[ReportedEnd]] = {}
    for one in request.ends:
        reported.setdefault(one.end.operation, []).append(one)
    impossible = 0
    for name, ends in reported.items():
        operation = transaction.state.operations.get(name)
        if operation is not None:
            impossible += _take_ends(transaction, operation, ends)
    return ReportAnswer([one.end.key for one in request.ends], len(request.sessions)), impossible


class FailedRuns(NamedTuple):
    """Numbers of failed runs of an operation's jobs."""

    of_all: int
    #: Failed runs of the jobs that form the operation's gang; 0 if it has no gang.
    of_gang: int

    @classmethod
    def recorded(cls, operation: Operation) -> FailedRuns:
        """Return the numbers that the ledger has recorded."""
        return cls(operation.ledger.counts[JobResult.FAILED], failed_runs_of_gang(operation))

    def plus(self, operation: Operation, end: JobEnd) -> FailedRuns:
        """Return the numbers with one more end."""
        if end.result is not JobResult.FAILED:
            return self
        return FailedRuns(self.of_all + 1, self.of_gang + operation.spec.is_of_gang(end.index))


def next_attempt(operation: Operation, end: JobEnd, failed: FailedRuns) -> Retry | None:
    """Return the attempt that follows an end. None if the job is completed or given up, or if its operation is ending or must fail."""
    if end.result is JobResult.COMPLETED or is_ending(operation.state) or has_failed_too_often(operation, failed):
        return None
    if end.result is JobResult.TIMED_OUT:
        return None
    if end.result is JobResult.FAILED and not is_retried(operation.spec, end):
        return None
    if end.result is JobResult.FAILED and operation.ledger.failed_runs[end.index] + 1 == operation.spec.tries:
        return None
    is_out_of_memory = end.out_of_memory and end.result is JobResult.FAILED
    return retry_of(operation.ledger, end.index, last_step(operation.spec), out_of_memory=is_out_of_memory)


def is_retried(spec: OperationSpec, end: JobEnd) -> bool:
    """True if `retry_on` and `no_retry_on` allow a retry after a failed run.

    Both options judge exit statuses of programs only. So a run without an exit status is retried in any case, and so is a run whose
    program could not be started. A run that ran out of memory is retried in any case too, if the operation sets `memory_on_oom`.
    """
    if end.not_started or not end.status or (end.out_of_memory and spec.memory_on_oom):
        return True
    if spec.retry_on:
        return parse_failures(spec.retry_on).has(end.status, out_of_memory=end.out_of_memory)
    excluded = spec.no_retry_on
    return not (excluded and parse_failures(excluded).has(end.status, out_of_memory=end.out_of_memory))


def retry_at_ms(operation: Operation, end: JobEnd, now_ms: int) -> int:
    """Return the Unix time in milliseconds at which a failed job may be retried; 0: at once.

    The wait is the operation's back-off times 2^(earlier failures of the job), up to the longest back-off. Example: with 500 ms
    and at most 10 s the failures of a job are followed by waits of 0.5, 1, 2, 4, 8, 10, 10, … s. A command that could not be
    started used no run time, and another host may be able to start it, so it is retried at once.
    """
    spec, ledger = operation.spec, operation.ledger
    has_run = end.result is JobResult.FAILED and not end.not_started
    if not has_run or not spec.retry_backoff_ms or len(ledger.pausing) >= MOST_PAUSING:
        return 0
    grown_ms = spec.retry_backoff_ms << min(ledger.failed_runs[end.index], _MOST_DOUBLINGS)
    return now_ms + min(grown_ms, _longest_backoff_ms(spec))


def _longest_backoff_ms(spec: OperationSpec) -> int:
    return max(spec.retry_backoff_ms, spec.longest_retry_backoff_ms)


def retry_due(transaction: Transaction) -> None:
    """Retry failed jobs whose back-off is over."""
    for name in sorted(transaction.state.pausing):
        operation = transaction.state.live[name]
        if is_ending(operation.state):
            continue
        slots = operation.ledger.due_retries(
            transaction.now_ms, _longest_backoff_ms(operation.spec), last_step(operation.spec)
        )
        if slots:
            transaction.record(JobsRetried(name, slots, transaction.now_ms))


def has_failed_too_often(operation: Operation, failed: FailedRuns) -> bool:
    """True if so many failed runs fail the operation. The limit is `max_failed_job_count`, and for the jobs of a gang also `tries`."""
    spec = operation.spec
    return failed.of_all >= spec.max_failed_job_count or 0 < spec.tries <= failed.of_gang


def must_fail(operation: Operation, failed: FailedRuns) -> bool:
    """True if the operation must fail.

    It fails if too many runs have failed, or if a job is given up. With `keep_going`, a job that is given up fails the operation only
    when all other jobs are over too.
    """
    ledger = operation.ledger
    is_over = ledger.are_all_over or not operation.spec.keep_going
    return has_failed_too_often(operation, failed) or (ledger.given_up > 0 and is_over)


def release(transaction: Transaction, request: Released) -> ReleasedAnswer | Refusal:
    """End the named operations that were only waiting for their last allocations in the allocator's tree to end."""
    refused = refused_term(transaction, request.tree, request.term)
    if refused is not None:
        return refused
    for name in request.operations:
        operation = transaction.state.operations.get(name)
        if operation is not None:
            _release_in(transaction, operation, request.tree)
    return ReleasedAnswer(operations=list(request.operations))


def remove_tree(transaction: Transaction, tree: TreeName) -> None:
    """Remove a tree from all its operations. Operations that are in no other tree are aborted."""
    state = transaction.state
    state.configure(tree, None)
    members = [state.live[name] for name in state.books[tree].members] if tree in state.books else []
    # Operations that wait for other operations are removed first. Otherwise they would start or fail when the operations that they
    # wait for are removed.
    for operation in sorted(members, key=lambda each: not each.is_held_back):
        if len(operation.placements) == 1:
            end_operation(transaction, operation, StateCause.TREE_REMOVED, f"tree {tree} was removed")
        else:
            transaction.record(OperationLeftTree(operation.id, tree))


def _release_in(transaction: Transaction, operation: Operation, tree: TreeName) -> None:
    """Release the job indexes that a tree holds of an operation. An ending operation ends once no tree holds any of its indexes."""
    owners = operation.ledger.owners
    if owners is not None and not is_final(operation.state):
        has_left = tree not in operation.placements
        if has_left or (is_ending(operation.state) and owners.count(tree)):
            free = owners.free + owners.count(tree)
            transaction.record(IndexesReturned(operation.id, tree, owners.changes + 1, free))
        if owners.owning_trees():
            return
    end_operation(transaction, operation, StateCause.RELEASED, operation.reason)


def lose_indexes(transaction: Transaction, tree: TreeName) -> None:
    """Record the jobs that a tree holds as lost, because nothing can report their ends any more.

    Only jobs of operations with several trees are recorded as lost, because another tree can run them. Jobs of operations that wait
    for lost nodes (`on_lost_node`) stay with the tree. If a job is recorded as lost, reports of the tree's former allocator are
    refused from now on.
    """
    state = transaction.state
    reason = f"tree {tree} had no allocator for longer than the lease of its nodes"
    for operation in list(state.live.values()):
        owners, is_over = operation.ledger.owners, is_ending(operation.state)
        if (
            operation.id not in state.live
            or owners is None
            or operation.spec.after_each is not None
            or (operation.spec.on_lost_node is OnLostNode.WAIT and not is_over)
        ):
            continue
        lost = [_lost(operation, index, reason) for index in owners.indexes(tree)]
        if not lost:
            continue
        if not transaction.events:
            transaction.record(AllocatorAttached(tree, state.allocator_terms.get(tree, 0) + 1))
        _take_ends(transaction, operation, lost)
        if is_over and not owners.owning_trees():
            end_operation(transaction, operation, StateCause.RELEASED, operation.reason)


def _lost(operation: Operation, index: int, reason: str) -> ReportedEnd:
    attempt = operation.ledger.attempts[index] or 1
    end = JobEnd(operation.id, index, attempt, AllocationId(""), JobResult.LOST, reason=reason)
    return ReportedEnd(NodeName(""), end)


def end_operation(transaction: Transaction, operation: Operation, cause: StateCause, reason: str = "") -> bool:
    """Move an operation towards its end. Return False if the cause has no effect in the operation's present state.

    When the operation ends, its running slots are offered to waiting operations, a configuration that waited for its end is applied,
    and operations that waited for its end start or fail.
    """
    has_changed = end_and_offer_slots(transaction, operation, cause, reason)
    judge_held_back(transaction)
    return has_changed


def complete_decisions(transaction: Transaction) -> None:
    """Record the part of a decision that a former process did not record.

    The events of a large decision are written in several entries, and the process may have ended between two of them.
    """
    for operation in list(transaction.state.live.values()):
        holds_slot = any(placement.blocked_by is None for placement in operation.placements.values())
        if operation.state is OperationState.PENDING and holds_slot:
            transaction.change_state(operation, StateCause.ADMITTED)
        if operation.awaits_jobs and operation.spec.after_each is not None and operation.ledger.owners is not None:
            upstream = transaction.state.live[operation.spec.after_each]
            waiting = operation.ledger.owners.waiting_in_vain(upstream.ledger.completed_bits())
            release_jobs(transaction, operation, waiting)
    judge_held_back(transaction)


def abort_without_command(transaction: Transaction) -> None:
    """Abort the operations whose command was not loaded from the log."""
    state = transaction.state
    # Operations that wait for other operations are aborted first, as in `remove_tree`. Otherwise they could start, without their
    # command, when the operations that they wait for end.
    operations = sorted((state.live[name] for name in state.without_command), key=lambda each: not each.is_held_back)
    most = state.configuration.everywhere.largest_replayed_bytes
    reason = (
        f"admission did not load the command of the operation from the log: live operations take more than {most} bytes"
    )
    for operation in operations:
        end_operation(transaction, operation, StateCause.ABORTED_BY_USER, reason)
    state.without_command.clear()


def _take_ends(transaction: Transaction, operation: Operation, reported: list[ReportedEnd]) -> int:
    """Record the new ends of one operation, and end the operation if its jobs are done or it must fail.

    Return the number of impossible ends: ends of jobs that were never leased.
    """
    impossible = 0
    new: dict[int, LoggedEnd] = {}
    had_failed = bool(operation.ledger.failures)
    failed = FailedRuns.recorded(operation)
    for one in reported:
        if one.end.index in new:
            # The ledger must contain the first end of a job before it can judge a second end of the same job.
            _record(transaction, operation, new)
        verdict = operation.ledger.judge(one.end)
        impossible += verdict is Verdict.NEVER_OUT
        if verdict is Verdict.NEW and not is_final(operation.state):
            failed = failed.plus(operation, one.end)
            retry = next_attempt(operation, one.end, failed)
            at_ms = retry_at_ms(operation, one.end, transaction.now_ms) if retry is not None else 0
            new[one.end.index] = LoggedEnd(one.end, one.node, None if at_ms else retry, at_ms)
    _record(transaction, operation, new)
    if operation.ledger.all_done:
        end_operation(transaction, operation, StateCause.JOBS_DONE)
    elif must_fail(operation, failed):
        any_failed = has_failed_too_often(operation, failed) or failed_for_good(operation.ledger)
        cause = StateCause.TOO_MANY_FAILURES if any_failed else StateCause.TIME_LIMIT
        end_operation(transaction, operation, cause, failure_words(operation))
    elif operation.spec.suspend_on_failure and operation.ledger.failures and not had_failed:
        _suspend(transaction, operation)
    return impossible


def _suspend(transaction: Transaction, operation: Operation) -> None:
    """Suspend an operation after its first failure, unless it is suspended or ending already."""
    if operation.suspended or is_ending(operation.state) or is_final(operation.state):
        return
    reason = f"its first failure, {end_words(operation.ledger.failures[0])}"[:LONGEST_SHORT_TEXT]
    suspended = OperationSuspended(operation.id, suspended=True, at_ms=transaction.now_ms, reason=reason)
    transaction.record(suspended)


def _record(transaction: Transaction, operation: Operation, new: dict[int, LoggedEnd]) -> None:
    for logged in new.values() if operation.open_sessions else ():
        end_with_job(transaction, operation, logged.end)
    for ends in runs_within(new.values(), ENDS_OF_AN_EVENT_BYTES):
        transaction.record(JobsEnded(operation=operation.id, ends=ends, at_ms=transaction.now_ms))
        completed = sorted(one.end.index for one in ends if one.end.result is JobResult.COMPLETED)
        for name in transaction.state.upstream.waiting_for_jobs_of(operation.id):
            release_jobs(transaction, transaction.state.live[name], completed)
    judge_held_back(transaction)
    new.clear()

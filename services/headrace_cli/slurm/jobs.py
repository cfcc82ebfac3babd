"""Slurm's jobs: what the services say about operations that `sbatch` started. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.job_indexes import parse_indexes
from headrace.wire.happenings import JobEnded
from headrace.wire.heartbeat import JobResult, JobSlot
from headrace.wire.nodes import JobPlace
from headrace.wire.operations import FINAL_STATES, JobRow, OperationState, OperationView
from headrace_cli.slurm.numbers import number_of, task_number


class JobState(enum.StrEnum):
    """States of Slurm's jobs, by their long names."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"


#: Short names of the states.
SHORT_STATES: Final[Mapping[JobState, str]] = {
    JobState.PENDING: "PD",
    JobState.RUNNING: "R",
    JobState.COMPLETED: "CD",
    JobState.CANCELLED: "CA",
    JobState.FAILED: "F",
    JobState.TIMEOUT: "TO",
    JobState.NODE_FAIL: "NF",
    JobState.PREEMPTED: "PR",
    JobState.OUT_OF_MEMORY: "OOM",
}
LIVE: Final = frozenset({JobState.PENDING, JobState.RUNNING})
_OF_RESULT: Final = {
    JobResult.COMPLETED: JobState.COMPLETED,
    JobResult.FAILED: JobState.FAILED,
    JobResult.TIMED_OUT: JobState.TIMEOUT,
}
#: States of jobs whose last run would be retried if the operation had not ended, by the result of this run.
_OF_RETRIED: Final = {JobResult.ABORTED: JobState.CANCELLED, JobResult.LOST: JobState.NODE_FAIL}
_OF_OPERATION: Final = {
    OperationState.COMPLETED: JobState.COMPLETED,
    OperationState.COMPLETING: JobState.COMPLETED,
    OperationState.FAILED: JobState.FAILED,
    OperationState.FAILING: JobState.FAILED,
    OperationState.ABORTED: JobState.CANCELLED,
    OperationState.ABORTING: JobState.CANCELLED,
}


class Job(NamedTuple):
    """One job of a list: a job without an array, one task of an array, or all pending tasks of an array together."""

    number: int
    view: OperationView
    state: JobState
    #: Index in the array; None: a job without an array, or several pending tasks.
    task: int | None = None
    #: Indexes of pending tasks, such as `3-9,12`; empty: one job.
    pending: str = ""
    node: str = ""
    #: Unix times in milliseconds of the start and the end; 0: not known, or still to come.
    started_ms: int = 0
    ended_ms: int = 0
    exit_code: int = 0
    signal: int = 0
    #: None: not measured.
    cpu_ms: int | None = None
    max_rss_bytes: int | None = None
    #: Why the job is pending, in Slurm's words.
    reason: str = "None"

    @property
    def id(self) -> str:
        """The number as Slurm writes it: `17`, `17_3` or `17_[4-9%2]`."""
        if self.pending:
            most = self.view.spec.resource_limits.user_slots
            return f"{self.number}_[{self.pending}{f'%{most}' if most else ''}]"
        return str(self.number) if self.task is None else f"{self.number}_{self.task}"

    @property
    def raw_id(self) -> int:
        """The number of the job or task; for several pending tasks, the number of their array."""
        return self.number if self.task is None else task_number(self.number, self.task)

    def elapsed_s(self, now_ms: int) -> int:
        """Return how long the job has run, in seconds."""
        return max(0, (self.ended_ms or now_ms) - self.started_ms) // 1000 if self.started_ms else 0


class Facts(NamedTuple):
    """Answers about the jobs of one operation. Parts that were not requested are empty."""

    rows: Sequence[JobRow] = ()
    running: Sequence[JobPlace] = ()
    ends: Mapping[JobSlot, JobEnded] = {}


def jobs_of(view: OperationView, facts: Facts, now_ms: int, *, each_task: bool = False) -> Iterator[Job]:
    """Yield the jobs of an operation. Pending tasks of an array are one job, unless `each_task` is true.

    Nothing is yielded for an operation that `sbatch` did not start.
    """
    number = number_of(view.operation)
    if number is None:
        return
    indexes = parse_indexes(view.spec.indexes) if view.spec.indexes else None
    rows = {row.slot.index: row for row in facts.rows}
    running = {place.index: place for place in facts.running}
    # Another person's array may have a million tasks, and every `squeue` shows it. So tasks that are pending are not looked at one by one.
    groups_pending = indexes is not None and not each_task
    are_pending = groups_pending and _state(view, None) is JobState.PENDING
    not_pending = set[int]()
    for nth in sorted(rows.keys() | running.keys()) if are_pending else range(view.spec.job_count):
        index = indexes.of_job(nth) if indexes is not None else None
        job = _job(Job(number, view, JobState.PENDING, index), rows.get(nth), running.get(nth), facts.ends, now_ms)
        if not groups_pending or job.state is not JobState.PENDING:
            not_pending.add(nth)
            yield job
    if indexes is not None and len(not_pending) < view.spec.job_count:
        yield Job(number, view, JobState.PENDING, pending=indexes.text_without(not_pending), reason=_reason(view))


def _job(job: Job, row: JobRow | None, place: JobPlace | None, ends: Mapping[JobSlot, JobEnded], now_ms: int) -> Job:
    view = job.view
    if place is not None and view.state not in FINAL_STATES:
        return job._replace(state=JobState.RUNNING, node=place.node, started_ms=now_ms - place.ran_ms)
    state = _state(view, row)
    if state is JobState.PENDING:
        return job._replace(reason=_reason(view))
    ended_ms = view.ended_at_ms or now_ms
    job = job._replace(state=state, ended_ms=ended_ms)
    if row is None or row.result is None:
        last = view.last_failures[-1] if view.last_failures and view.spec.job_count == 1 else None
        if last is None:
            return job
        job = job._replace(node=last.node, started_ms=last.started_at_ms, ended_ms=last.ended_at_ms or ended_ms)
        return job._replace(
            exit_code=last.exit_code or 0, signal=last.signal or 0, cpu_ms=last.cpu_ms, max_rss_bytes=last.max_rss_bytes
        )
    job = job._replace(node=row.node, exit_code=row.exit_code or 0)
    end = ends.get(row.slot)
    if end is None:
        return job
    return job._replace(
        started_ms=end.started_at_ms,
        ended_ms=end.at_ms,
        signal=end.signal or 0,
        cpu_ms=end.cpu_ms,
        max_rss_bytes=end.max_rss_bytes,
    )


def _state(view: OperationView, row: JobRow | None) -> JobState:
    """Return the state of a job that does not run."""
    of_operation = _OF_OPERATION.get(view.state)
    if row is not None and row.result is not None:
        if row.out_of_memory:
            return JobState.OUT_OF_MEMORY
        if row.result in _OF_RESULT:
            return _OF_RESULT[row.result]
        return JobState.PENDING if of_operation is None else _OF_RETRIED[row.result]
    if of_operation is None:
        return JobState.PENDING
    if view.spec.job_count > 1:
        # This is a task of an array that never ran before the operation ended.
        return JobState.CANCELLED
    if of_operation is JobState.FAILED and view.timed_out_jobs:
        return JobState.TIMEOUT
    if of_operation is JobState.FAILED and view.out_of_memory_runs:
        return JobState.OUT_OF_MEMORY
    if of_operation is JobState.FAILED and not view.failed_jobs:
        # No job ran: the operation failed because of an operation that it waited for.
        return JobState.CANCELLED
    return of_operation


def _reason(view: OperationView) -> str:
    if view.suspended:
        return "JobHeldUser"
    if view.awaits or view.awaiting_jobs:
        return "Dependency"
    return "AssocMaxJobsLimit" if view.waiting else "Resources"

"""Spans of the jobs of traced operations: one from the start order to the running process, and one from there to the end of the job."""

from __future__ import annotations

from typing import Final, assert_never

import msgspec

from headrace.ids import AllocationId, NodeName
from headrace.obs import tracing
from headrace.obs.tracing import SpanKind
from headrace.wire import subjects
from headrace.wire.heartbeat import JobEnd, JobKey, JobResult
from headrace.wire.trace import SpanContext, has_span, job_span, placement_span, read_trace
from headrace_agent.run_order import note_in
from headrace_agent.runner.protocol import Ended, FullReport, Pong, Recalled, Run, Started, ToAgent

#: Upper bound of jobs whose spans are tracked at a time; no host runs more jobs.
_MOST_JOBS: Final = 10_000


class _Job(msgspec.Struct):
    operation: SpanContext
    placement: SpanContext
    allocation: AllocationId
    since_ns: int
    runs: bool = False


class JobSpans:
    """Records the spans of those jobs of this node whose operation is traced."""

    def __init__(self, node: NodeName) -> None:
        self._node = node
        self._jobs: dict[JobKey, _Job] = {}

    def on_told(self, run: Run) -> None:
        """Record that the runner was ordered to start a job."""
        if tracing.is_on() and run.job not in self._jobs:
            self._note(run, tracing.now_ns())

    def on_runner(self, message: ToAgent) -> None:
        """Record what the runner reports: the start or end of a job, or (in a full report) all jobs that run."""
        if not tracing.is_on():
            return
        match message:
            case Started(job=job):
                self._on_started(job)
            case FullReport(running=running):
                for kept in running:
                    if kept.run.job not in self._jobs:
                        self._note(kept.run, kept.started.started_at_ms * 1_000_000)
                running_jobs = {kept.run.job for kept in running}
                self._jobs = {key: job for key, job in self._jobs.items() if key in running_jobs}
            case Recalled(allocation=allocation):
                for key in [key for key, job in self._jobs.items() if job.allocation == allocation and not job.runs]:
                    del self._jobs[key]
            case Ended():
                self._on_ended(message.end)
                following = self._jobs.get(message.followed_by) if message.followed_by is not None else None
                if following is not None:
                    following.since_ns = tracing.now_ns()
            case Pong():
                pass
            case _:
                assert_never(message)

    def _note(self, run: Run, since_ns: int) -> None:
        if not has_span(run.job) or len(self._jobs) >= _MOST_JOBS:
            return
        note = note_in(run)
        operation = read_trace(note.spec.trace) if note is not None else None
        if operation is not None:
            allocation = AllocationId(run.allocation)
            self._jobs[run.job] = _Job(
                operation, placement_span(operation, self._node, allocation), allocation, since_ns
            )

    def _on_started(self, key: JobKey) -> None:
        job = self._jobs.get(key)
        if job is not None:
            context = job_span(job.operation, key).of("process start")
            tracing.record(
                "process start",
                context,
                job.since_ns,
                self._about(key, job),
                parent=job.placement,
                kind=SpanKind.CONSUMER,
                subject=subjects.heartbeat("*", "*"),
            )
            job.since_ns, job.runs = tracing.now_ns(), True

    def _on_ended(self, end: JobEnd) -> None:
        job = self._jobs.pop(end.key, None)
        if job is None:
            return
        about = self._about(end.key, job) | {"result": end.result.value}
        error = "" if end.result is JobResult.COMPLETED else end.result.value
        context = job_span(job.operation, end.key)
        tracing.record("job", context, job.since_ns, about, parent=job.placement, error=error)

    def _about(self, key: JobKey, job: _Job) -> dict[str, str | int | float | bool]:
        about = {"operation": key.operation, "node": self._node, "allocation": job.allocation}
        return {**about, "job": key.index, "attempt": key.attempt}

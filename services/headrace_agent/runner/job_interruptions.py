"""Interruptions of jobs: an interrupted job gets its signal, and SIGKILL after a timeout. A job is also interrupted when it reaches its
time limit. Pure.

The deadline of a kill never moves to a later time.
"""

from __future__ import annotations

import heapq
import signal
from collections import deque
from collections.abc import Mapping

import msgspec

from headrace.runtime.engine import NS_PER_MS, Moment
from headrace.wire.heartbeat import JobKey
from headrace_agent.runner.effects import RunnerEffect, Signal, TellDeadline
from headrace_agent.runner.job_ends import Stop, time_limit_stop
from headrace_agent.runner.job_states import JobEvent, JobState, next_state
from headrace_agent.runner.protocol import Interrupt, KeptJob, Run, Started

#: Milliseconds after SIGKILL at which a job that has not ended gets another SIGKILL. A runner that is ending all jobs exits this time after
#: the last kill was due, even if a job has not ended.
KILL_TIMEOUT_MS = 10_000
#: Number of entries in the heap of deadlines, for each live job, above which the entries of ended jobs are dropped. Otherwise short jobs
#: with long time limits would fill the memory.
_MOST_DEADLINES_OF_A_JOB = 8


class LiveJob(msgspec.Struct):
    """A job that has not ended."""

    run: Run
    state: JobState = JobState.STARTING
    started: Started | None = None
    stop: Stop | None = None
    #: CLOCK_BOOTTIME in nanoseconds at which the job got its signal; 0: the job was not stopped. For a job that is still starting, this is
    #: the time at which the runner decided to stop it.
    stopped_ns: int = 0
    #: Milliseconds from `stopped_ns` to the first SIGKILL; None: the job was not killed.
    killed_after_ms: int | None = None
    #: CLOCK_BOOTTIME in nanoseconds at which the job is killed next; None: no kill is planned.
    deadline_ns: int | None = None
    #: CLOCK_BOOTTIME in nanoseconds at which the time limit of the job is reached; None: the job has no limit, has not started, or has
    #: reached its limit.
    limit_ns: int | None = None
    #: Jobs of the same allocation that are queued behind this job, in order.
    ahead: deque[Run] = msgspec.field(default_factory=deque)

    def kept(self, started: Started, now: Moment) -> KeptJob:
        """Return the entry for this job in the full report, where it counts as running."""
        if self.stop is None or self.deadline_ns is None:
            return KeptJob(self.run, started)
        left_ms = max(0, self.deadline_ns - now.steady_ns) // NS_PER_MS
        return KeptJob(self.run, started, Interrupt(self.run.job, left_ms, self.stop.reason, self.stop.note))


class JobInterruptions:
    """Interrupts the jobs of a runner. `live` is the runner's own table of live jobs."""

    def __init__(self, live: Mapping[JobKey, LiveJob]) -> None:
        self._live = live
        #: Heap of deadlines and time limits, each with its job. An entry counts only while its job still has this deadline or limit.
        self.awaited: list[tuple[int, JobKey]] = []

    def on_time(self, now: Moment) -> list[RunnerEffect]:
        """Interrupt the jobs whose time limit is reached, and kill the jobs whose deadline has come."""
        effects: list[RunnerEffect] = []
        while self.awaited and self.awaited[0][0] <= now.steady_ns:
            due_ns, key = heapq.heappop(self.awaited)
            late = self._live.get(key)
            if late is not None and late.limit_ns == due_ns:
                late.limit_ns = None
                effects += self.interrupt(key, late, time_limit_stop(late.run), now)
            if late is not None and late.deadline_ns == due_ns:
                effects += self._kill(key, late, now)
        return effects

    def interrupt(self, key: JobKey, job: LiveJob, stop: Stop, now: Moment) -> list[RunnerEffect]:
        """Stop a job. If it is being stopped already, the first reason stays, the earliest deadline applies, and the newest note is
        kept for a later agent.
        """
        job.stop = stop if job.stop is None else job.stop._replace(note=stop.note or job.stop.note)
        due_ns = now.steady_ns + stop.timeout_ms * NS_PER_MS
        effects: list[RunnerEffect] = []
        if job.state is JobState.STARTING and (job.deadline_ns is None or due_ns < job.deadline_ns):
            # A job that is still starting gets the signal once its program runs. If it is still starting at the deadline, it is killed.
            job.stopped_ns = job.stopped_ns or now.steady_ns
            self._set_deadline(key, job, due_ns)
        if job.state is JobState.RUNNING:
            job.state = next_state(job.state, JobEvent.INTERRUPT)
            job.stopped_ns = now.steady_ns
            effects += self._await(key, job, due_ns, now)
            effects.append(Signal(key, signal.Signals[job.run.interrupt_signal]))
        elif job.state is JobState.INTERRUPTED and job.deadline_ns is not None and due_ns < job.deadline_ns:
            effects += self._await(key, job, due_ns, now)
        is_asked = job.state in (JobState.STARTING, JobState.INTERRUPTED)
        if is_asked and job.deadline_ns is not None and job.deadline_ns <= now.steady_ns:
            effects += self._kill(key, job, now)
        return effects

    def _kill(self, key: JobKey, job: LiveJob, now: Moment) -> list[RunnerEffect]:
        if job.killed_after_ms is None:
            job.killed_after_ms = (now.steady_ns - job.stopped_ns) // NS_PER_MS
        job.state = next_state(job.state, JobEvent.DEADLINE)
        self._set_deadline(key, job, now.steady_ns + KILL_TIMEOUT_MS * NS_PER_MS)
        return [Signal(key, signal.SIGKILL)]

    def _await(self, key: JobKey, job: LiveJob, due_ns: int, now: Moment) -> list[RunnerEffect]:
        """Set the deadline of the kill. Write it to the job's deadline file, unless the deadline has come already."""
        self._set_deadline(key, job, due_ns)
        left_ms = (due_ns - now.steady_ns) // NS_PER_MS
        return [TellDeadline(job.run.deadline_file, now.wall_ms + left_ms)] if job.run.deadline_file and left_ms else []

    def _set_deadline(self, key: JobKey, job: LiveJob, due_ns: int) -> None:
        job.deadline_ns = due_ns
        self.add(key, due_ns)

    def add(self, key: JobKey, due_ns: int) -> None:
        """Add a deadline or a time limit of a live job to the awaited times."""
        heapq.heappush(self.awaited, (due_ns, key))
        if len(self.awaited) > _MOST_DEADLINES_OF_A_JOB * (1 + len(self._live)):
            self.awaited = [(at_ns, key) for at_ns, key in self.awaited if self._counts(at_ns, key)]
            heapq.heapify(self.awaited)

    def _counts(self, due_ns: int, key: JobKey) -> bool:
        job = self._live.get(key)
        return job is not None and due_ns in (job.deadline_ns, job.limit_ns)

    def interrupt_all(self, stop: Stop, now: Moment) -> list[RunnerEffect]:
        """Interrupt all live jobs."""
        return [effect for key, job in self._live.items() for effect in self.interrupt(key, job, stop, now)]

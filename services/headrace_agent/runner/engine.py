"""Which jobs the runner has, where each stands, and what must be done about it when.

Pure: every `on_...` takes what happened and the moment, and returns effects in the order in which they are to be performed.
Invariants (`check`): a job is either live or ended; an ended one stays until it is acknowledged; a kill that is due at one moment
never becomes due later; once everything is to end, nothing starts.
"""

from __future__ import annotations

import heapq
import signal
from typing import NamedTuple

import msgspec

from headrace.ids import AllocationId
from headrace.wire.heartbeat import JobEnd, JobKey, JobResult
from headrace_agent.runner.job_states import JobEvent, JobState, next_state
from headrace_agent.runner.protocol import EndAll, Ended, Interrupt, KeptJob, Lease, Picture, Run, Started, ToAgent

__all__ = [
    "About",
    "Drop",
    "Engine",
    "Exit",
    "JobExit",
    "Keep",
    "Launch",
    "Moment",
    "RunnerEffect",
    "Signal",
    "Tell",
]

NS_PER_MS = 1_000_000
#: Between SIGTERM and SIGKILL where nobody named a time: the lease passed, a log could not be written.
OWN_TIMEOUT_MS = 5_000
#: A process that is still there so long after SIGKILL gets another; when everything is to end, the runner goes without it.
KILL_PATIENCE_MS = 10_000
_REASON_CHARACTERS = 2_000


class Moment(NamedTuple):
    """One moment on two clocks: CLOCK_BOOTTIME, by which lengths of time are told, and Unix time for people."""

    boottime_ns: int
    unix_ms: int


class Launch(NamedTuple):
    """Start the job, then say `on_started` or `on_not_started`."""

    run: Run


class Signal(NamedTuple):
    """Send the signal to the job's process group."""

    job: JobKey
    number: int


class Keep(NamedTuple):
    """Write the end to a file; it precedes the telling."""

    end: JobEnd


class Drop(NamedTuple):
    """The job's file may go."""

    job: JobKey


class Tell(NamedTuple):
    """Send this to the agent, if one is there."""

    message: ToAgent


class Exit(NamedTuple):
    """Nothing runs and nothing will: the runner may go."""


RunnerEffect = Launch | Signal | Keep | Drop | Tell | Exit


class JobExit(msgspec.Struct, frozen=True):
    """What the host says about a main process that ended."""

    #: CLOCK_BOOTTIME at which it was found ended; 0: now.
    main_ended_ns: int = 0
    exit_code: int | None = None
    signal: int | None = None
    #: Why it failed whatever it returned (out of memory, a log that could not be written); empty: by its exit code alone.
    failure: str = ""
    stderr_tail: str = ""
    cpu_ms: int = 0
    max_rss_bytes: int = 0


class About(msgspec.Struct, frozen=True):
    """What the picture says of the runner itself."""

    isolation: str
    isolation_detail: str
    pid: int
    trouble: str = ""


class _Stop(NamedTuple):
    """Why we end a job, and as what its end then counts."""

    result: JobResult
    reason: str
    timeout_ms: int


class _Job:
    __slots__ = ("deadline_ns", "run", "started", "state", "stop", "stopped_ns")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.state = JobState.STARTING
        self.started: Started | None = None
        self.stop: _Stop | None = None
        #: CLOCK_BOOTTIME of the SIGTERM.
        self.stopped_ns = 0
        #: CLOCK_BOOTTIME of the (next) kill.
        self.deadline_ns: int | None = None


class Engine:
    """The table of jobs. `most_jobs` is how many may live at once, as far as file descriptors go."""

    def __init__(self, most_jobs: int = 100_000) -> None:
        self._most_jobs = most_jobs
        self._live: dict[JobKey, _Job] = {}
        self._ended: dict[JobKey, JobEnd] = {}
        #: Deadlines by time; an entry counts only while its job still has that deadline.
        self._deadlines: list[tuple[int, JobKey]] = []
        self._lease_ns: int | None = None
        self._lease_enforced = False
        self._end_all: _Stop | None = None
        self._leave_ns: int | None = None

    def on_recovered(self, ends: list[JobEnd]) -> list[RunnerEffect]:
        """Ends that a former runner kept, and jobs that were lost with it. Once, before anything else."""
        self._ended.update((end.key, end) for end in ends)
        return [Tell(Ended(end)) for end in ends]

    def on_hello(self, about: About) -> list[RunnerEffect]:
        """An agent is there: it gets the whole picture."""
        running = [KeptJob(job.run, job.started) for job in self._live.values() if job.started is not None]
        picture = Picture(
            running=running,
            ended=list(self._ended.values()),
            isolation=about.isolation,
            isolation_detail=about.isolation_detail,
            pid=about.pid,
            trouble=about.trouble,
        )
        return [Tell(picture)]

    def on_run(self, run: Run, now: Moment) -> list[RunnerEffect]:
        """Starts a job that is not known; of a known one the state is told again."""
        ended = self._ended.get(run.job)
        if ended is not None:
            return [Tell(Ended(ended))]
        known = self._live.get(run.job)
        if known is not None:
            return [Tell(known.started)] if known.started is not None else []
        refusal = self._refusal(now)
        if refusal is not None:
            return self._end(run, None, JobResult.ABORTED, JobExit(), refusal, now)
        if len(self._live) >= self._most_jobs:
            reason = f"not started: {len(self._live)} jobs run, more do not fit the limit of open files of this host's runner"
            return self._end(run, None, JobResult.FAILED, JobExit(), reason, now)
        self._live[run.job] = _Job(run)
        return [Launch(run)]

    def on_started(self, key: JobKey, pid: int, now: Moment) -> list[RunnerEffect]:
        job = self._live[key]
        job.state = next_state(job.state, JobEvent.STARTED)
        job.started = Started(key, pid, now.unix_ms, now.boottime_ns)
        effects: list[RunnerEffect] = [Tell(job.started)]
        if job.stop is not None:
            effects += self._stop(key, job, job.stop, now)
        return effects

    def on_not_started(self, key: JobKey, reason: str, exit_code: int | None, now: Moment) -> list[RunnerEffect]:
        """The job could not be started: it failed, with what a shell would return, if a shell would say anything."""
        job = self._live.pop(key)
        return self._end(job.run, None, JobResult.FAILED, JobExit(exit_code=exit_code), reason, now) + self._leave()

    def on_exited(self, key: JobKey, exit: JobExit, now: Moment) -> list[RunnerEffect]:
        """The job's main process ended and nothing of the job is left.

        After a signal of ours it counts as we meant it, whatever it returned: from outside, work done and mere obedience look alike.
        An end that came before the signal counts by itself, even where the rest of the job lived on until after it.
        """
        job = self._live.pop(key)
        main_ended_ns = exit.main_ended_ns or now.boottime_ns
        if job.stop is not None and job.stopped_ns < main_ended_ns:
            result, reason = job.stop.result, job.stop.reason
        elif exit.failure:
            result, reason = JobResult.FAILED, exit.failure
        elif exit.exit_code == 0:
            result, reason = JobResult.COMPLETED, ""
        else:
            name = _signal_name(exit.signal)
            result, reason = JobResult.FAILED, f"ended by {name}, which the runner did not send" if name else ""
        return self._end(job.run, job.started, result, exit, reason, now) + self._leave()

    def on_failure(self, key: JobKey, reason: str, now: Moment) -> list[RunnerEffect]:
        """Something without which the job cannot go on failed it: it is ended and has failed with this reason."""
        job = self._live.get(key)
        return self._stop(key, job, _Stop(JobResult.FAILED, reason, OWN_TIMEOUT_MS), now) if job is not None else []

    def on_interrupt(self, order: Interrupt, now: Moment) -> list[RunnerEffect]:
        """SIGTERM, and SIGKILL when the timeout has passed; ignored for a job that is not live."""
        job = self._live.get(order.job)
        if job is None:
            return []
        return self._stop(order.job, job, _Stop(JobResult.ABORTED, order.reason, order.timeout_ms), now)

    def on_end_all(self, order: EndAll, now: Moment) -> list[RunnerEffect]:
        """Interrupts all jobs; from now on none starts, and the runner exits after the last."""
        stop = _Stop(JobResult.ABORTED, order.reason, order.timeout_ms)
        if self._end_all is None:
            self._end_all = stop
        leave_ns = now.boottime_ns + (order.timeout_ms + KILL_PATIENCE_MS) * NS_PER_MS
        self._leave_ns = leave_ns if self._leave_ns is None else min(self._leave_ns, leave_ns)
        effects = [effect for key, job in list(self._live.items()) for effect in self._stop(key, job, stop, now)]
        return effects + self._leave()

    def on_lease(self, lease: Lease, now: Moment) -> list[RunnerEffect]:
        """Jobs may run until then; a lease that ends earlier than one before it changes nothing."""
        if self._lease_ns is None or lease.until_boottime_ns > self._lease_ns:
            self._lease_ns = lease.until_boottime_ns
            self._lease_enforced = False
        return self.on_time(now)

    def on_acknowledge(self, jobs: list[JobKey]) -> list[RunnerEffect]:
        return [Drop(key) for key in jobs if self._ended.pop(key, None) is not None]

    def on_time(self, now: Moment) -> list[RunnerEffect]:
        """Does what is due. To be called not later than `next_wake_ns`; earlier does no harm."""
        effects: list[RunnerEffect] = []
        if self._lease_ns is not None and not self._lease_enforced and now.boottime_ns >= self._lease_ns:
            self._lease_enforced = True
            stop = _Stop(
                JobResult.ABORTED, "the lease passed: no heartbeat of this node was answered in time", OWN_TIMEOUT_MS
            )
            for key, job in self._live.items():
                effects += self._stop(key, job, stop, now)
        while self._deadlines and self._deadlines[0][0] <= now.boottime_ns:
            due_ns, key = heapq.heappop(self._deadlines)
            late = self._live.get(key)
            if late is not None and late.deadline_ns == due_ns:
                effects += self._kill(key, late, now)
        if self._leave_ns is not None and now.boottime_ns >= self._leave_ns:
            effects.append(Exit())
        return effects

    def next_wake_ns(self) -> int | None:
        """CLOCK_BOOTTIME at which `on_time` has something to do; None: nothing is due."""
        due: list[int] = []
        while self._deadlines:
            due_ns, key = self._deadlines[0]
            job = self._live.get(key)
            if job is not None and job.deadline_ns == due_ns:
                due.append(due_ns)
                break
            heapq.heappop(self._deadlines)
        if self._lease_ns is not None and not self._lease_enforced and self._live:
            due.append(self._lease_ns)
        if self._leave_ns is not None:
            due.append(self._leave_ns)
        return min(due, default=None)

    def state(self, key: JobKey) -> JobState:
        if key in self._ended:
            return JobState.ENDED
        job = self._live.get(key)
        return job.state if job is not None else JobState.ABSENT

    def statistics(self) -> dict[str, int]:
        return {"live": len(self._live), "ended": len(self._ended), "deadlines": len(self._deadlines)}

    def check(self) -> None:
        """Raises AssertionError where an invariant of the module's docstring does not hold."""
        assert not self._live.keys() & self._ended.keys(), "a job is live and ended"
        for key, job in self._live.items():
            assert job.run.job == key, f"{key} holds {job.run.job}"
            assert job.state not in (JobState.ABSENT, JobState.ENDED), f"{key} is live and {job.state}"
            assert (job.started is None) == (job.state is JobState.STARTING), (
                f"{key}: {job.state}, started {job.started}"
            )
            dying = job.state in (JobState.INTERRUPTED, JobState.KILLED)
            assert dying == (job.deadline_ns is not None), f"{key}: {job.state}, deadline {job.deadline_ns}"
            assert not dying or (job.deadline_ns, key) in self._deadlines, f"{key}: its deadline is not awaited"
            assert self._end_all is None or job.stop is not None, f"{key} goes on though everything ends"

    def _refusal(self, now: Moment) -> str | None:
        if self._end_all is not None:
            return f"not started: the runner ends ({self._end_all.reason})"
        if self._lease_ns is not None and now.boottime_ns >= self._lease_ns:
            return "not started: the lease has passed"
        return None

    def _stop(self, key: JobKey, job: _Job, stop: _Stop, now: Moment) -> list[RunnerEffect]:
        """The first reason stays; of several deadlines the earliest holds."""
        job.stop = job.stop or stop
        due_ns = now.boottime_ns + stop.timeout_ms * NS_PER_MS
        effects: list[RunnerEffect] = []
        if job.state is JobState.STARTING:
            if stop.timeout_ms < job.stop.timeout_ms:
                job.stop = job.stop._replace(timeout_ms=stop.timeout_ms)
            return effects
        if job.state is JobState.RUNNING:
            job.state = next_state(job.state, JobEvent.INTERRUPT)
            job.stopped_ns = now.boottime_ns
            self._await(key, job, due_ns)
            effects.append(Signal(key, signal.SIGTERM))
        elif job.state is JobState.INTERRUPTED and job.deadline_ns is not None and due_ns < job.deadline_ns:
            self._await(key, job, due_ns)
        if job.state is JobState.INTERRUPTED and job.deadline_ns is not None and job.deadline_ns <= now.boottime_ns:
            effects += self._kill(key, job, now)
        return effects

    def _kill(self, key: JobKey, job: _Job, now: Moment) -> list[RunnerEffect]:
        job.state = next_state(job.state, JobEvent.DEADLINE)
        self._await(key, job, now.boottime_ns + KILL_PATIENCE_MS * NS_PER_MS)
        return [Signal(key, signal.SIGKILL)]

    def _await(self, key: JobKey, job: _Job, due_ns: int) -> None:
        job.deadline_ns = due_ns
        heapq.heappush(self._deadlines, (due_ns, key))

    def _end(
        self, run: Run, started: Started | None, result: JobResult, exit: JobExit, reason: str, now: Moment
    ) -> list[RunnerEffect]:
        # The wall clock may have been set while the job ran; how long it ran is told by the other one.
        started_at_ms = started.started_at_ms if started is not None else now.unix_ms
        ended_ns = exit.main_ended_ns or now.boottime_ns
        ran_ms = (ended_ns - started.started_boottime_ns) // NS_PER_MS if started is not None else 0
        end = JobEnd(
            operation=run.job.operation,
            index=run.job.index,
            attempt=run.job.attempt,
            allocation=AllocationId(run.allocation),
            result=result,
            exit_code=exit.exit_code,
            signal=exit.signal,
            reason=reason[:_REASON_CHARACTERS],
            stderr_tail=exit.stderr_tail if result is JobResult.FAILED else "",
            started_at_ms=started_at_ms,
            ended_at_ms=started_at_ms + max(0, ran_ms),
            cpu_ms=exit.cpu_ms,
            max_rss_bytes=exit.max_rss_bytes,
        )
        self._ended[run.job] = end
        return [Keep(end), Tell(Ended(end))]

    def _leave(self) -> list[RunnerEffect]:
        return [Exit()] if self._end_all is not None and not self._live else []


def _signal_name(number: int | None) -> str:
    if number is None:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""The runner's decisions: which jobs it has, in which state each job is, and what the runner does about each job and when.

Invariants (`check`):

* A job is either live or ended, and an ended job stays until it is acknowledged.
* The deadline of a kill never moves to a later time.
* If a running job has a time limit that is not reached yet, the time of the limit is among the awaited times.
* No job starts before a lease arrived, nor after the runner was ordered to end all jobs.
* No two live jobs have the same GPU device, whatever the agent orders.
* A queued job of an allocation starts only after a job of that allocation has ended by itself. Any other end drops the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from headrace.runtime.engine import NS_PER_MS, Check, Figure, Moment, Outcome, counter, gauge, run_checks
from headrace.wire.heartbeat import JobEnd, JobKey, JobResult, short_text
from headrace_agent.runner.effects import (
    About,
    Drop,
    EndRunner,
    JobExit,
    Keep,
    Launch,
    RunnerEffect,
    SendToAgent,
)
from headrace_agent.runner.job_ends import NOT_RUNNABLE, Stop, job_end, result_of, with_memory_judged
from headrace_agent.runner.job_interruptions import KILL_TIMEOUT_MS, JobInterruptions, LiveJob
from headrace_agent.runner.job_states import JobEvent, JobState, next_state
from headrace_agent.runner.protocol import (
    EndAll,
    Ended,
    FullReport,
    Interrupt,
    NodeLease,
    Recall,
    Recalled,
    Run,
    RunAhead,
    Started,
)

#: Milliseconds from the job's signal to SIGKILL if the runner itself stops a job, for example because the job's log cannot be written.
_OWN_TIMEOUT_MS = 5_000


class RunnerEngine:
    """The decisions about all jobs of a runner.

    `most_jobs` is the largest number of jobs that may be live at once. It follows from the number of files that the runner may open.
    """

    def __init__(self, most_jobs: int = 100_000) -> None:
        self._most_jobs = most_jobs
        self._live: dict[JobKey, LiveJob] = {}
        #: The newest live job of each allocation, by allocation id.
        self._newest: dict[str, LiveJob] = {}
        self._ended: dict[JobKey, JobEnd] = {}
        self._interruptions = JobInterruptions(self._live)
        #: The lease that ends last of all that agents have sent; None: no agent has sent a lease.
        self._lease: NodeLease | None = None
        self._lease_enforced = False
        self._end_all: Stop | None = None
        #: Number of times that the runner noticed the end of its lease so late that the jobs may already have run on other nodes.
        self._leases_seen_late = 0
        self._leave_ns: int | None = None

    def on_recovered(self, ends: list[JobEnd], now: Moment) -> Outcome[None, RunnerEffect]:
        """Record the ends that an earlier runner kept, and the ends of jobs that were lost when it was killed. Called once, before
        anything else.
        """
        self._ended.update((end.key, end) for end in ends)
        return Outcome(None, [SendToAgent(Ended(end)) for end in ends])

    def on_hello(self, about: About, now: Moment) -> Outcome[None, RunnerEffect]:
        """Send the full report to a new agent, and drop all jobs that the previous agent had queued."""
        for job in self._live.values():
            job.ahead.clear()
        # A starting job is in the full report too. Otherwise it would count as gone, and the allocator would give it to another node.
        running = [job.kept(job.started or _on_its_way(job.run, now), now) for job in self._live.values()]
        picture = FullReport(
            running=running,
            ended=list(self._ended.values()),
            isolation=about.isolation,
            isolation_detail=short_text(about.isolation_detail),
            pid=about.pid,
            trouble=short_text(about.trouble),
            runs_ahead=True,
            answers_pings=True,
            makes_folders=True,
            has_sessions=True,
            tells_starts_apart=True,
        )
        return Outcome(None, [SendToAgent(picture)])

    def on_run(self, run: Run, now: Moment) -> Outcome[None, RunnerEffect]:
        """Start a job that the runner does not know yet. For a job that the runner knows, send the state of the job again."""
        ended = self._ended.get(run.job)
        if ended is not None:
            return Outcome(None, [SendToAgent(Ended(ended))])
        known = self._live.get(run.job)
        if known is not None:
            return Outcome(None, [SendToAgent(known.started)] if known.started is not None else [])
        refusal = self._refusal(now)
        if refusal is not None:
            return Outcome(None, self._end(run, None, JobExit(), JobResult.ABORTED, refusal, now))
        reason = self._host_fault(run)
        if reason is not None:
            fault = Stop(JobResult.ABORTED, reason, 0, is_host_fault=True)
            return Outcome(None, self._end(run, None, JobExit(), JobResult.ABORTED, reason, now, fault))
        self._add(run, deque())
        if run.not_started_for:
            exit_code = None if run.is_host_fault else NOT_RUNNABLE
            return self.on_not_started(run.job, f"not started: {run.not_started_for}", exit_code, now)
        return Outcome(None, [Launch(run)])

    def on_run_ahead(self, order: RunAhead, now: Moment) -> Outcome[None, RunnerEffect]:
        """Queue a job behind the live job of its allocation. If the allocation has no live job, the order is dropped."""
        before = self._newest.get(order.run.allocation)
        if before is not None:
            before.ahead.append(order.run)
        return Outcome(None)

    def on_recall(self, order: Recall, now: Moment) -> Outcome[None, RunnerEffect]:
        """Drop the queued jobs of an allocation, and confirm that."""
        job = self._newest.get(order.allocation)
        if job is not None:
            job.ahead.clear()
        return Outcome(None, [SendToAgent(Recalled(order.allocation))])

    def on_started(self, key: JobKey, pid: int, now: Moment) -> Outcome[None, RunnerEffect]:
        """Record that the process of a job runs since `now`. If the job was ordered to stop while it was starting, it is stopped now."""
        job = self._live[key]
        job.state = next_state(job.state, JobEvent.STARTED)
        job.started = Started(key, pid, now.wall_ms, now.steady_ns, job.run.account)
        stopping: list[RunnerEffect] = []
        if job.stop is not None and job.deadline_ns is not None:
            # A kill that was sent before the program ran may have reached no process, so it is repeated at once.
            was_killed = job.killed_after_ms is not None
            left_ms = 0 if was_killed else max(0, job.deadline_ns - now.steady_ns) // NS_PER_MS
            stopping = self._interruptions.interrupt(key, job, job.stop._replace(timeout_ms=left_ms), now)
        if job.run.time_limit_ms is not None:
            job.limit_ns = now.steady_ns + job.run.time_limit_ms * NS_PER_MS
            self._interruptions.add(key, job.limit_ns)
        return Outcome(None, [SendToAgent(job.started), *stopping])

    def on_not_started(
        self, key: JobKey, reason: str, exit_code: int | None, now: Moment
    ) -> Outcome[None, RunnerEffect]:
        """Record that a job could not be started.

        With an exit code the job counts as failed, like a command that a shell cannot run. Without an exit code the host is at
        fault, and the job counts as aborted. If the job was already ordered to stop, it ends with the result and the reason of that
        order.
        """
        job, exit = self._remove(key), JobExit(exit_code=exit_code)
        if job.stop is not None:
            effects = self._end(job.run, None, JobExit(), job.stop.result, job.stop.reason, now, job.stop)
            return Outcome(None, effects + self._leave())
        fault = None if exit_code is not None else Stop(JobResult.ABORTED, reason, 0, is_host_fault=True)
        result = JobResult.FAILED if fault is None else JobResult.ABORTED
        effects = self._end(job.run, None, exit, result, reason, now, fault)
        return Outcome(None, effects + self._leave())

    def on_exited(self, key: JobKey, exit: JobExit, now: Moment) -> Outcome[None, RunnerEffect]:
        """Record that a job's main process ended and no process of the job is left. If the job ended by itself, its next queued job starts.

        A main process that ended before the runner's signal counts as ended by itself, even if other processes of the job lived
        longer.
        """
        job = self._remove(key)
        is_after_signal = job.stopped_ns < (exit.main_ended_ns or now.steady_ns)
        stop = job.stop if is_after_signal else None
        exit = with_memory_judged(job.run, exit)
        result, reason = result_of(
            exit,
            stop,
            interruptible=job.run.interruptible,
            killed_after_ms=job.killed_after_ms,
        )
        following = self._go_on(job, now)
        effects = self._end(job.run, job.started, exit, result, reason, now, stop, following)
        return Outcome(None, effects + ([Launch(following)] if following is not None else self._leave()))

    def on_failure(self, key: JobKey, reason: str, now: Moment) -> Outcome[None, RunnerEffect]:
        """End a job that cannot continue, for example because its log cannot be written. The job counts as failed, with this reason."""
        stop = Stop(JobResult.FAILED, reason, _OWN_TIMEOUT_MS)
        return Outcome(None, self._stop_live(key, stop, now))

    def on_not_confined(self, key: JobKey, reason: str, now: Moment) -> Outcome[None, RunnerEffect]:
        """End a job whose limits the host could not set. This end does not count as a failure of the operation."""
        stop = Stop(JobResult.ABORTED, reason, _OWN_TIMEOUT_MS, is_host_fault=True)
        return Outcome(None, self._stop_live(key, stop, now))

    def on_interrupt(self, order: Interrupt, now: Moment) -> Outcome[None, RunnerEffect]:
        """Send a job its interruption signal, and SIGKILL after the timeout. If the job is not live, the order is ignored."""
        stop = Stop(JobResult.ABORTED, order.reason, order.timeout_ms, order.note)
        return Outcome(None, self._stop_live(order.job, stop, now))

    def on_end_all(self, order: EndAll, now: Moment) -> Outcome[None, RunnerEffect]:
        """Interrupt all jobs. From now on no job starts, and the runner exits after the last job has ended."""
        stop = Stop(JobResult.ABORTED, order.reason, order.timeout_ms)
        if self._end_all is None:
            self._end_all = stop
        leave_ns = now.steady_ns + (order.timeout_ms + KILL_TIMEOUT_MS) * NS_PER_MS
        self._leave_ns = leave_ns if self._leave_ns is None else min(self._leave_ns, leave_ns)
        return Outcome(None, self._interruptions.interrupt_all(stop, now) + self._leave())

    def on_left(self, key: JobKey, now: Moment) -> Outcome[None, RunnerEffect]:
        """Stop a job because no person is connected to its terminal any more.

        The job counts as failed, so that it is not started again without a person.
        """
        job = self._live.get(key)
        if job is None:
            return Outcome(None)
        stop = Stop(
            JobResult.FAILED, "no person is connected to its terminal any more", job.run.interruption_timeout_ms
        )
        return Outcome(None, self._interruptions.interrupt(key, job, stop, now))

    def on_lease(self, lease: NodeLease, now: Moment) -> Outcome[None, RunnerEffect]:
        """Extend the lease. A lease that ends earlier than the present lease changes nothing."""
        effects: list[RunnerEffect] = []
        known = self._lease
        if known is None or lease.until_boottime_ns > known.until_boottime_ns:
            if known is not None and not self._lease_enforced and lease.since_boottime_ns > known.until_boottime_ns:
                # The runner was frozen together with its agent. The new lease arrived before the runner noticed that the old
                # lease had expired, but the jobs may run elsewhere by now.
                effects = self._enforce_lease(known, now)
            self._lease = lease
            self._lease_enforced = False
        return Outcome(None, [*effects, *self.on_time(now).effects])

    def on_acknowledge(self, jobs: list[JobKey], now: Moment) -> Outcome[None, RunnerEffect]:
        """Drop the kept ends of these jobs, which the agent acknowledged because admission has recorded them."""
        return Outcome(None, [Drop(key) for key in jobs if self._ended.pop(key, None) is not None])

    def on_time(self, now: Moment) -> Outcome[None, RunnerEffect]:
        """Do what is due now: time limits and deadlines of jobs, and the end of the lease.

        The shell calls this method not later than `next_wake_ns`. An early call does no harm.
        """
        effects: list[RunnerEffect] = []
        lease = self._lease
        if lease is not None and not self._lease_enforced and now.steady_ns >= lease.until_boottime_ns:
            self._lease_enforced = True
            effects += self._enforce_lease(lease, now)
        effects += self._interruptions.on_time(now)
        if self._leave_ns is not None and now.steady_ns >= self._leave_ns:
            effects.append(EndRunner())
        return Outcome(None, effects)

    def next_wake_ns(self) -> int | None:
        """Return the CLOCK_BOOTTIME in nanoseconds at which `on_time` may have something to do, or None."""
        due = [due_ns for due_ns, _ in self._interruptions.awaited[:1]]
        if self._lease is not None and not self._lease_enforced and self._live:
            due.append(self._lease.until_boottime_ns)
        if self._leave_ns is not None:
            due.append(self._leave_ns)
        return min(due, default=None)

    def figures(self) -> list[Figure]:
        """Return the metrics of live jobs, unacknowledged ends, late leases and deadlines."""
        return [
            gauge("live_jobs", "jobs", len(self._live), "Jobs with running processes."),
            gauge("unacknowledged_ends", "ends", len(self._ended), "Ends of jobs that the agent has not acknowledged."),
            counter(
                "leases_seen_late",
                "times",
                self._leases_seen_late,
                "Times that jobs ran beyond the end of the lease because the runner was stopped.",
            ),
            gauge(
                "deadlines",
                "deadlines",
                len(self._interruptions.awaited),
                "Time limits and kills of jobs that are awaited, with those of jobs that ended before.",
            ),
        ]

    def checks(self) -> Iterator[Check]:
        """Yield the check of the table of jobs."""
        yield self._check_jobs

    def check(self) -> list[str]:
        """Return a description of each broken invariant; empty if all hold."""
        return run_checks(self.checks())

    def _check_jobs(self) -> list[str]:
        broken = [f"{key} is recorded as live and as ended" for key in self._live.keys() & self._ended.keys()]
        if self._live and self._lease is None:
            broken.append("jobs are live without a lease")
        gpus = [name for job in self._live.values() for name in job.run.gpus]
        if len(gpus) > len(set(gpus)):
            broken.append(f"a GPU device is held twice: {sorted(gpus)}")
        awaited = set(self._interruptions.awaited)
        for key, job in self._live.items():
            dying = job.stop is not None
            rules = (
                (job.run.job == key, "it is listed under another key"),
                (job.state not in (JobState.ABSENT, JobState.ENDED), "it is listed as live, but has ended"),
                (
                    (job.started is None) == (job.state is JobState.STARTING),
                    "it is starting with a process, or runs without a process",
                ),
                (
                    dying == (job.deadline_ns is not None),
                    "it is dying without a deadline, or has a deadline and is not dying",
                ),
                (not dying or (job.deadline_ns, key) in awaited, "its deadline is not awaited"),
                (job.limit_ns is None or (job.limit_ns, key) in awaited, "its time limit is not awaited"),
                (self._end_all is None or job.stop is not None, "it keeps running, although all jobs must end"),
                (
                    not job.ahead or self._newest.get(job.run.allocation) is job,
                    "jobs are queued behind a job that is not the newest of its allocation",
                ),
            )
            broken += [f"{key} ({job.state}): {words}" for is_kept, words in rules if not is_kept]
        return broken

    def _add(self, run: Run, ahead: deque[Run]) -> None:
        self._live[run.job] = self._newest[run.allocation] = LiveJob(run, ahead=ahead)

    def _remove(self, key: JobKey) -> LiveJob:
        job = self._live.pop(key)
        if self._newest.get(job.run.allocation) is job:
            del self._newest[job.run.allocation]
        return job

    def _go_on(self, job: LiveJob, now: Moment) -> Run | None:
        """Return the run that was queued behind a run that has ended, or None if no run may start. The returned run counts as live
        from now on.
        """
        if not job.ahead or job.stop is not None or self._refusal(now) or self._host_fault(job.ahead[0]):
            return None
        run = job.ahead.popleft()
        is_known = run.job == job.run.job or run.job in self._live or run.job in self._ended
        if is_known or run.not_started_for:
            return None
        self._add(run, job.ahead)
        return run

    def _host_fault(self, run: Run) -> str | None:
        """Return why the host cannot run the job beside the live jobs, or None."""
        if len(self._live) >= self._most_jobs:
            return f"not started: {len(self._live)} jobs run, and the limit of open files of this host's runner allows no more"
        for other in self._live.values() if run.gpus else ():
            for gpu in run.gpus:
                if gpu in other.run.gpus:
                    job = other.run.job
                    return f"not started: job {job.index} of operation {job.operation} still has GPU device {gpu}"
        return None

    def _refusal(self, now: Moment) -> str | None:
        if self._end_all is not None:
            return f"not started: the runner is ending ({self._end_all.reason})"
        if self._lease is None:
            return "not started: the runner has no lease yet"
        if now.steady_ns >= self._lease.until_boottime_ns:
            return "not started: the lease of the node is over"
        return None

    def _enforce_lease(self, lease: NodeLease, now: Moment) -> list[RunnerEffect]:
        """Interrupt all jobs. The time until they are killed is counted from the end of the lease, even if the runner notices that end
        late.
        """
        left_ms = lease.timeout_ms - (now.steady_ns - lease.until_boottime_ns) // NS_PER_MS
        reason = "the lease of the node ended: no heartbeat of the node was answered in time"
        late_ms = (now.steady_ns - lease.until_boottime_ns) // NS_PER_MS
        if self._live and late_ms > 2 * lease.timeout_ms:
            self._leases_seen_late += 1
            reason += f"; the runner was stopped and noticed it {late_ms / 1000:.0f} s late, so the job may have run elsewhere too"
        return self._interruptions.interrupt_all(Stop(JobResult.ABORTED, reason, max(0, left_ms)), now)

    def _stop_live(self, key: JobKey, stop: Stop, now: Moment) -> list[RunnerEffect]:
        job = self._live.get(key)
        return self._interruptions.interrupt(key, job, stop, now) if job is not None else []

    def _end(
        self,
        run: Run,
        started: Started | None,
        exit: JobExit,
        result: JobResult,
        reason: str,
        now: Moment,
        stop: Stop | None = None,
        following: Run | None = None,
    ) -> list[RunnerEffect]:
        end = job_end(run, started, exit, result, reason, now, stop)
        self._ended[run.job] = end
        is_host_fault = stop is not None and stop.is_host_fault
        return [Keep(end), SendToAgent(Ended(end, is_host_fault, following.job if following is not None else None))]

    def _leave(self) -> list[RunnerEffect]:
        return [EndRunner()] if self._end_all is not None and not self._live else []


def _on_its_way(run: Run, now: Moment) -> Started:
    """Return a report of the start of a job whose process does not run its program yet: without a pid, and with the present time."""
    return Started(run.job, 0, now.wall_ms, now.steady_ns, run.account)

"""The end of a job: the result that it counts as, and the record that is sent to the agent."""

from __future__ import annotations

import signal
from typing import Final, NamedTuple

import msgspec

from headrace.durations import exact_duration
from headrace.ids import AllocationId
from headrace.resources import format_amount
from headrace.runtime.engine import NS_PER_MS, Moment
from headrace.wire.heartbeat import EXIT_SAVED, JobEnd, JobResult, short_text
from headrace.wire.preemption import read_record
from headrace_agent.runner.effects import JobExit
from headrace_agent.runner.protocol import Run, Started

#: Exit code of a shell for a command that cannot be run.
NOT_RUNNABLE: Final = 126


#: Results of a stop that the exit code of an interruptible job can change: the exit code may say that the job was completed, or that it
#: saved its state.
_INTERRUPTIONS: Final = (JobResult.ABORTED, JobResult.TIMED_OUT)


class Stop(NamedTuple):
    """A decision of the runner to end a job: the reason, and the result that the job's end then counts as."""

    result: JobResult
    reason: str
    timeout_ms: int
    #: The agent's own note about the interruption, with the record of a preemption.
    note: bytes = b""
    #: True if the host could not start or confine the job, so that the end does not count as a failure of the operation.
    is_host_fault: bool = False


def time_limit_stop(run: Run) -> Stop:
    """Return the stop of a job whose time limit is reached."""
    reason = f"time limit of {exact_duration(run.time_limit_ms or 0)} reached"
    return Stop(JobResult.TIMED_OUT, reason, run.interruption_timeout_ms)


def out_of_memory_words(run: Run) -> str:
    """Return the reason for the end of a job that ran out of memory."""
    return f"out of memory: limit {format_amount('memory', run.memory_bytes)}"


def with_memory_judged(run: Run, exit: JobExit) -> JobExit:
    """Return the exit of a job, marked as out of memory if a lack of memory probably caused the kill.

    Only jobs that ran without a cgroup are judged here: for a job in a cgroup, the kernel counts the processes that it killed for lack of
    memory. A lack of memory is the probable cause if the job was killed and its memory had reached its limit. Without a cgroup the kernel
    kills processes only when the whole host is out of memory. Whatever the cause was, such a job needs more memory than it asked for.
    """
    is_killed = exit.signal == signal.SIGKILL and not exit.from_cgroup
    if not is_killed or exit.failure or not 0 < run.memory_bytes <= exit.max_rss_bytes:
        return exit
    return msgspec.structs.replace(exit, failure=out_of_memory_words(run), out_of_memory=True)


def result_of(
    exit: JobExit, stop: Stop | None, *, interruptible: bool = False, killed_after_ms: int | None = None
) -> tuple[JobResult, str]:
    """Return the result that the end of a job counts as, and the reason. `stop` is given if the runner's signal came before the end.

    After a signal of the runner the result is the result of the stop, because the runner cannot see whether the job was completed or only
    obeyed the signal. The exit code of an interruptible job shows this, so such an exit code may change the result.
    """
    if stop is not None:
        if interruptible and stop.result in _INTERRUPTIONS:
            if exit.exit_code == 0 and not exit.failure:
                return JobResult.COMPLETED, ""
            if exit.exit_code == EXIT_SAVED:
                return JobResult.ABORTED, f"state saved for a retry; {stop.reason}"
        if killed_after_ms is not None and exit.signal == signal.SIGKILL:
            return stop.result, f"{stop.reason}; killed, {killed_after_ms / 1000:.3g} s after the request to end"
        return stop.result, stop.reason
    if exit.failure:
        return JobResult.FAILED, exit.failure
    if exit.exit_code == 0:
        return JobResult.COMPLETED, ""
    name = _signal_name(exit.signal)
    return JobResult.FAILED, f"ended by {name}, which the runner did not send" if name else ""


def job_end(
    run: Run,
    started: Started | None,
    exit: JobExit,
    result: JobResult,
    reason: str,
    now: Moment,
    stop: Stop | None = None,
) -> JobEnd:
    """Return the record of the end of a job. If it is not known when the main process ended, `now` counts as the time of the end."""
    # The wall clock may have been set while the job ran, so the run time is measured with the steady clock.
    started_at_ms = started.started_at_ms if started is not None else now.wall_ms
    ended_ns = exit.main_ended_ns or now.steady_ns
    ran_ms = (ended_ns - started.started_boottime_ns) // NS_PER_MS if started is not None else 0
    return JobEnd(
        operation=run.job.operation,
        index=run.job.index,
        attempt=run.job.attempt,
        allocation=AllocationId(run.allocation),
        result=result,
        exit_code=exit.exit_code,
        signal=exit.signal,
        reason=short_text(reason or _failed_container(run, exit, result)),
        stderr_tail=exit.stderr_tail if result in (JobResult.FAILED, JobResult.TIMED_OUT) else "",
        started_at_ms=started_at_ms,
        ended_at_ms=started_at_ms + max(0, ran_ms),
        cpu_ms=exit.cpu_ms,
        max_rss_bytes=exit.max_rss_bytes,
        preemption=None if stop is None else read_record(stop.note),
        account=run.account,
        start=run.start,
        from_cgroup=exit.from_cgroup,
        not_started=started is None and result is JobResult.FAILED,
        out_of_memory=exit.out_of_memory and result is JobResult.FAILED,
    )


def _failed_container(run: Run, exit: JobExit, result: JobResult) -> str:
    """Return the reason of the end if the job failed because its container probably could not be started; else an empty string."""
    container = run.container
    if container is None or result is not JobResult.FAILED or exit.exit_code != container.failed_code:
        return ""
    # The reason leaves out the image: everybody can see the reason of an end, but only some people may see the name of the image.
    return f"the container could not be started (exit code {exit.exit_code}); stderr has the cause"


def _signal_name(number: int | None) -> str:
    if number is None:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""The effects that the runner's engine returns for its shell to carry out, and facts that the shell gives the engine. Data only."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headrace.wire.heartbeat import JobEnd, JobKey
from headrace_agent.runner.protocol import Run, ToAgent


class Launch(NamedTuple):
    """Start the job, then call `on_started` if its program runs, or `on_not_started` if it cannot run."""

    run: Run


class Signal(NamedTuple):
    """Send the signal to the job's process group."""

    job: JobKey
    number: int


class TellDeadline(NamedTuple):
    """Write the time of the coming kill of the job into the file `path`, as seconds of Unix time."""

    path: str
    at_ms: int


class Keep(NamedTuple):
    """Write the end to a file, before it is sent to the agent."""

    end: JobEnd


class Drop(NamedTuple):
    """Release the file of a job whose end the agent has acknowledged."""

    job: JobKey


class SendToAgent(NamedTuple):
    """Send this message to the agent, if one is connected."""

    message: ToAgent


class EndRunner(NamedTuple):
    """End the runner, because it was ordered to end all jobs, and all jobs have ended or the time for their end is over."""


RunnerEffect = Launch | Signal | TellDeadline | Keep | Drop | SendToAgent | EndRunner


class JobExit(msgspec.Struct, frozen=True):
    """The end of a job's main process: facts that the shell got from the host."""

    #: CLOCK_BOOTTIME in nanoseconds at which the end was noticed; 0: not known, and the present time counts.
    main_ended_ns: int = 0
    exit_code: int | None = None
    signal: int | None = None
    #: Reason why the job failed, whatever its exit code is (out of memory, a log that could not be written); empty: the exit code decides.
    failure: str = ""
    stderr_tail: str = ""
    cpu_ms: int = 0
    max_rss_bytes: int = 0
    #: True if CPU time and peak memory were read from the job's cgroup.
    from_cgroup: bool = False
    #: True if the kernel killed a process of the job because the memory of its cgroup was at its limit.
    out_of_memory: bool = False


class About(msgspec.Struct, frozen=True):
    """Facts about the runner itself, which its full report contains."""

    isolation: str
    isolation_detail: str
    pid: int
    trouble: str = ""

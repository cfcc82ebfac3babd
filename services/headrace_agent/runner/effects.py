"""Effects that the runner's engine asks of its shell, and what the shell tells it of the host. Data only."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headrace.wire.heartbeat import JobEnd, JobKey
from headrace_agent.runner.protocol import Run, ToAgent


class Launch(NamedTuple):
    """Start the job, then say `on_started` or `on_not_started`."""

    run: Run


class Signal(NamedTuple):
    """Send the signal to the job's process group."""

    job: JobKey
    number: int


class TellDeadline(NamedTuple):
    """Write into the file when its job is killed, in Unix time."""

    path: str
    at_ms: int


class Keep(NamedTuple):
    """Write the end to a file, before it is told."""

    end: JobEnd


class Drop(NamedTuple):
    """The job's file may go."""

    job: JobKey


class Tell(NamedTuple):
    """Send this to the agent, if one is there."""

    message: ToAgent


class EndRunner(NamedTuple):
    """Let the runner go: nothing runs, and nothing will."""


RunnerEffect = Launch | Signal | TellDeadline | Keep | Drop | Tell | EndRunner


class JobExit(msgspec.Struct, frozen=True):
    """The host's account of a main process that ended."""

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
    """Facts about the runner itself that stand in its picture."""

    isolation: str
    isolation_detail: str
    pid: int
    trouble: str = ""

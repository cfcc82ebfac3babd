"""Effects that the agent's engine asks of its shell, and what the shell tells it besides messages. Data only."""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from headrace.ids import Incarnation, NodeName, TreeName
from headrace.resources import Resources
from headrace.wire.heartbeat import Heartbeat, JobEnd
from headrace_agent.allocations.allocation import Allocation
from headrace_agent.files.operation_files import FetchFiles, RemoveFiles
from headrace_agent.host.accounts import Accounts
from headrace_agent.runner.protocol import ToRunner


class Identity(msgspec.Struct, frozen=True):
    """Facts about one life of an agent that do not change."""

    node: NodeName
    tree: TreeName
    incarnation: Incarnation
    #: What the host offers.
    total: Resources
    #: The scrubbed environment on which that of every job is built.
    environment: dict[str, str]
    #: At a stop: from the interruption of the jobs to their kill, unless their own timeout is shorter.
    stop_timeout_ms: int
    #: The machine of this agent, as people tell it from others.
    machine: str = ""
    accounts: Accounts = Accounts()
    #: Holds a folder of files for each operation that has some.
    files_folder: str = ""
    #: Where jobs tell how far they are, and learn when they are killed; empty: nowhere.
    exchange_folder: str = ""
    #: The most that is kept of one stream of one job, whatever its operation says. The runner reads no larger figures.
    largest_log_cap_bytes: int = 2**60


class Trouble(enum.StrEnum):
    """Reasons for which jobs cannot start, as the shell sees them."""

    #: The runner is not connected; what runs there is as it was, or not known yet.
    RUNNER_AWAY = "runner_away"
    #: No runner could be started, and there is none: nothing can be running.
    NO_RUNNER = "no_runner"
    #: Logs cannot be written, or what the runner keeps of jobs.
    LOGS = "logs"
    #: The host could not start a job a while ago.
    HOST_FAULT = "host_fault"


class Beat(msgspec.Struct, frozen=True):
    """Send this heartbeat, then say `on_orders` or `on_heartbeat_lost`."""

    heartbeat: Heartbeat


class Tell(msgspec.Struct, frozen=True):
    """Send this to the runner, if it is connected. Its next picture makes up for what it misses."""

    message: ToRunner


class Enrol(msgspec.Struct, frozen=True):
    """Enrol, after a pause, until it succeeded. Then say `on_enrolled`."""

    after_ms: int


class Reconnect(msgspec.Struct, frozen=True):
    """The runner has something that the books do not know: connect anew for its picture."""


class Leave(msgspec.Struct, frozen=True):
    """The agent may end, after all that was told before has gone out. `with_runner`: the runner was told to end, too."""

    with_runner: bool


class LogRecord(msgspec.Struct, frozen=True):
    """A line for the log."""

    level: Literal["debug", "info", "warning"]
    event: str
    fields: dict[str, str | int]


AgentEffect = Beat | Tell | Enrol | Reconnect | Leave | LogRecord | FetchFiles | RemoveFiles


def line_about(level: Literal["debug", "info"], event: str, allocation: Allocation, **more: str | int) -> LogRecord:
    """A line with the fields by which an allocation and its job can be followed through all logs."""
    fields: dict[str, str | int] = {"operation": allocation.operation, "allocation": allocation.id}
    if allocation.job is not None:
        fields["index"] = allocation.job.key.index
        fields["attempt"] = allocation.job.key.attempt
    return LogRecord(level, event, {**fields, **more})


def line_about_end(end: JobEnd) -> LogRecord:
    """A line about the end of a job."""
    fields: dict[str, str | int] = {
        "operation": end.operation,
        "allocation": end.allocation,
        "index": end.index,
        "attempt": end.attempt,
        "result": end.result.value,
        "reason": end.reason,
    }
    if end.exit_code is not None:
        fields["exit_code"] = end.exit_code
    return LogRecord("debug", "job ended", fields)

"""The effects that the agent's engine returns for its shell to carry out, and the facts that the shell gives the engine. Data only."""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from headrace.ids import Incarnation, NodeName, TreeName
from headrace.resources import Resources
from headrace.wire.heartbeat import Heartbeat, JobEnd
from headrace_agent.allocations.allocation import Allocation
from headrace_agent.container_command import ContainerRuntime
from headrace_agent.files.operation_files import FetchFiles, RemoveFiles
from headrace_agent.host.account_mapping import AccountMapping
from headrace_agent.host.gpus import HostGpus
from headrace_agent.runner.protocol import ToRunner


class Identity(msgspec.Struct, frozen=True):
    """Facts about one agent process that do not change while it lives."""

    node: NodeName
    tree: TreeName
    incarnation: Incarnation
    #: The resources that the host offers.
    total: Resources
    #: The harmless variables of the host, which every job gets besides its own variables.
    environment: dict[str, str]
    #: Milliseconds from the interruption of the jobs to their kill when the agent stops. The interruption timeout of a job's operation
    #: applies if it is shorter.
    stop_timeout_ms: int
    #: Name of the agent's machine; tells apart two agents on different machines that use the same node name.
    machine: str = ""
    accounts: AccountMapping = AccountMapping()
    #: Folder that holds one folder of files for each operation that has files.
    files_folder: str = ""
    #: Folder for the progress files that jobs write and the deadline files that the runner writes; empty: none.
    exchange_folder: str = ""
    #: Upper bound in bytes of the log of one output stream of one job, even if the job's operation asks for more. The runner accepts no
    #: larger number.
    largest_log_cap_bytes: int = 2**60
    gpus: HostGpus = HostGpus()
    #: The container runtime, which runs jobs in images; None: the host has no usable runtime.
    containers: ContainerRuntime | None = None
    #: True if jobs without an account run as root.
    is_root: bool = False
    #: Milliseconds without a turn (a request of the person) after which the runner ends a session.
    session_grace_ms: int = 60_000


class Trouble(enum.StrEnum):
    """The kinds of problems that keep jobs from starting, as the shell reports them."""

    #: The runner is not connected. The agent knows the runner's jobs only from the runner's last report, or not at all.
    RUNNER_AWAY = "runner_away"
    #: There is no runner, and none could be started. So no job can be running.
    NO_RUNNER = "no_runner"
    #: The logs or the runner's job files cannot be written.
    LOGS = "logs"
    #: The host recently failed to start a job.
    HOST_FAULT = "host_fault"
    #: The health command failed, or its first run has not ended yet.
    HEALTH = "health"


class Beat(msgspec.Struct, frozen=True):
    """Send this heartbeat, then call `on_orders` with its answer, or `on_heartbeat_lost` if no answer arrives."""

    heartbeat: Heartbeat


class SendToRunner(msgspec.Struct, frozen=True):
    """Send this message to the runner if it is connected.

    If the runner is not connected, the message is dropped. The runner's next full report makes up for the lost message.
    """

    message: ToRunner


class EnrolNode(msgspec.Struct, frozen=True):
    """Wait `after_ms`, then ask admission to enrol the node, again and again until it succeeds. Then call `on_enrolled`."""

    after_ms: int


class Reconnect(msgspec.Struct, frozen=True):
    """Connect to the runner again, because it reported a job that the agent does not know. The runner sends a full report to each new
    connection.
    """


class Leave(msgspec.Struct, frozen=True):
    """End the agent after all messages have been sent. `with_runner` is True if the runner was ordered to end too."""

    with_runner: bool


class LogRecord(msgspec.Struct, frozen=True):
    """A line for the log."""

    level: Literal["debug", "info", "warning"]
    event: str
    fields: dict[str, str | int]


AgentEffect = Beat | SendToRunner | EnrolNode | Reconnect | Leave | LogRecord | FetchFiles | RemoveFiles


def line_about(level: Literal["debug", "info"], event: str, allocation: Allocation, **more: str | int) -> LogRecord:
    """Return a log line with the fields by which an allocation and its job can be followed through the logs of all services."""
    fields: dict[str, str | int] = {"operation": allocation.operation, "allocation": allocation.id}
    if allocation.job is not None:
        fields["index"] = allocation.job.key.index
        fields["attempt"] = allocation.job.key.attempt
    return LogRecord(level, event, {**fields, **more})


def line_about_end(end: JobEnd) -> LogRecord:
    """Return a log line about the end of a job."""
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

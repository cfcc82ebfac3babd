"""The messages between an agent and the runner of its host, over a unix socket.

A frame is a 4-byte big-endian length and a message in msgpack. One agent is connected at a time, and the connection of a second agent
replaces the connection of the first. The runner outlives the agent. It answers `Hello` with a full report (`FullReport`), from which a
restarted agent learns what runs. An ended job is reported and kept in a file until it is acknowledged, so its end is known even after a
restart of the runner.

`Hello` is the first frame of a connection. A new connection replaces the earlier one only when `Hello` has arrived on it, and until then
the runner sends nothing on it. If a frame is too large, unreadable, or comes before `Hello`, the connection is closed and the frame has no
other effect. The exception is an unreadable frame that still shows which run it is about: that run ends with the reason, and the connection
stays open (`unreadable_messages`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.wire.heartbeat import AccountName, JobEnd, JobKey, UnixMillis
from headrace.wire.preemption import InterruptSignal
from headrace.wire.sessions import SessionTurn
from headrace.wire.start_stages import StartRecord
from headrace_agent.runner.files.start_folder import folder_of_start

#: Upper bound in bytes of one frame to the runner; a longer frame closes the connection.
LARGEST_REQUEST_BYTES = 4 * 1024 * 1024
#: Upper bound in bytes of one frame to the agent. A full report is always one frame: if it were split, a job that is missing in the first
#: part would count as gone.
LARGEST_ANSWER_BYTES = 1024 * 1024 * 1024
#: Name that stands in place of an account if the person has no account on this host. No real account has such a name.
NO_ACCOUNT = "(none)"
#: Variable of every process of a job: `HEADRACE_JOB=<operation>.<index>.<attempt>`.
MARKER = "HEADRACE_JOB"
#: Variable of every process of a job: the state folder of its runner. It tells apart jobs of two clusters on one host, which may have the
#: same name, because users choose the names of operations.
RUNNER_MARKER = "HEADRACE_RUNNER"
#: Prefix of the second copy of both markers, for the helper that Podman leaves beside a container (conmon). Podman passes hardly any
#: variables to the helper except those of the locale, which have this prefix.
HELPER_PREFIX = "LC_"

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class RunContainer(msgspec.Struct, frozen=True):
    """Facts about the container that a job's command starts."""

    #: Exit code by which the container runtime says that it could not start the container.
    failed_code: int
    #: Prefixes of copies of the job's markers in the environment (such as `LC_HEADRACE_JOB`). The copies are for processes that inherit
    #: only variables with these prefixes.
    marker_prefixes: tuple[str, ...] = ()


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Start this job. If the runner knows the job already (running or ended), it starts nothing and sends the state of the job again."""

    job: JobKey
    allocation: str
    argv: list[str]
    #: The whole environment. The runner adds only `HEADRACE_JOB=<operation>.<index>.<attempt>` and `HEADRACE_RUNNER=<state folder>`, by
    #: which it finds the job's processes, and the variables of the job's account.
    environment: dict[str, str]
    #: Absolute path; empty: a scratch folder that the runner makes and removes, or the home folder of the account.
    working_directory: str
    #: Hundredths of a core; 0: no limit. Enforced as far as the isolation of the host allows.
    cpu: _Natural
    #: Bytes of memory; 0: no limit. Enforced as far as the isolation of the host allows.
    memory_bytes: _Natural
    #: Largest number of bytes of each of the two logs of the job (stdout, stderr); rotation removes older output. 0: the cap in the
    #: runner's settings.
    log_cap_bytes: _Natural = 0
    #: The agent's own note about the job. The runner does not read the note, and returns it in the full report.
    note: bytes = b""
    #: True if the job handles `interrupt_signal`. Its exit code after the signal then says whether the job was completed or saved its
    #: state.
    interruptible: bool = False
    interrupt_signal: InterruptSignal = InterruptSignal.SIGTERM
    #: File into which the runner writes, when it sends the job's signal, the time at which it will kill the job; empty: none.
    deadline_file: str = ""
    #: Folder in the host's exchange folder that is made before the job starts, and that only the job's account can enter; empty: none.
    exchange_folder: str = ""
    #: Account of the host that the job runs as; empty: the runner's own.
    account: AccountName = ""
    #: Smallest uid that `account` may have; smaller uids belong to system accounts. 0: any uid except the superuser's.
    lowest_uid: _Natural = 0
    #: Reason why the agent already knows that the job cannot be started; the runner then only reports the job's end. Empty: no such reason.
    not_started_for: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    #: True if `not_started_for` is a host fault.
    is_host_fault: bool = False
    #: Record of the decision that started the allocation; returned in the full report, and with the end.
    start: StartRecord | None = None
    #: Names of the GPU devices of the job. The job does not start while another live job has one of these devices.
    gpus: tuple[str, ...] = ()
    #: Device files that the job must not open: those of all other GPUs. Enforced with `cgroup2` if the runner is root.
    closed_files: list[str] = []
    #: Milliseconds from the start of the program until the job is interrupted; null: no limit.
    time_limit_ms: UnixMillis | None = None
    #: Milliseconds to SIGKILL from the signal that the job gets at its time limit.
    interruption_timeout_ms: UnixMillis = 10_000
    #: True if the job gets a terminal. Otherwise its stdin is empty, and its output is logged.
    terminal: bool = False
    #: The container that the job's command starts; None: the job runs without a container.
    container: RunContainer | None = None
    #: Unix time of the start of the job's operation in milliseconds, which is part of the name of its log folder; 0: not known.
    operation_started_at_ms: UnixMillis = 0
    #: Person who owns the operation; empty: not known.
    user: str = ""

    @property
    def log_folder(self) -> str:
        """The name of the folder with the logs of the operation, in the logs folder."""
        return folder_of_start(self.job.operation, self.operation_started_at_ms)


class RunAhead(msgspec.Struct, frozen=True, tag="run_ahead"):
    """Queue this job: the runner starts it, without a further order, once the earlier jobs of its allocation have ended by themselves.

    The queued job is dropped if no job of its allocation is live, if the job before it is stopped or cannot start, and at the next `Hello`.
    When a job ends and its queued job starts, `Ended.followed_by` names the queued job.
    """

    run: Run


class Recall(msgspec.Struct, frozen=True, tag="recall"):
    """Drop all queued jobs of an allocation. The answer is `Recalled`."""

    allocation: str


class Interrupt(msgspec.Struct, frozen=True, tag="interrupt"):
    """Send the job's signal to its process group, and SIGKILL after `timeout_ms`. A deadline never moves to a later time."""

    job: JobKey
    timeout_ms: UnixMillis
    #: Why the job is interrupted; becomes part of the `reason` of its end.
    reason: str
    #: The agent's own note about the interruption. The runner returns it in the full report.
    note: bytes = b""


class EndAll(msgspec.Struct, frozen=True, tag="end_all"):
    """Interrupt every job as `Interrupt` does, start no further job, and exit once the ends of all jobs are written."""

    timeout_ms: UnixMillis
    reason: str


class NodeLease(msgspec.Struct, frozen=True, tag="lease"):
    """End all jobs when CLOCK_BOOTTIME (ns) passes `until_boottime_ns`, unless a lease that ends later has arrived before.

    Without any lease no job starts.
    """

    until_boottime_ns: _Natural
    #: Milliseconds from the end of the lease to SIGKILL. The agent chooses the time so that it is over before other nodes may run the jobs.
    timeout_ms: UnixMillis = 5_000
    #: Start of the unbroken series of leases that ends with this lease, in nanoseconds of CLOCK_BOOTTIME; 0: the series was never broken.
    since_boottime_ns: _Natural = 0


class Acknowledge(msgspec.Struct, frozen=True, tag="acknowledge"):
    """Admission has recorded the ends of these jobs, so the runner may release their files."""

    jobs: list[JobKey]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """An agent has connected. The answer is a `FullReport`."""

    incarnation: str


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Ask for a sign of life. The answer is `Pong`. Only a runner whose full report says `answers_pings` knows this message."""


class Turn(msgspec.Struct, frozen=True, tag="turn"):
    """One turn (a request) of a person's session with a job. The answer is `Turned`. It comes later if the turn waits for output.

    Only a runner whose full report says `has_sessions` knows this message.
    """

    #: Number of the turn on this connection, which the answer repeats.
    number: _Natural
    user: str
    turn: SessionTurn


ToRunner = Hello | Run | RunAhead | Recall | Interrupt | EndAll | NodeLease | Acknowledge | Ping | Turn


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The job's process runs."""

    job: JobKey
    pid: int
    #: Unix time in milliseconds at which the process started.
    started_at_ms: int
    #: CLOCK_BOOTTIME in nanoseconds at which the process started.
    started_boottime_ns: int
    #: Account of the host that the job runs as; empty: the runner's own.
    account: AccountName = ""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The job has ended. `end.result` is `failed` also if its command could not be started."""

    end: JobEnd
    #: True after a host fault: the host could not start the job, and other jobs would fail in the same way for a while.
    is_host_fault: bool = False
    #: The queued job of the same allocation that starts now; None: no queued job starts.
    followed_by: JobKey | None = None


class Recalled(msgspec.Struct, frozen=True, tag="recalled"):
    """The answer to `Recall`: no job of the allocation is queued any more."""

    allocation: str


class KeptJob(msgspec.Struct, frozen=True):
    """A job in the full report that runs or starts."""

    run: Run
    started: Started
    #: The interruption, with the reason given first and with the time that is left until the kill; None: the job was not interrupted.
    interrupted: Interrupt | None = None


class FullReport(msgspec.Struct, frozen=True, tag="picture"):
    """The full report of the runner: all jobs that run or start, and all ends that are not acknowledged."""

    running: list[KeptJob]
    ended: list[JobEnd]
    #: `cgroup2`, `rlimit` or `none`.
    isolation: str
    #: Why the isolation is not stronger.
    isolation_detail: str
    pid: int
    #: Present faults (ends that cannot be written, files that could not be read); empty: none.
    trouble: str = ""
    #: True if the runner understands `RunAhead` and `Recall`. A runner may be older than its agent.
    runs_ahead: bool = False
    #: True if the runner answers `Ping`.
    answers_pings: bool = False
    #: True if the runner makes `Run.exchange_folder`.
    makes_folders: bool = False
    #: True if the runner answers `Turn`.
    has_sessions: bool = False
    #: True if the runner keeps the logs of an operation apart from the logs of earlier operations with the same id.
    tells_starts_apart: bool = False


class Turned(msgspec.Struct, frozen=True, tag="turned"):
    """The answer to a turn."""

    number: _Natural
    #: The message for the person: a `SessionState` or a refusal.
    answer: bytes


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """The runner is alive."""

    #: Number of open sessions.
    sessions: _Natural = 0


#: Reports about jobs and sessions.
ToAgent = Started | Ended | Recalled | FullReport | Pong
#: All messages that a runner sends.
FromRunner = ToAgent | Turned

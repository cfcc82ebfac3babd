"""The conversation of an agent with the runner of its host, over a unix socket.

Frames are a 4-byte big-endian length and msgpack. One agent speaks at a time, and a second connection replaces the first. The runner
outlives the agent: on `Hello` it answers with the whole `Picture`, so that an agent that was restarted knows what runs. An ended job
is reported until it is acknowledged and is kept in a file until then, so that an end outlives the runner too.

`Hello` is the first frame of a connection: only then does it replace another, and only then is it told anything. A frame that is too
large, unreadable or out of turn closes the connection and changes nothing. But if it can be told which run an unreadable frame is
about, that run ends with the reason, and the conversation goes on (`unreadable`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.wire.heartbeat import AccountName, JobEnd, JobKey, Millis
from headrace.wire.preemption import InterruptSignal
from headrace.wire.start_stages import StartRecord

#: Of one frame to the runner; a longer one closes the connection.
LARGEST_REQUEST_BYTES = 4 * 1024 * 1024
#: Of one frame to the agent. A picture is always one frame: half of one would look as if jobs were gone.
LARGEST_ANSWER_BYTES = 1024 * 1024 * 1024
#: In place of an account, where the person has none on this host: no account has such a name.
NO_ACCOUNT = "(none)"

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Start this job. Known already (running or ended): nothing is started, its state is told again."""

    job: JobKey
    allocation: str
    argv: list[str]
    #: The whole environment; the runner adds only `HEADRACE_JOB=<operation>.<index>.<attempt>` and `HEADRACE_RUNNER=<state folder>`,
    #: by which it finds its processes.
    environment: dict[str, str]
    #: Absolute; empty: a scratch folder that the runner makes and removes, or the home of the account.
    working_directory: str
    #: Hundredths of a core and bytes, enforced as far as the isolation of the host goes; 0 is no limit.
    cpu: _Natural
    memory_bytes: _Natural
    #: Of stdout and of stderr each, older output is rotated away; 0: the runner's own setting.
    log_cap_bytes: _Natural = 0
    #: The agent's own words about the job, handed back in the picture untouched.
    note: bytes = b""
    #: The job understands the signal, so that its exit status after it says what it did.
    interruptible: bool = False
    interrupt_signal: InterruptSignal = InterruptSignal.SIGTERM
    #: Where the job is told when it is killed, once it gets the signal; empty: nowhere.
    deadline_file: str = ""
    #: Made for the job before it starts, for its account only; empty: none. Its parent is the exchange folder of the host.
    exchange_folder: str = ""
    #: The account of the host as which it runs; empty: the runner's own.
    account: AccountName = ""
    #: An account with a smaller uid starts no job: it is an account of the system. 0: any but the superuser's may.
    lowest_uid: _Natural = 0
    #: Why it cannot be started, so that it only ends; empty: it can.
    not_started_for: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    #: The host is at fault for that.
    is_host_fault: bool = False
    #: How its allocation got its place; handed back in the picture, and with the end.
    start: StartRecord | None = None


class RunAhead(msgspec.Struct, frozen=True, tag="run_ahead"):
    """Start this job of an allocation once those before it have ended by themselves, without being asked.

    It is dropped where no job of its allocation lives, where the one before it is stopped or cannot start, and at the next `Hello`.
    `Ended` says which job followed.
    """

    run: Run


class Recall(msgspec.Struct, frozen=True, tag="recall"):
    """Drop all that is ahead in an allocation. `Recalled` answers."""

    allocation: str


class Interrupt(msgspec.Struct, frozen=True, tag="interrupt"):
    """The job's signal to its process group, SIGKILL after `timeout_ms`. An earlier deadline is never moved later."""

    job: JobKey
    timeout_ms: Millis
    #: Goes into the end's `reason`.
    reason: str
    #: The agent's own words about the interruption, handed back in the picture untouched.
    note: bytes = b""


class EndAll(msgspec.Struct, frozen=True, tag="end_all"):
    """Interrupt every job as above, start none any more, and exit once all ends are written."""

    timeout_ms: Millis
    reason: str


class NodeLease(msgspec.Struct, frozen=True, tag="lease"):
    """All jobs end when CLOCK_BOOTTIME (ns) passes this, unless a later lease came before. Without any, none starts."""

    until_boottime_ns: _Natural
    #: From the end of the lease to SIGKILL; over before others may run the jobs.
    timeout_ms: Millis = 5_000
    #: Since when this lease and those before it have followed one another without a gap; 0: always.
    since_boottime_ns: _Natural = 0


class Acknowledge(msgspec.Struct, frozen=True, tag="acknowledge"):
    """These ends are recorded elsewhere, so their files may go."""

    jobs: list[JobKey]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """An agent is there. A `Picture` answers it."""

    incarnation: str


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Say that you are there. `Pong` answers. Only a runner whose picture says `answers_pings` knows it."""


ToRunner = Hello | Run | RunAhead | Recall | Interrupt | EndAll | NodeLease | Acknowledge | Ping


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The job's process runs."""

    job: JobKey
    pid: int
    #: Unix time, and CLOCK_BOOTTIME of the same moment.
    started_at_ms: int
    started_boottime_ns: int
    #: The account of the host as which it runs; empty: the runner's own.
    account: AccountName = ""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The job is over. `end.result` is `failed` also where its command could not be started."""

    end: JobEnd
    #: The host could not start the job; others will fare no better for a while.
    is_host_fault: bool = False
    #: The job of its allocation that was ahead and starts now; None: nothing is ahead in the allocation.
    followed_by: JobKey | None = None


class Recalled(msgspec.Struct, frozen=True, tag="recalled"):
    """Nothing is ahead in the allocation any more."""

    allocation: str


class KeptJob(msgspec.Struct, frozen=True):
    """A running job in the picture."""

    run: Run
    started: Started
    #: The first interruption of it, with the time that is left until the kill; None: it was not interrupted.
    interrupted: Interrupt | None = None


class Picture(msgspec.Struct, frozen=True, tag="picture"):
    """The whole state of the runner: what runs, and which ends are not acknowledged."""

    running: list[KeptJob]
    ended: list[JobEnd]
    #: `cgroup2`, `rlimit` or `none`, with words on why not more.
    isolation: str
    isolation_detail: str
    pid: int
    #: What is wrong at the moment (ends that cannot be written, files that could not be read); empty: nothing.
    trouble: str = ""
    #: It understands `RunAhead` and `Recall`. A runner may be older than its agent.
    runs_ahead: bool = False
    #: It answers `Ping`.
    answers_pings: bool = False
    #: It makes `Run.exchange_folder`.
    makes_folders: bool = False


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """The runner is there."""


#: News of the jobs.
ToAgent = Started | Ended | Recalled | Picture
#: All that a runner says.
Said = ToAgent | Pong

"""The runner's settings, all from its command line: `--log-cap-bytes 1048576` and so on, one option per field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from headrace.errors import BadInput

IsolationChoice = Literal["auto", "cgroup2", "rlimit", "none"]
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**60)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of the runner. Paths are absolute."""

    #: Folder for socket, lock, kept ends and scratch folders. If it is missing, it is made so that only its owner can enter it.
    state: str
    #: Folder for the logs of jobs; empty: `logs` in the state folder.
    logs: str = ""
    #: Bytes that are kept of each output stream of a job whose order sets no cap.
    log_cap_bytes: _Bytes = 16 * 1024 * 1024
    #: Upper bound in bytes of all logs together. Beyond it, logs of the person with the most bytes are removed: first those of the
    #: operation that has run nothing here for the longest time.
    logs_total_bytes: _Bytes = 10 * 1024 * 1024 * 1024
    #: The strongest isolation to try; `auto`: the strongest kind that works.
    isolation: IsolationChoice = "auto"
    #: A cgroup v2 folder that is delegated to this user; empty: none.
    cgroup: str = ""
    #: Bytes by which RLIMIT_DATA is larger than a job's memory, because this limit also counts stacks of threads and reserved memory.
    memory_headroom_bytes: _Bytes = 256 * 1024 * 1024
    #: Upper bound of processes and threads of one job at a time, where cgroups count them. 0: no limit.
    job_pids: Annotated[int, msgspec.Meta(ge=0, le=2**22)] = 4_096
    #: When the runner gets SIGTERM, it interrupts all jobs. This is the time in milliseconds until the remaining jobs are killed.
    end_timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=86_400_000)] = 10_000
    #: Milliseconds from the start of a job until its program must run. After this time the job counts as failed, and its process is killed.
    start_timeout_ms: Annotated[int, msgspec.Meta(ge=100, le=3_600_000)] = 30_000
    #: Milliseconds without a turn (a request of the person) after which a session is ended. If the session uses the terminal of a job, the
    #: job is stopped too.
    session_grace_ms: Annotated[int, msgspec.Meta(ge=1_000, le=86_400_000)] = 60_000
    #: Milliseconds without an agent and without a job after which the runner ends by itself; ends that no agent has acknowledged stay in
    #: their files. 0: never.
    abandoned_after_ms: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 600_000
    log_level: Literal["debug", "info"] = "info"
    #: File descriptor to which a line is written as soon as the socket accepts connections; negative: none.
    ready_fd: int = -1


def parse(arguments: Sequence[str]) -> Settings:
    """Parse `--name value` and `--name=value`. Raises `BadInput`."""
    fields = {"--" + name.replace("_", "-"): name for name in Settings.__struct_fields__}
    figures: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        option, equals, value = rest.pop(0).partition("=")
        if option not in fields:
            raise BadInput("option", option, "one of " + ", ".join(fields))
        if not equals:
            if not rest:
                raise BadInput.because(option, "the value is missing")
            value = rest.pop(0)
        figures[fields[option]] = value
    try:
        settings = msgspec.convert(figures, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput.because("command line", f"the options cannot be used: {error}") from None
    for name in ("state", "logs", "cgroup"):
        path = figures.get(name, "")
        if path and not path.startswith("/"):
            raise BadInput("--" + name, path, "an absolute path")
    return settings if settings.logs else msgspec.structs.replace(settings, logs=f"{settings.state}/logs")

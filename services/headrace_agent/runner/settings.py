"""The runner's settings, all from its command line: `--log-cap-bytes 1048576` and so on, one option per field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from headrace.errors import BadInput

IsolationChoice = Literal["auto", "cgroup2", "rlimit", "none"]
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**60)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All of them. Paths are absolute."""

    #: Folder for socket, lock, kept ends and scratch folders; made if missing, for its owner only.
    state: str
    #: Folder for logs of jobs; empty: `logs` in the state folder.
    logs: str = ""
    #: Of one stream of one job that names no cap of its own.
    log_cap_bytes: _Bytes = 16 * 1024 * 1024
    #: Of all logs together; the oldest of operations that run nothing here go first.
    logs_total_bytes: _Bytes = 10 * 1024 * 1024 * 1024
    #: The strongest isolation to try.
    isolation: IsolationChoice = "auto"
    #: A cgroup v2 folder that was delegated to this user; empty: none.
    cgroup: str = ""
    #: Added to a job's memory for RLIMIT_DATA, since stacks of threads and reserved memory count there.
    memory_headroom_bytes: _Bytes = 256 * 1024 * 1024
    #: Processes and threads of one job at a time, where cgroups count them. 0: no limit.
    job_pids: Annotated[int, msgspec.Meta(ge=0, le=2**22)] = 4_096
    #: From SIGTERM to the runner (all jobs are interrupted) to the kill of those that go on.
    end_timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=86_400_000)] = 10_000
    #: From the start of a job to the run of its program; a job that is slower has failed, and its process is killed.
    start_timeout_ms: Annotated[int, msgspec.Meta(ge=100, le=3_600_000)] = 30_000
    #: Without an agent and without a job for so long, the runner goes by itself; ends wait in their files. 0: never.
    abandoned_after_ms: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 600_000
    log_level: Literal["debug", "info"] = "info"
    #: File descriptor to which a line is written as soon as the socket can be reached; less than 0: none.
    ready_fd: int = -1


def parse(arguments: Sequence[str]) -> Settings:
    """Reads `--name value` and `--name=value`. Raises `BadInput`."""
    fields = {"--" + name.replace("_", "-"): name for name in Settings.__struct_fields__}
    figures: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        option, equals, value = rest.pop(0).partition("=")
        if option not in fields:
            raise BadInput("option", option, "one of " + ", ".join(fields))
        if not equals:
            if not rest:
                raise BadInput(option, "", "a value")
            value = rest.pop(0)
        figures[fields[option]] = value
    try:
        settings = msgspec.convert(figures, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput("command line", " ".join(arguments), str(error)) from None
    for name in ("state", "logs", "cgroup"):
        path = figures.get(name, "")
        if path and not path.startswith("/"):
            raise BadInput("--" + name, path, "an absolute path")
    return settings if settings.logs else msgspec.structs.replace(settings, logs=f"{settings.state}/logs")

"""The one port to the host: every file, process and clock that the runner touches is touched through a `Host`.

A simulator can take its place and fail any single call. All calls raise OSError as the system does; paths are absolute.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Protocol

from headrace.runtime.engine import Moment

__all__ = ["MARKER", "Entry", "Files", "Host", "Processes", "Reaped", "Spawn", "write_file"]

#: Every process of a job carries it: `HEADRACE_JOB=<operation>.<index>.<attempt>`.
MARKER = "HEADRACE_JOB"


class Entry(NamedTuple):
    """One entry of a folder. A symbolic link is no folder and is not followed."""

    name: str
    is_folder: bool
    size_bytes: int
    changed_at: float


class Spawn(NamedTuple):
    """A process to start."""

    argv: list[str]
    environment: dict[str, str]
    working_directory: str
    stdout_fd: int
    stderr_fd: int


class Reaped(NamedTuple):
    """A child that ended and was collected. Times and memory include its own children as far as it waited for them."""

    exit_code: int | None
    signal: int | None
    cpu_ms: int
    max_rss_bytes: int


class Files(Protocol):
    """Files and folders. Nothing here follows a symbolic link in the last part of a path."""

    def make_folder(self, path: str) -> None:
        """Makes the folder, for its owner only. Its parent must exist, and an existing one is left as it is."""

    def open(self, path: str, flags: int) -> int: ...
    def read(self, fd: int, buffer: bytearray) -> int: ...
    def write(self, fd: int, data: bytes | memoryview) -> int: ...
    def close(self, fd: int) -> None: ...
    def inode(self, fd: int) -> int: ...
    def rename(self, old: str, new: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def remove_folder(self, path: str) -> None: ...
    def entries(self, path: str) -> list[Entry]: ...
    def read_file(self, path: str, limit: int) -> bytes: ...


class Processes(Protocol):
    """Processes and clocks."""

    def now(self) -> Moment: ...
    def pause(self, length_ms: int) -> None: ...

    def spawn(self, order: Spawn) -> int:
        """Starts a session of its own and returns its pid. Raises OSError, and ValueError for what no process can be given."""

    def pipe(self) -> tuple[int, int]:
        """The end to read from, which never blocks, and the end to write to."""

    def pidfd(self, pid: int) -> int: ...
    def waiting(self, fd: int) -> int:
        """Bytes that a pipe holds."""

    def signal(self, pid: int, number: int) -> bool:
        """False: there is no such process."""

    def signal_group(self, pgid: int, number: int) -> bool:
        """False: the group has no member, not even one that waits to be collected."""

    def signal_pidfd(self, pidfd: int, number: int) -> bool:
        """As `signal`, and never to another process that got the same number."""

    def exited(self, pid: int) -> bool:
        """True if a child has ended. It is not collected."""

    def reap(self, pid: int) -> Reaped | None:
        """Collects a child. Returns None while it lives."""

    def limit(self, pid: int, which: int, soft: int, hard: int) -> None: ...
    def children(self) -> list[int]:
        """Children of the runner: main processes of jobs and what was orphaned below them. Empty if orphans do not come to us."""

    def pids(self) -> list[int]: ...
    def stat(self, pid: int) -> tuple[int, int] | None:
        """Session and start time (clock ticks since boot), or None if there is no such process or it is dead."""

    def marker(self, pid: int) -> str:
        """Value of `MARKER` in the environment with which the process was started.

        It is empty if there is none, or if it is not ours to read.
        """


class Host(NamedTuple):
    """The host as the runner sees it."""

    files: Files
    processes: Processes


def write_file(files: Files, path: str, data: bytes, flags: int = os.O_WRONLY | os.O_CREAT | os.O_TRUNC) -> None:
    """Writes all of `data`. Raises OSError with the path in it, and what was written by then stays."""
    try:
        fd = files.open(path, flags)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[files.write(fd, rest) :]
        finally:
            files.close(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
